//! Which group each slot of a cluster is of: 2 bytes a slot, beside the swap table.
//!
//! A cluster has such a table from the first slot in it of another group than the root until it is empty. So an engine
//! without groups pays nothing, and of physical clusters only those have one that hold directly mapped slots: other
//! slots stand behind virtual ones, which say whose they are. Read and written under the cluster's lock; looking up an
//! entry does not ask.

use crate::base::sync::try_boxed_array;
use crate::groups::GroupIndex;
use crate::words::geometry::SLOTS_PER_CLUSTER;

/// Numbers of groups. Those of free slots are the root's.
pub(crate) type GroupTable = [GroupIndex; SLOTS_PER_CLUSTER];

#[cfg(not(any(loom, shuttle, miri, feature = "tests-small")))]
const _: () = assert!(size_of::<GroupTable>() == 1024);

/// The groups of a cluster's slots.
#[derive(Debug, Default)]
pub(crate) struct SlotGroups(Option<Box<GroupTable>>);

impl SlotGroups {
    /// The group of a slot.
    #[inline]
    pub(crate) fn of(&self, slot: usize) -> GroupIndex {
        let table = self.0.as_ref();
        table.map_or(GroupIndex::ROOT, |table| table[slot])
    }

    /// Makes the table if slots of `group` need one; false if there is no memory for it.
    #[inline]
    pub(crate) fn ensure(&mut self, group: GroupIndex) -> bool {
        if group != GroupIndex::ROOT && self.0.is_none() {
            self.0 = try_boxed_array(|_| GroupIndex::ROOT);
            return self.0.is_some();
        }
        true
    }

    /// Says whose a slot is, after `ensure`. A free slot is the root's.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, group: GroupIndex) {
        debug_assert!(group == GroupIndex::ROOT || self.0.is_some());
        if let Some(table) = &mut self.0 {
            table[slot] = group;
        }
    }

    /// Slots of `group`, which is not the root.
    pub(crate) fn count(&self, group: GroupIndex) -> usize {
        let table = self.0.iter().flat_map(|table| table.iter());
        table.filter(|&&of| of == group).count()
    }

    /// Is there a table?
    pub(crate) fn has_table(&self) -> bool {
        self.0.is_some()
    }
}
