//! Groups: which pages belong to whom, and how much each group may have in physical areas and in the pool.
//!
//! Groups form a tree below the root, which has no limits and is charged for nothing. A charge to a group is also
//! charged to all groups around it. A limit holds for the group and those inside it together. *Only what takes up
//! something is charged*. A virtual slot says which group it belongs to (`cluster/slot_groups.rs`) and costs the group
//! nothing. A physical slot behind it and bytes in the pool are charged (`verbs/charge.rs`). This is the accounting of
//! the kernel's memcg under virtual swap, with a counter for the pool added, and one for each tier of areas.
//!
//! A group is found by its number without a lock, and its counters are atomics. Charging goes from the group outwards.
//! If a group on the way refuses, what was charged before it is taken back. So a group may for a moment be refused what
//! another group is just giving back, but no group is ever above its limit. Making, removing and listing groups take
//! the lock of the tree.
//!
//! A number is reused once no slot and no charge names it. A charge outlives its slot until the bytes are freed.
//! Whoever still has the id of a removed group is told that it is gone, even if another group has the number by now.

mod group;
mod name;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod validity;

use std::collections::BTreeMap;

use crate::base::lock_order;
use crate::base::pages::PAGE_BYTES;
use crate::base::sync::{Lock, LockGuard, OncePtr, try_boxed_array};
use crate::words::tier::{TIERS_MAX, TierId, TierSet};

pub(crate) use group::Resource;
use group::{Group, LIFE_MAX};
pub use group::{GroupEvents, GroupLimits};
pub use name::{GroupName, GroupNameError};
pub(crate) use validity::SlotsOf;

/// The model checkers and Miri make many engines, and tests make as many groups as there can be.
const SMALL: bool = cfg!(any(loom, shuttle, miri, feature = "tests-small"));
/// 256 pointers are 2 KiB, and two levels of them name all numbers of 16 bits.
const LEAF_BITS: u32 = if SMALL { 2 } else { 8 };
const LEAF_LEN: usize = 1 << LEAF_BITS;
/// How many groups there can be at a time, including the root.
pub const GROUPS_MAX: usize = LEAF_LEN * LEAF_LEN;
const _: () = assert!(GROUPS_MAX <= 1 << u16::BITS);

/// A group's number, as the tables keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct GroupIndex(u16);

impl GroupIndex {
    pub(crate) const ROOT: GroupIndex = GroupIndex(0);

    #[expect(clippy::cast_possible_truncation, reason = "came from `raw`")]
    fn from_raw(raw: u32) -> GroupIndex {
        GroupIndex(raw as u16)
    }

    fn raw(self) -> u16 {
        self.0
    }
}

/// A group, from its making to its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupId {
    index: GroupIndex,
    /// Tells the group from others that had or will have the same number.
    life: u32,
}

impl GroupId {
    /// The group around all others. It has no limits and is charged for nothing.
    pub const ROOT: GroupId = GroupId {
        index: GroupIndex::ROOT,
        life: 0,
    };

    /// The number in the group's slots.
    pub(crate) fn index(self) -> GroupIndex {
        self.index
    }
}

/// Why a group could not be made, changed or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// There is already a group of this name.
    #[error("there is a group {name} already: use it, or choose another name")]
    Exists {
        /// The name.
        name: GroupName,
    },
    /// The group around the new one does not exist.
    #[error("there is no group {parent} for it to be in: make that first")]
    NoParent {
        /// The name.
        parent: GroupName,
    },
    /// There are already as many as there can be.
    #[error("there are {GROUPS_MAX} groups, the most there can be: remove some")]
    TooMany,
    /// No memory for the group's record.
    #[error("no memory for another group: raise the limit")]
    NoMemory,
    /// The group was removed before.
    #[error("the group does not exist any more: it was removed")]
    Gone,
    /// The group is the root.
    #[error("the root group cannot be removed or limited: limit the groups in it")]
    Root,
    /// The group has others inside it.
    #[error("group {inside} is inside it: remove that first")]
    HasGroups {
        /// One of them.
        inside: GroupName,
    },
    /// The group has pages.
    #[error("{pages} pages of the group are in swap: let them be freed first")]
    InUse {
        /// How many. 0 if a page is just coming or going.
        pages: u64,
    },
}

