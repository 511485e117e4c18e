//! Groups of an arena: whose each page is, so that pool and areas can be limited for some of the memory.
//!
//! A group belongs to what is allocated, from then until it is freed, and lasts as long as the arena. The engine knows
//! groups by an id. A page has a byte that says which of the arena's groups it is of: 0 for the root, which has no
//! limits and is all that an arena without groups has.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use vswap_engine::{Engine, GroupId, GroupLimits, GroupName};
use vswap_sys::memory::{MemoryError, Words};
use vswap_sys::sigbus::Masked;

use crate::error::ArenaError;

/// Bytes of pages in a word.
const PAGES_PER_WORD: usize = 8;
/// As many as a byte tells apart, less the root.
const GROUPS_MOST: usize = u8::MAX as usize;

/// A group of the arena, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct GroupNumber(u8);

impl GroupNumber {
    /// The group without limits that all others are in.
    pub const ROOT: GroupNumber = GroupNumber(0);

    /// Its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    #[cfg(test)]
    pub fn of_test(number: u8) -> GroupNumber {
        GroupNumber(number)
    }
}

/// The groups, and whose each page is.
#[derive(Debug)]
pub struct Groups {
    /// A byte for each page.
    of_pages: Words,
    /// Those that were made, by number less one.
    /// Held while the engine makes or limits one, so outside of its locks.
    made: Mutex<Vec<(GroupName, GroupId)>>,
    /// As many as were made, for whoever must not wait for the lock.
    count: AtomicUsize,
}

impl Groups {
    /// For so many pages, all of the root.
    ///
    /// # Errors
    /// No memory.
    pub fn new(pages: usize) -> Result<Groups, MemoryError> {
        Ok(Groups {
            of_pages: Words::new(pages.div_ceil(PAGES_PER_WORD))?,
            made: Mutex::default(),
            count: AtomicUsize::new(0),
        })
    }

    /// How many there are beside the root.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Makes a group, or gives one that there is these limits. Groups around it are made without limits. Takes locks of
    /// the engine, with signals blocked.
    ///
    /// # Errors
    /// `TooManyGroups`, `Group`. Groups around it may have been made.
    pub fn make(
        &self,
        engine: &Engine,
        name: &GroupName,
        limits: GroupLimits,
    ) -> Result<GroupNumber, ArenaError> {
        let _masked = Masked::new();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = made.iter().position(|(known, _)| known == name) {
            engine.set_group_limits(made[at].1, limits)?;
            return Ok(number(at));
        }
        for part in name.with_parents() {
            if made.iter().any(|(known, _)| *known == part) {
                continue;
            }
            if made.len() >= GROUPS_MOST {
                return Err(ArenaError::TooManyGroups { most: GROUPS_MOST });
            }
            let limits = if part == *name {
                limits
            } else {
                GroupLimits::default()
            };
            let id = engine.add_group(&part, limits)?;
            made.push((part, id));
            self.count.store(made.len(), Ordering::Release);
        }
        Ok(number(made.len() - 1))
    }

    /// The engine's ids by number, the root's first. Allocates.
    pub fn ids(&self) -> Vec<GroupId> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let made = made.iter().map(|(_, id)| *id);
        std::iter::once(GroupId::ROOT).chain(made).collect()
    }

    /// The engine's id of a group.
    pub fn id(&self, group: GroupNumber) -> GroupId {
        let _masked = Masked::new();
        let ids = self.ids();
        ids.get(group.index()).copied().unwrap_or(GroupId::ROOT)
    }

    /// Pages that somebody has just taken are of this group. Relaxed is enough: he touches them afterwards, and whoever
    /// asks for the group has seen by the page's word that they were touched.
    pub fn set(&self, pages: Range<usize>, group: GroupNumber) {
        if group == GroupNumber::ROOT && self.count() == 0 {
            return;
        }
        for page in pages {
            let shift = page % PAGES_PER_WORD * 8;
            let word = &self.of_pages[page / PAGES_PER_WORD];
            // Other bytes of the word change at the same time. This one has one owner.
            let old = (word.load(Ordering::Relaxed) >> shift) & u64::from(u8::MAX);
            let change = (old ^ u64::from(group.0)) << shift;
            if change != 0 {
                word.fetch_xor(change, Ordering::Relaxed);
            }
        }
    }

    /// The group of a page. Who takes the page meanwhile changes it.
    pub fn of(&self, page: usize) -> GroupNumber {
        let word = self.of_pages[page / PAGES_PER_WORD].load(Ordering::Relaxed);
        GroupNumber(word.to_le_bytes()[page % PAGES_PER_WORD])
    }
}

fn number(at: usize) -> GroupNumber {
    GroupNumber(u8::try_from(at + 1).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vswap_engine::{Codec, Config, HeapPages};

    use super::*;

    fn engine() -> Engine {
        let config = Config {
            frames: 1,
            cpus: 1,
            codec: Codec::Lz4,
            pool_limit_bytes: 0,
            checksums: false,
        };
        Engine::new(&config, Arc::new(HeapPages::new())).expect("memory")
    }

    #[test]
    fn pages_are_of_whom_they_were_given_to() {
        let (engine, groups) = (engine(), Groups::new(100).expect("memory"));
        let make = |name: &str| {
            let name = name.parse().expect("a name");
            groups.make(&engine, &name, GroupLimits::default())
        };
        let inner = make("web/cache").expect("made");
        let outer = make("web").expect("there already");
        assert_eq!((outer.index(), inner.index()), (1, 2));
        assert_eq!(make("web/cache").expect("there"), inner);
        assert_eq!(engine.groups().len(), 2);
        groups.set(3..20, inner);
        groups.set(5..6, outer);
        groups.set(10..12, GroupNumber::ROOT);
        let seen: Vec<usize> = (0..21).map(|page| groups.of(page).index()).collect();
        let expected = [
            0, 0, 0, 2, 2, 1, 2, 2, 2, 2, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 0,
        ];
        assert_eq!(seen, expected);
        assert_eq!(groups.ids().len(), 3);
    }

    #[test]
    fn there_are_no_more_than_a_byte_tells_apart() {
        let (engine, groups) = (engine(), Groups::new(1).expect("memory"));
        let make = |at: usize| {
            let name = format!("group-{at}").parse().expect("a name");
            groups.make(&engine, &name, GroupLimits::default())
        };
        for at in 1..=GROUPS_MOST {
            assert_eq!(make(at).expect("room").index(), at);
        }
        assert!(matches!(make(0), Err(ArenaError::TooManyGroups { .. })));
        assert_eq!(make(7).expect("there already").index(), 7);
    }
}
