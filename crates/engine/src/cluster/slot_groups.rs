//! The group of each slot of a cluster: 2 bytes a slot, beside the swap table.
//!
//! A cluster gets this table with its first slot of a group other than the root, and loses it when it becomes empty. So
//! an engine without groups pays nothing. A physical cluster has the table only if it holds directly mapped slots: its
//! other slots stand behind virtual ones, which have the group. The table is read and written under the cluster's lock.
//! Looking up an entry does not read it.

use crate::base::sync::try_boxed_array;
use crate::groups::GroupIndex;
use crate::words::geometry::SLOTS_PER_CLUSTER;

/// Numbers of groups. Free slots have the root's.
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

    /// Makes the table if slots of `group` need one. False if there is no memory for it.
    #[inline]
    pub(crate) fn ensure(&mut self, group: GroupIndex) -> bool {
        if group != GroupIndex::ROOT && self.0.is_none() {
            self.0 = try_boxed_array(|_| GroupIndex::ROOT);
            return self.0.is_some();
        }
        true
    }

    /// Sets the group of a slot, after `ensure`. Free slots belong to the root.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, group: GroupIndex) {
        debug_assert!(group == GroupIndex::ROOT || self.0.is_some());
        if let Some(table) = &mut self.0 {
            table[slot] = group;
        }
    }

    /// Number of slots of `group`, which is not the root.
    pub(crate) fn count(&self, group: GroupIndex) -> usize {
        let table = self.0.iter().flat_map(|table| table.iter());
        table.filter(|&&of| of == group).count()
    }

    /// Whether there is a table.
    pub(crate) fn has_table(&self) -> bool {
        self.0.is_some()
    }
}