/// Figures of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFigures {
    /// The group.
    pub id: GroupId,
    /// Its name.
    pub name: GroupName,
    /// Bytes in physical areas, of the group and those inside it.
    pub swap_bytes: u64,
    /// Bytes in the pool, of the group and those inside it.
    pub pool_bytes: u64,
    /// Bytes in the areas of each tier, of the group and those inside it.
    pub tier_bytes: [u64; TIERS_MAX],
    /// Its limits.
    pub limits: GroupLimits,
    /// How often its limits refused something.
    pub events: GroupEvents,
}

/// What is charged to one group and those inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupCharges {
    /// Bytes in physical areas.
    pub swap_bytes: u64,
    /// Bytes of payload in the pool.
    pub pool_bytes: u64,
}

/// The groups that exist.
#[derive(Debug, Default)]
struct Tree {
    numbers: BTreeMap<GroupName, GroupIndex>,
    /// Numbers that had a group and have none now.
    vacant: Vec<GroupIndex>,
    /// How many numbers ever had a group, not counting the root's.
    made: usize,
    /// The last life that was given to a group.
    lives: u32,
}

type Leaf = [OncePtr<Group>; LEAF_LEN];

/// All groups of an engine except the root, which needs no record.
#[derive(Debug)]
pub(crate) struct Groups {
    records: [OncePtr<Leaf>; LEAF_LEN],
    tree: Lock<Tree, { lock_order::GROUPS }>,
}

impl Groups {
    pub(crate) fn new() -> Groups {
        Groups {
            records: std::array::from_fn(|_| OncePtr::new()),
            tree: Lock::new(Tree::default()),
        }
    }

    fn get(&self, index: GroupIndex) -> Option<&Group> {
        let index = usize::from(index.0);
        self.records[index / LEAF_LEN].get()?[index % LEAF_LEN].get()
    }

    fn ensure(&self, index: GroupIndex) -> Option<&Group> {
        let index = usize::from(index.0);
        let leaf = self.records[index / LEAF_LEN]
            .get_or_try_init(|| try_boxed_array(|_| OncePtr::new()))?;
        leaf[index % LEAF_LEN].get_or_try_init(|| Some(Box::new(Group::new())))
    }

    /// The record of a group that was not removed.
    fn alive(&self, id: GroupId) -> Option<&Group> {
        self.get(id.index).filter(|group| group.is_alive(id.life))
    }

    /// A group's record and those of all groups around it, without the root.
    ///
    /// The iterator reads where to go next before it hands a record out. Once a group is uncharged it may be removed
    /// and its record may become another group's. The next group cannot be removed yet, because it still has the same
    /// charge.
    fn path(&self, index: GroupIndex) -> impl Iterator<Item = &Group> {
        let record = |index| self.get(index).map(|group| (group, group.parent()));
        let path = std::iter::successors(record(index), move |(_, parent)| record(*parent));
        path.map(|(group, _)| group)
    }

    /// Charges as many of `bytes` as all limits allow, in whole `unit_bytes`. Returns the number of bytes charged.
    /// Never waits.
    pub(crate) fn charge(
        &self,
        group: GroupIndex,
        of: Resource,
        bytes: u64,
        unit_bytes: u64,
    ) -> u64 {
        let mut granted = bytes;
        for (level, record) in self.path(group).enumerate() {
            if granted == 0 {
                break;
            }
            let here = record.charge(of, granted, unit_bytes);
            if here < granted {
                let inner = self.path(group).take(level);
                inner.for_each(|record| record.uncharge(of, granted - here));
                granted = here;
            }
        }
        granted
    }

