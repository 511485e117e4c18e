//! Checks of what holds for groups.

use std::collections::HashMap;

use super::group::Resource;
use super::{GroupIndex, Groups, Tree};

const RESOURCES: [Resource; 2] = [Resource::Swap, Resource::Pool];

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
    /// Checks that each group is inside the one that its name says, has a number of its own, and is charged at least
    /// what those inside it are charged. Needs that nobody is being charged meanwhile.
    pub(crate) fn is_valid(&self) -> Result<(), String> {
        let tree = self.tree.lock();
        tree.is_valid()?;
        let mut numbers: Vec<u16> = tree.numbers.values().map(|index| index.raw()).collect();
        numbers.extend(tree.vacant.iter().map(|index| index.raw()));
        numbers.sort_unstable();
        if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(format!("a number is given twice: {numbers:?}"));
        }
        // What is charged to the groups inside each group, by its number.
        let mut inside: HashMap<u16, [u64; 2]> = HashMap::new();
        for group in tree.numbers.values().filter_map(|&index| self.get(index)) {
            let sums = inside.entry(group.parent().raw()).or_default();
            for (sum, of) in sums.iter_mut().zip(RESOURCES) {
                *sum += group.charged(of);
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
            let sums = inside.get(&index.raw()).copied().unwrap_or_default();
            for (sum, of) in sums.into_iter().zip(RESOURCES) {
                let charged = group.charged(of);
                if sum > charged {
                    return Err(format!("{name}: {of:?} {charged}, {sum} inside it"));
                }
            }
        }
        Ok(())
    }
}
