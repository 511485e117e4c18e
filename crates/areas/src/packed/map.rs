//! Which blocks are free.
//!
//! 64 neighbouring blocks are a group, and a word of the map. A request gets blocks of one group where it can: of the
//! next one that has enough of them free, else of a group that was never used, else from wherever some are left. So
//! most requests are written at once, and the file grows only when what it has is in use or in pieces.
//!
//! A group that has become empty again can be given back to the file system. Until then it is used like any other.
//!
//! Not for several threads at once: whoever has it holds a lock.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use vswap_sys::memory::{MemoryError, Words};

/// Blocks of a group: the bits of a word.
pub(super) const GROUP: usize = u64::BITS as usize;
/// Groups that are looked at for one with enough free blocks before one is used that never was: 64 MiB of them.
const LOOK_MAX: usize = 256;

/// Which blocks are free.
#[derive(Debug)]
pub(super) struct Map {
    /// A bit for each block: it is in use. Atomics only because the table is made of them.
    used: Words,
    /// A bit for each group: something was written to it since it was given back.
    written: Words,
    blocks: usize,
    free: usize,
    /// Groups that were ever used: all in front of this one.
    high: usize,
    /// The group in which the last blocks were found.
    cursor: usize,
    /// Groups that are empty and can be given back.
    empty: usize,
    /// Where the search for them goes on.
    hand: usize,
}

impl Map {
    /// A map of so many blocks, all of them free. It takes an eighth of a byte for each that was in use.
    pub(super) fn new(blocks: usize) -> Result<Map, MemoryError> {
        let groups = blocks.div_ceil(GROUP);
        Ok(Map {
            used: Words::new(groups)?,
            written: Words::new(groups.div_ceil(GROUP))?,
            blocks,
            free: blocks,
            high: 0,
            cursor: 0,
            empty: 0,
            hand: 0,
        })
    }

    pub(super) fn free(&self) -> usize {
        self.free
    }

    pub(super) fn in_use(&self) -> usize {
        self.blocks - self.free
    }

    /// Whether there is a group to be given back.
    pub(super) fn has_empty(&self) -> bool {
        self.empty > 0
    }

    /// Takes blocks, neighbouring ones where possible, and leaves at least `keep` free. None if there are too few.
    pub(super) fn take(&mut self, count: usize, keep: usize) -> Option<Vec<u32>> {
        if self.free < count + keep {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let most = GROUP.min(count - taken.len());
            let group = self.find(most);
            self.take_from(group, most, &mut taken);
            self.cursor = group;
        }
        Some(taken)
    }

    /// The group to take blocks from. There is a free block.
    fn find(&mut self, count: usize) -> usize {
        let has = |group: &usize, count: usize| self.free_in(*group).count_ones() as usize >= count;
        let from_cursor = || (self.cursor..self.high).chain(0..self.cursor.min(self.high));
        let near = from_cursor().take(LOOK_MAX).find(|group| has(group, count));
        if let Some(group) = near {
            return group;
        }
        if self.high < self.used.len() {
            self.high += 1;
            return self.high - 1;
        }
        from_cursor()
            .find(|group| has(group, 1))
            .unwrap_or(self.cursor)
    }

    /// Takes the first free blocks of a group.
    fn take_from(&mut self, group: usize, most: usize, taken: &mut Vec<u32>) {
        if self.is_empty_and_written(group) {
            self.empty -= 1;
        }
        let mut free = self.free_in(group);
        for _ in 0..most.min(free.count_ones() as usize) {
            let bit = free.trailing_zeros();
            free &= free - 1;
            self.used[group].fetch_or(1 << bit, Relaxed);
            // A block has 32 bits in a place, so there are no more.
            taken.push(u32::try_from(group * GROUP + bit as usize).unwrap_or(u32::MAX));
            self.free -= 1;
        }
        self.written[group / GROUP].fetch_or(1 << (group % GROUP), Relaxed);
    }

    /// Makes a block in use free.
    pub(super) fn give(&mut self, block: u32) {
        let (group, bit) = (block as usize / GROUP, block as usize % GROUP);
        let before = self.used[group].fetch_and(!(1 << bit), Relaxed);
        debug_assert!(before & (1 << bit) != 0, "block {block} was free");
        self.free += 1;
        if self.is_empty_and_written(group) {
            self.empty += 1;
        }
    }