    /// Takes a charge back after the charged bytes were freed.
    pub(crate) fn uncharge(&self, group: GroupIndex, of: Resource, bytes: u64) {
        self.path(group)
            .for_each(|record| record.uncharge(of, bytes));
    }

    /// Whether pages of the group may go to areas.
    pub(crate) fn writes_back(&self, group: GroupIndex) -> bool {
        self.path(group).all(Group::writes_back)
    }

    pub(crate) fn count_swap_fails(&self, group: GroupIndex, pages: usize) {
        if let Some(record) = self.get(group) {
            record.count_swap_fails(pages as u64);
        }
    }

    pub(crate) fn count_writeback_refused(&self, group: GroupIndex, pages: usize) {
        if let Some(record) = self.get(group) {
            record.count_writeback_refused(pages as u64);
        }
    }

    /// The number to enter for a slot of this group. `None` if the group was removed. The caller holds the lock of the
    /// slot's cluster. So a removal under way either has still to come to this cluster and will find the slot there, or
    /// is seen here and stopped.
    #[inline]
    pub(crate) fn index_for_slot(&self, id: GroupId) -> Option<GroupIndex> {
        let is_kept = || self.get(id.index).is_some_and(|group| group.keep(id.life));
        (id == GroupId::ROOT || is_kept()).then_some(id.index)
    }

    pub(crate) fn add(&self, name: &GroupName, limits: GroupLimits) -> Result<GroupId, GroupError> {
        let mut tree = self.tree.lock();
        if tree.numbers.contains_key(name) {
            return Err(GroupError::Exists { name: name.clone() });
        }
        let parent = match name.parent() {
            None => GroupIndex::ROOT,
            Some(parent) => {
                let number = tree.numbers.get(&parent).copied();
                number.ok_or(GroupError::NoParent { parent })?
            }
        };
        let index = tree.vacant_number()?;
        let group = self.ensure(index).ok_or(GroupError::NoMemory)?;
        tree.take(index);
        // Never 0, which means none. The same life comes again only after two thousand million groups.
        let life = (tree.lives % LIFE_MAX) + 1;
        tree.lives = life;
        group.begin(life, parent, limits);
        tree.numbers.insert(name.clone(), index);
        debug_assert_eq!(tree.is_valid(), Ok(()));
        Ok(GroupId { index, life })
    }

    pub(crate) fn find(&self, name: &GroupName) -> Option<GroupId> {
        let tree = self.tree.lock();
        let index = *tree.numbers.get(name)?;
        let life = self.get(index)?.life();
        Some(GroupId { index, life })
    }

    pub(crate) fn set_limits(&self, id: GroupId, limits: GroupLimits) -> Result<(), GroupError> {
        let _tree = self.begin_change(id)?;
        let group = self.alive(id).ok_or(GroupError::Gone)?;
        group.set_limits(limits);
        Ok(())
    }

