//! Which slots an area has, and which of them are bad.

use std::ops::Range;

use crate::words::geometry::SLOTS_PER_CLUSTER;

/// The slots of an area. An area of no slots has lost its storage.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    /// Number of slots, including bad ones.
    slots: u64,
    /// Slots that must never be used, in ascending order.
    bad: Box<[u64]>,
}

impl Extent {
    /// `slots` slots, without the `bad` ones, which are in ascending order.
    pub(crate) fn new(slots: u64, bad: Box<[u64]>) -> Extent {
        debug_assert!(bad.is_sorted());
        Extent { slots, bad }
    }

    /// The slots of cluster `id`. They may reach beyond the end of the area.
    pub(crate) fn slots_of(id: u32) -> Range<u64> {
        let start = u64::from(id) * SLOTS_PER_CLUSTER as u64;
        start..start + SLOTS_PER_CLUSTER as u64
    }

    /// Whether cluster `id` has a slot that the area has.
    pub(crate) fn reaches(&self, id: u32) -> bool {
        Extent::slots_of(id).start < self.slots
    }

    /// The slots of cluster `id` that must never be used: bad ones, and those behind the area's end.
    pub(crate) fn bad_in(&self, id: u32) -> impl Iterator<Item = usize> + '_ {
        let slots = Extent::slots_of(id);
        let from = self.bad.partition_point(|&slot| slot < slots.start);
        let to = self.bad.partition_point(|&slot| slot < slots.end);
        let bad = self.bad[from..to].iter().copied();
        let beyond = self.slots.clamp(slots.start, slots.end)..slots.end;
        // The difference is below SLOTS_PER_CLUSTER.
        bad.chain(beyond)
            .map(move |slot| usize::try_from(slot - slots.start).unwrap_or(0))
    }
}