    /// Takes empty groups out of use that are neighbours, at most so many. Returns their blocks, for `end_giving_back`.
    pub(super) fn begin_giving_back(&mut self, most: usize) -> Option<Range<usize>> {
        if !self.has_empty() {
            return None;
        }
        let from_hand = (self.hand..self.high).chain(0..self.hand.min(self.high));
        let first = from_hand
            .into_iter()
            .find(|&group| self.is_empty_and_written(group))?;
        let end = (first..self.high.min(first + most))
            .find(|&group| !self.is_empty_and_written(group))
            .unwrap_or(self.high.min(first + most));
        for group in first..end {
            let free = self.free_in(group);
            self.used[group].fetch_or(free, Relaxed);
            self.free -= free.count_ones() as usize;
            self.written[group / GROUP].fetch_and(!(1 << (group % GROUP)), Relaxed);
            self.empty -= 1;
        }
        self.hand = end;
        Some(first * GROUP..(end * GROUP).min(self.blocks))
    }

    /// These blocks can be used again.
    pub(super) fn end_giving_back(&mut self, blocks: &Range<usize>) {
        for group in blocks.start / GROUP..blocks.end.div_ceil(GROUP) {
            let there = self.there(group);
            self.used[group].store(0, Relaxed);
            self.free += there.count_ones() as usize;
        }
    }

    /// The bits of the blocks that there are in a group.
    fn there(&self, group: usize) -> u64 {
        match self.blocks - group * GROUP {
            all if all >= GROUP => u64::MAX,
            some => (1 << some) - 1,
        }
    }

    fn free_in(&self, group: usize) -> u64 {
        self.there(group) & !self.used[group].load(Relaxed)
    }

    fn is_empty_and_written(&self, group: usize) -> bool {
        let is_written = self.written[group / GROUP].load(Relaxed) & (1 << (group % GROUP)) != 0;
        is_written && self.used[group].load(Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(blocks: &[u32]) -> usize {
        blocks.chunk_by(|a, b| a + 1 == *b).count()
    }

    #[test]
    fn all_blocks_are_given_out_once_and_neighbours_together() {
        let mut map = Map::new(1000).unwrap();
        let mut all = Vec::new();
        while let Some(taken) = map.take(22, 5) {
            assert!(runs(&taken) <= 2 || map.free() < 300, "{taken:?}");
            all.extend(taken);
        }
        assert!(map.free() < 22 + 5 && map.free() >= 5);
        let free = map.free();
        assert_eq!(map.take(free + 1, 0), None);
        all.extend(map.take(free, 0).unwrap());
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<u32>>());
        all.iter().for_each(|&block| map.give(block));
        assert_eq!((map.free(), map.in_use()), (1000, 0));
    }

    #[test]
    fn the_file_grows_only_when_what_it_has_is_in_use() {
        let mut map = Map::new(100_000).unwrap();
        for _ in 0..1000 {
            let taken = map.take(30, 0).unwrap();
            assert!(*taken.last().unwrap() < 64);
            taken.into_iter().for_each(|block| map.give(block));
        }
        let many = map.take(200, 0).unwrap();
        assert!((1..=2).contains(&runs(&many)), "{many:?}");
    }

    #[test]
    fn empty_groups_are_given_back_once_and_together() {
        let mut map = Map::new(GROUP * 10 + 3).unwrap();
        assert_eq!(map.begin_giving_back(8), None);
        let taken = map.take(GROUP * 10 + 3, 0).unwrap();
        for &block in taken.iter().filter(|&&block| block != 64) {
            map.give(block);
        }
        assert_eq!(map.begin_giving_back(8), Some(0..64));
        assert_eq!(map.begin_giving_back(4), Some(128..384));
        assert_eq!(map.begin_giving_back(8), Some(384..643));
        assert_eq!((map.begin_giving_back(8), map.free()), (None, 63));
        for blocks in [0..64, 128..384, 384..643] {
            map.end_giving_back(&blocks);
        }
        assert_eq!((map.free(), map.has_empty()), (642, false));
        map.give(64);
        assert_eq!(map.begin_giving_back(8), Some(64..128));
    }
}