    /// Takes the lock of the tree if the group can be changed.
    fn begin_change(&self, id: GroupId) -> Result<LockGuard<'_, Tree>, GroupError> {
        if id == GroupId::ROOT {
            return Err(GroupError::Root);
        }
        let tree = self.tree.lock();
        self.alive(id).ok_or(GroupError::Gone)?;
        Ok(tree)
    }

    /// Removes a group that has no slots and no charges. `count_slots` counts its slots, under the lock of each cluster
    /// in turn.
    pub(crate) fn remove(
        &self,
        id: GroupId,
        count_slots: impl FnOnce(GroupIndex) -> u64,
    ) -> Result<(), GroupError> {
        let mut tree = self.begin_change(id)?;
        let group = self.alive(id).ok_or(GroupError::Gone)?;
        let name = tree.name_of(id.index).ok_or(GroupError::Gone)?;
        if let Some(inside) = tree.inside(&name) {
            return Err(GroupError::HasGroups { inside });
        }
        group.begin_end(id.life);
        let pages = count_slots(id.index);
        // After the count of slots, because whoever frees a slot takes its charge back last.
        let is_charged = Resource::all().any(|of| group.charged(of) > 0);
        if pages > 0 || is_charged || !group.end(id.life) {
            group.keep(id.life);
            return Err(GroupError::InUse { pages });
        }
        tree.numbers.remove(&name);
        tree.vacant.push(id.index);
        debug_assert_eq!(tree.is_valid(), Ok(()));
        Ok(())
    }

    /// Figures of all groups except the root, by name. Each figure is right by itself.
    pub(crate) fn figures(&self) -> Vec<GroupFigures> {
        let tree = self.tree.lock();
        let numbers = tree.numbers.iter();
        let figures = numbers.filter_map(|(name, &index)| {
            let group = self.get(index)?;
            let life = group.life();
            Some(GroupFigures {
                id: GroupId { index, life },
                name: name.clone(),
                swap_bytes: group.charged(Resource::Swap),
                pool_bytes: group.charged(Resource::Pool),
                tier_bytes: group.tier_bytes(),
                limits: group.limits(),
                events: group.events(),
            })
        });
        figures.collect()
    }

    /// What is charged to a group now. Takes no lock.
    pub(crate) fn charges(&self, id: GroupId) -> GroupCharges {
        let group = self.alive(id);
        group.map_or_else(GroupCharges::default, |group| GroupCharges {
            swap_bytes: group.charged(Resource::Swap),
            pool_bytes: group.charged(Resource::Pool),
        })
    }

    /// Whether the group's limits permit another page to go to an area of one of these tiers. A hint.
    pub(crate) fn has_swap_room(&self, id: GroupId, tiers: TierSet) -> bool {
        let has_room = |group: &Group| group.has_room(Resource::Swap, PAGE_BYTES as u64);
        let may = |group: &Group| group.writes_back() && has_room(group);
        self.path(id.index).all(may) && !self.tiers_with_room(id.index, tiers).is_empty()
    }

    /// Those of `tiers` of which the group may have another page. A hint.
    pub(crate) fn tiers_with_room(&self, group: GroupIndex, tiers: TierSet) -> TierSet {
        self.path(group).fold(tiers, |tiers, record| {
            record.tiers_with_room(tiers, PAGE_BYTES as u64)
        })
    }

    /// Whether the group may have another page in this tier. A hint.
    pub(crate) fn has_tier_room(&self, group: GroupIndex, tier: TierId) -> bool {
        let bytes = PAGE_BYTES as u64;
        self.path(group)
            .all(|record| record.has_room(Resource::Tier(tier), bytes))
    }

    /// Bytes of the records.
    pub(crate) fn table_bytes(&self) -> usize {
        let made = self.tree.lock().made;
        made * size_of::<Group>() + made.div_ceil(LEAF_LEN) * size_of::<Leaf>()
    }
}

impl Tree {
    /// A number for a new group: one that was used before, or the first that never was.
    fn vacant_number(&self) -> Result<GroupIndex, GroupError> {
        if let Some(&index) = self.vacant.last() {
            return Ok(index);
        }
        // The root's number is 0.
        let next = self.made + 1;
        let number = u16::try_from(next).ok().filter(|_| next < GROUPS_MAX);
        number.map(GroupIndex).ok_or(GroupError::TooMany)
    }

    /// Takes the number that `vacant_number` has found.
    fn take(&mut self, index: GroupIndex) {
        if self.vacant.last() == Some(&index) {
            self.vacant.pop();
        } else {
            self.made += 1;
        }
    }

    fn name_of(&self, index: GroupIndex) -> Option<GroupName> {
        let mut numbers = self.numbers.iter();
        let (name, _) = numbers.find(|(_, number)| **number == index)?;
        Some(name.clone())
    }

    /// Some group inside the one of this name.
    fn inside(&self, name: &GroupName) -> Option<GroupName> {
        let mut names = self.numbers.keys();
        names.find(|other| other.is_inside(name)).cloned()
    }
}
