//! The name of a slot: which area, and the slot's offset in it.

use std::num::NonZeroU64;

use crate::cluster::SLOTS_PER_CLUSTER;

const AREA_SHIFT: u32 = 48;
const AREA_BITS: u32 = 8;
const OFFSET_MASK: u64 = (1 << AREA_SHIFT) - 1;
/// The virtual area. 0 is no area, so that no entry is 0; the other numbers are for physical areas.
const VIRTUAL_AREA: u64 = 1;

/// How many clusters the virtual area can have: every `u32` but the one that says "none".
pub(crate) const CLUSTERS_MAX: u32 = u32::MAX;

const _: () = assert!(AREA_SHIFT + AREA_BITS == Entry::BITS);
// The offset of the last slot fits. Computed in u64: a cluster number times its slots does not fit u32.
const _: () = assert!(CLUSTERS_MAX as u64 * SLOTS_PER_CLUSTER as u64 <= OFFSET_MASK);

/// The name of a slot. Never 0 and below 2^56, so that a pager can keep 8 bits of its own beside it.
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

    /// The entry that [`Entry::raw`] gave; `None` for a number that names no area's slot. That the slot is in use is
    /// checked by each operation.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Option<Entry> {
        if raw >> AREA_SHIFT != VIRTUAL_AREA
            || (raw & OFFSET_MASK) / SLOTS_PER_CLUSTER as u64 >= CLUSTERS_MAX as u64
        {
            return None;
        }
        match NonZeroU64::new(raw) {
            Some(raw) => Some(Entry(raw)),
            None => None,
        }
    }

    /// The entry of `slot` in virtual cluster `cluster`.
    pub(crate) const fn virtual_slot(cluster: u32, slot: usize) -> Entry {
        let offset = cluster as u64 * SLOTS_PER_CLUSTER as u64 + slot as u64;
        Entry(NON_ZERO_AREA.saturating_add(offset))
    }

    /// The cluster and the slot in it.
    #[inline]
    pub(crate) const fn position(self) -> (u32, usize) {
        let offset = self.raw() & OFFSET_MASK;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "both constructors bound the offset"
        )]
        let cluster = (offset / SLOTS_PER_CLUSTER as u64) as u32;
        let slot = (offset % SLOTS_PER_CLUSTER as u64) as usize;
        (cluster, slot)
    }
}

/// The area field of a virtual entry.
const NON_ZERO_AREA: NonZeroU64 = match NonZeroU64::new(VIRTUAL_AREA << AREA_SHIFT) {
    Some(area) => area,
    None => NonZeroU64::MIN,
};
const _: () = assert!(NON_ZERO_AREA.get() == VIRTUAL_AREA << AREA_SHIFT);

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn extremes_come_back_whole() {
        for cluster in [0, 1, u32::MAX / 2, CLUSTERS_MAX - 1] {
            for slot in [0, SLOTS_PER_CLUSTER - 1] {
                let entry = Entry::virtual_slot(cluster, slot);
                assert_eq!(entry.position(), (cluster, slot));
                assert_eq!(Entry::from_raw(entry.raw()), Some(entry));
                assert!(entry.raw() < 1 << Entry::BITS);
            }
        }
    }

    #[test]
    fn numbers_that_name_no_slot_are_refused() {
        let last = Entry::virtual_slot(CLUSTERS_MAX - 1, SLOTS_PER_CLUSTER - 1).raw();
        for raw in [
            0,
            1,
            OFFSET_MASK,
            last + 1,
            2 << AREA_SHIFT,
            1 << 56 | last,
            u64::MAX,
        ] {
            assert_eq!(Entry::from_raw(raw), None, "{raw:#x}");
        }
    }
}
