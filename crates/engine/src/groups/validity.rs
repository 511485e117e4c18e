//! Checks of what holds for groups.

use std::collections::HashMap;

use super::group::Resource;
use super::{GroupIndex, Groups, Tree};
use crate::base::pages::PAGE_BYTES;
use crate::words::tier::TierId;

/// Slots in use, by group and tier.
pub(crate) type SlotsOf = HashMap<(GroupIndex, TierId), u64>;

impl Tree {
    /// Checks that every number ever given has a group or is vacant. Cheap.
    pub(super) fn is_valid(&self) -> Result<(), String> {
        let (in_use, vacant) = (self.numbers.len(), self.vacant.len());
        if in_use + vacant == self.made {
            Ok(())
        } else {
            Err(format!(
                "{} numbers were made, {in_use} are in use, {vacant} vacant",
                self.made
            ))
        }
    }
}

impl Groups {
    /// Checks that each group is inside the one that its name says and has a number of its own. That it is charged for
    /// its own `slots` and what those inside it are charged, in each tier and in all; and in the pool at least for what
    /// those inside it are. Needs that nobody is being charged meanwhile.
    pub(crate) fn is_valid(&self, slots: &SlotsOf) -> Result<(), String> {
        let tree = self.tree.lock();
        tree.is_valid()?;
        let mut numbers: Vec<u16> = tree.numbers.values().map(|index| index.raw()).collect();
        numbers.extend(tree.vacant.iter().map(|index| index.raw()));
        numbers.sort_unstable();
        if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(format!("a number is given twice: {numbers:?}"));
        }
        // What is charged to the groups inside each group, by its number.
        let mut inside: HashMap<(GroupIndex, Resource), u64> = HashMap::new();
        for group in tree.numbers.values().filter_map(|&index| self.get(index)) {
            for of in Resource::all() {
                *inside.entry((group.parent(), of)).or_default() += group.charged(of);
            }
        }
        for (name, &index) in &tree.numbers {
            let group = self.get(index).ok_or(format!("{name} has no record"))?;
            if group.life() == 0 {
                return Err(format!("{name} is none"));
            }
            let parent = name.parent().map_or(Some(GroupIndex::ROOT), |parent| {
                tree.numbers.get(&parent).copied()
            });
            if parent != Some(group.parent()) {
                return Err(format!("{name} is in {:?}", group.parent()));
            }
            for of in Resource::all() {
                let (charged, own) = (group.charged(of), own_bytes(slots, index, of));
                let sum = inside.get(&(index, of)).copied().unwrap_or_default();
                let is_right = match of {
                    Resource::Pool => charged >= sum,
                    Resource::Swap | Resource::Tier(_) => charged == sum + own,
                };
                if !is_right {
                    return Err(format!(
                        "{name}: {of:?} {charged}, {sum} inside it, {own} of its own"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// What a group's own slots are to be charged for.
fn own_bytes(slots: &SlotsOf, group: GroupIndex, of: Resource) -> u64 {
    let counts = slots.iter().filter(|((owner, tier), _)| {
        let is_of = match of {
            Resource::Swap => true,
            Resource::Tier(wanted) => *tier == wanted,
            Resource::Pool => false,
        };
        *owner == group && is_of
    });
    counts.map(|(_, slots)| slots * PAGE_BYTES as u64).sum()
}
