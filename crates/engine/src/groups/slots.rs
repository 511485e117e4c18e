//! Which group each slot of a cluster is of: 2 bytes a slot, beside the swap table.
//!
//! A cluster has such a table from the first slot in it of another group than the root until it is empty. So an engine
//! without groups pays nothing, and of physical clusters only those have one that hold directly mapped slots: other
//! slots stand behind virtual ones, which say whose they are. Read and written under the cluster's lock; looking up an
//! entry does not ask.

use super::GroupIndex;
use crate::cluster::{ClusterGuard, SLOTS_PER_CLUSTER};
use crate::sync::try_boxed_array;

/// Numbers of groups. Those of free slots are the root's.
pub(crate) type GroupTable = [GroupIndex; SLOTS_PER_CLUSTER];

#[cfg(not(any(loom, shuttle, miri, feature = "tests-small")))]
const _: () = assert!(size_of::<GroupTable>() == 1024);

impl ClusterGuard<'_> {
    /// The group of a slot.
    #[inline]
    pub(crate) fn group(&self, slot: usize) -> GroupIndex {
        let groups = self.state.groups.as_ref();
        groups.map_or(GroupIndex::ROOT, |groups| groups[slot])
    }

    /// Makes the table if slots of `group` need one; false if there is no memory for it.
    #[inline]
    pub(crate) fn ensure_groups(&mut self, group: GroupIndex) -> bool {
        if group != GroupIndex::ROOT && self.state.groups.is_none() {
            self.state.groups = try_boxed_array(|_| GroupIndex::ROOT);
            return self.state.groups.is_some();
        }
        true
    }

    /// Says whose a slot is, after `ensure_groups`. A free slot is the root's.
    #[inline]
    pub(crate) fn set_group(&mut self, slot: usize, group: GroupIndex) {
        debug_assert!(group == GroupIndex::ROOT || self.state.groups.is_some());
        if let Some(groups) = &mut self.state.groups {
            groups[slot] = group;
        }
    }

    /// Slots of `group`, which is not the root.
    pub(crate) fn slots_of_group(&self, group: GroupIndex) -> usize {
        let groups = self.state.groups.iter().flat_map(|groups| groups.iter());
        groups.filter(|&&of| of == group).count()
    }
}
