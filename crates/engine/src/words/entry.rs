//! The name of a slot: which area, and the slot's offset in it.

use std::num::{NonZeroU8, NonZeroU64};

use super::geometry::{SLOTS_MAX, SLOTS_PER_CLUSTER};

const AREA_SHIFT: u32 = 48;
const AREA_BITS: u32 = 8;
const OFFSET_MASK: u64 = (1 << AREA_SHIFT) - 1;

const _: () = assert!(AREA_SHIFT + AREA_BITS == Entry::BITS);
// The offset of the last slot fits. Computed in u64, because a cluster number times its slots does not fit u32.
const _: () = assert!(SLOTS_MAX <= OFFSET_MASK);
const _: () = assert!(AREA_BITS == u8::BITS);

/// The number of an area. 0 means none, so no entry is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AreaId(NonZeroU8);

impl AreaId {
    /// The virtual area, where every page goes first.
    pub const VIRTUAL: AreaId = AreaId(NonZeroU8::MIN);

    /// The `index`-th physical area. `None` if no number is left for it.
    pub(crate) fn physical(index: usize) -> Option<AreaId> {
        let number = u8::try_from(index.checked_add(FIRST_PHYSICAL)?).ok()?;
        NonZeroU8::new(number).map(AreaId)
    }

    /// The index of a physical area. `None` for the virtual one.
    pub(crate) fn physical_index(self) -> Option<usize> {
        usize::from(self.0.get()).checked_sub(FIRST_PHYSICAL)
    }
}

/// Number of the first physical area. The virtual area has the number before it.
const FIRST_PHYSICAL: usize = 2;

/// The name of a slot. Never 0 and below 2^56, so a pager can keep 8 bits of its own beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry(NonZeroU64);

impl Entry {
    /// Width of [`Entry::raw`].
    pub const BITS: u32 = 56;

    /// The entry as a number.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0.get()
    }

    /// The entry from a number that [`Entry::raw`] gave. `None` for a number that names no area's slot. Each operation
    /// checks for itself that the slot is in use.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Option<Entry> {
        if raw >> AREA_SHIFT == 0 || raw >> Entry::BITS != 0 || raw & OFFSET_MASK >= SLOTS_MAX {
            return None;
        }
        match NonZeroU64::new(raw) {
            Some(raw) => Some(Entry(raw)),
            None => None,
        }
    }

    /// The entry of `slot` in cluster `cluster` of `area`.
    pub(crate) const fn of(area: AreaId, cluster: u32, slot: usize) -> Entry {
        let offset = cluster as u64 * SLOTS_PER_CLUSTER as u64 + slot as u64;
        Entry(NON_ZERO.saturating_add(((area.0.get() as u64) << AREA_SHIFT) + offset - 1))
    }

    /// The entry of the slot at `offset` of `area`. `None` if no area has that many slots.
    pub(crate) const fn at(area: AreaId, offset: u64) -> Option<Entry> {
        if offset > OFFSET_MASK {
            return None;
        }
        Entry::from_raw(((area.0.get() as u64) << AREA_SHIFT) | offset)
    }

    /// The entry `slots` slots behind this one, in the same cluster.
    pub(crate) const fn behind(self, slots: usize) -> Entry {
        let (cluster, slot) = self.position();
        Entry::of(self.area(), cluster, slot + slots)
    }

    /// Whether this is a slot of a physical area that page tables name, without a virtual slot in between.
    #[inline]
    #[must_use]
    pub const fn is_direct(self) -> bool {
        self.area().0.get() != AreaId::VIRTUAL.0.get()
    }

    /// The area that the slot is in.
    #[inline]
    #[must_use]
    pub const fn area(self) -> AreaId {
        #[expect(clippy::cast_possible_truncation, reason = "the area's 8 bits")]
        match NonZeroU8::new((self.raw() >> AREA_SHIFT) as u8) {
            Some(number) => AreaId(number),
            // Neither constructor makes such an entry.
            None => AreaId::VIRTUAL,
        }
    }

    /// The slot's place in its area.
    #[inline]
    pub(crate) const fn offset(self) -> u64 {
        self.raw() & OFFSET_MASK
    }

    /// The cluster and the slot in it.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "both constructors bound the offset"
    )]
    pub(crate) const fn position(self) -> (u32, usize) {
        let cluster = (self.offset() / SLOTS_PER_CLUSTER as u64) as u32;
        let slot = (self.offset() % SLOTS_PER_CLUSTER as u64) as usize;
        (cluster, slot)
    }
}

const NON_ZERO: NonZeroU64 = NonZeroU64::MIN;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::words::geometry::CLUSTERS_MAX;

    fn areas() -> impl Iterator<Item = AreaId> {
        let physical = [0, 1, 253].map(|index| AreaId::physical(index).expect("a number"));
        [AreaId::VIRTUAL].into_iter().chain(physical)
    }

    #[test]
    fn extremes_come_back_whole() {
        for area in areas() {
            for cluster in [0, 1, CLUSTERS_MAX / 2, CLUSTERS_MAX - 1] {
                for slot in [0, SLOTS_PER_CLUSTER - 1] {
                    let entry = Entry::of(area, cluster, slot);
                    assert_eq!((entry.area(), entry.position()), (area, (cluster, slot)));
                    assert_eq!(Entry::from_raw(entry.raw()), Some(entry));
                    assert_eq!(Entry::at(area, entry.offset()), Some(entry));
                    assert!(entry.raw() < 1 << Entry::BITS);
                }
            }
        }
    }

    #[test]
    fn numbers_that_name_no_slot_are_refused() {
        let last = Entry::of(AreaId::VIRTUAL, CLUSTERS_MAX - 1, SLOTS_PER_CLUSTER - 1).raw();
        for raw in [0, 1, OFFSET_MASK, last + 1, 1 << 56 | last, u64::MAX] {
            assert_eq!(Entry::from_raw(raw), None, "{raw:#x}");
        }
        for offset in [SLOTS_MAX, OFFSET_MASK, OFFSET_MASK + 1, u64::MAX] {
            assert_eq!(Entry::at(AreaId::VIRTUAL, offset), None, "{offset:#x}");
        }
    }

    #[test]
    fn areas_have_numbers_of_their_own() {
        assert_eq!(AreaId::VIRTUAL.physical_index(), None);
        for index in [0, 1, 253] {
            let area = AreaId::physical(index).expect("a number");
            assert_eq!(area.physical_index(), Some(index));
        }
        assert_eq!(AreaId::physical(254), None);
        assert_eq!(AreaId::physical(usize::MAX), None);
    }
}
