//! Tiers: areas that belong together, so that a group can be limited to so much of them.
//!
//! The engine knows tiers by number, and its caller has their names. A tier has no priority of its own: its areas have.

/// How many tiers there can be at a time. Few under the model checkers, which make many groups.
pub const TIERS_MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 8 };
const _: () = assert!(TIERS_MAX <= TierSet::BITS);

/// A tier's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TierId(u8);

impl TierId {
    /// The tier with this number, which is below [`TIERS_MAX`].
    #[must_use]
    pub fn new(index: usize) -> Option<TierId> {
        let number = u8::try_from(index).ok()?;
        (index < TIERS_MAX).then_some(TierId(number))
    }

    /// Its number.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// All that there can be.
    pub fn all() -> impl Iterator<Item = TierId> {
        (0..TIERS_MAX).filter_map(TierId::new)
    }

    pub(crate) fn raw(self) -> u8 {
        self.0
    }

    /// The reverse of `raw`.
    pub(crate) fn from_raw(raw: u8) -> TierId {
        debug_assert!(usize::from(raw) < TIERS_MAX);
        TierId(raw)
    }
}

/// Some of the tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TierSet(u8);

impl TierSet {
    const BITS: usize = 8;
    pub(crate) const ALL: TierSet = TierSet(u8::MAX);

    #[must_use]
    pub(crate) fn with(self, tier: TierId) -> TierSet {
        TierSet(self.0 | (1 << tier.0))
    }

    pub(crate) fn has(self, tier: TierId) -> bool {
        self.0 & (1 << tier.0) != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those of the set for which `is_wanted` holds.
    #[must_use]
    pub(crate) fn filter(self, is_wanted: impl Fn(TierId) -> bool) -> TierSet {
        let wanted = TierId::all().filter(|&tier| self.has(tier) && is_wanted(tier));
        wanted.fold(TierSet::default(), TierSet::with)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_added() {
        let [first, last] = [0, TIERS_MAX - 1].map(|at| TierId::new(at).expect("a number"));
        assert_eq!(TierId::new(TIERS_MAX), None);
        assert_eq!(TierId::from_raw(last.raw()), last);
        let set = TierSet::default().with(last);
        assert!(set.has(last) && !set.has(first) && !set.is_empty());
        assert!(set.filter(|tier| tier == first).is_empty());
        assert_eq!(TierSet::ALL.filter(|tier| tier == last), set);
        assert_eq!(TierId::all().count(), TIERS_MAX);
    }
}
