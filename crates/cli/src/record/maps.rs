//! The memory of the largest processes over time, block by block: what of it is in memory, and how long ago the rest
//! went out.
//!
//! Bounded in both directions: looks that are too many are thinned out, and blocks that are too many become twice as
//! large.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use vswap_pager::memory_map::{AGES, BLOCK_PAGES_MIN, Block};
use vswap_pager::{MapQuery, MemoryMap, ProcessStatus};

use crate::record::thinned::Thinned;

/// Most looks that are kept, and pause between the first ones.
const LOOKS_MAX: usize = 96;
const LOOK_PACE: Duration = Duration::from_secs(1);
/// Processes that are looked at each time, the largest.
const PROCESSES_AT_A_TIME: usize = 2;
/// Most processes that are looked at in all: the first ones stay while others come and go.
const PROCESSES_MAX: usize = 4;
/// Most blocks of a process: rows that a person can still tell apart.
const BLOCKS_MAX: usize = 64;
/// A process with less memory than this is not looked at, in bytes.
const PROCESS_BYTES_LEAST: u64 = 4 << 20;
/// Where ages end, in seconds. What has been out for longer than the last one is of the oldest age.
pub const AGE_ENDS_S: [u32; AGES - 1] = [10, 60, 600];

/// All looks.
#[derive(Debug, Clone)]
pub struct Maps {
    looks: Thinned<Look>,
    block_pages: u64,
    names: BTreeMap<u32, String>,
    /// How many pages of the run had gone out by when, from before the oldest age's beginning on.
    gone: VecDeque<(f64, u64)>,
    /// Looks at a process that took too long and were given up. Half of a map would be a wrong one.
    given_up: u64,
}

/// One look.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// Seconds since the program was started.
    pub seconds: f64,
    /// The blocks of each process that was looked at, by their first page divided by the pages of a block.
    pub blocks: BTreeMap<u32, BTreeMap<u64, Block>>,
}

impl Default for Maps {
    fn default() -> Maps {
        Maps {
            looks: Thinned::new(LOOKS_MAX, LOOK_PACE),
            block_pages: BLOCK_PAGES_MIN,
            names: BTreeMap::new(),
            gone: VecDeque::new(),
            given_up: 0,
        }
    }
}

impl Maps {
    /// How far apart looks are to come.
    pub fn pace(&self) -> Duration {
        self.looks.pace()
    }

    /// Looks at the largest of the living processes. False if nothing of them is watched yet.
    pub fn look(
        &mut self,
        living: &[ProcessStatus],
        seconds: f64,
        map: impl Fn(MapQuery) -> Option<MemoryMap>,
    ) -> bool {
        let mut blocks = BTreeMap::new();
        for process in living.iter().filter(|process| is_large(process)) {
            let is_known = self.names.contains_key(&process.pid);
            if blocks.len() >= PROCESSES_AT_A_TIME
                || !(is_known || self.names.len() < PROCESSES_MAX)
            {
                continue;
            }
            let query = MapQuery {
                pid: process.pid,
                block_pages: self.block_pages,
                gone: AGE_ENDS_S.map(|end| self.gone_at(seconds - f64::from(end))),
            };
            let Some(map) = map(query) else { continue };
            self.note_gone(seconds, map.pages_gone);
            self.given_up += u64::from(map.cut_short);
            // Nothing of it is watched yet.
            if map.blocks.is_empty() || map.cut_short {
                continue;
            }
            self.names.insert(process.pid, process.name.clone());
            blocks.insert(process.pid, map.blocks);
        }
        let is_something = !blocks.is_empty();
        if is_something {
            self.looks.push(Look { seconds, blocks });
            self.fit();
        }
        is_something
    }

    /// In order.
    pub fn looks(&self) -> &[Look] {
        self.looks.items()
    }

    /// The processes that were looked at, with the names that they had last.
    pub fn names(&self) -> &BTreeMap<u32, String> {
        &self.names
    }

    /// How many looks at a process took too long and are not here.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Pages of a block.
    pub fn block_pages(&self) -> u64 {
        self.block_pages
    }

    /// All blocks of a process in which there ever was anything, in order.
    pub fn rows(&self, pid: u32) -> BTreeSet<u64> {
        let of_process = |look: &Look| look.blocks.get(&pid).map(BTreeMap::len);
        debug_assert!(
            self.looks()
                .iter()
                .filter_map(of_process)
                .all(|len| len <= BLOCKS_MAX)
        );
        let blocks = self.looks().iter().filter_map(|look| look.blocks.get(&pid));
        blocks.flat_map(BTreeMap::keys).copied().collect()
    }

    /// How many pages had gone out at a moment. 0 before the first look.
    fn gone_at(&self, seconds: f64) -> u64 {
        let before = self.gone.iter().rfind(|(at, _)| *at <= seconds);
        before.map_or(0, |(_, gone)| *gone)
    }

    fn note_gone(&mut self, seconds: f64, gone: u64) {
        self.gone.push_back((seconds, gone));
        let oldest = seconds - f64::from(AGE_ENDS_S[AGES - 2]);
        while self.gone.get(1).is_some_and(|(at, _)| *at <= oldest) {
            self.gone.pop_front();
        }
    }

    /// Makes blocks larger until there are few enough.
    fn fit(&mut self) {
        let pids: Vec<u32> = self.names.keys().copied().collect();
        while pids.iter().any(|pid| self.block_count(*pid) > BLOCKS_MAX) {
            self.block_pages *= 2;
            for look in self.looks.items_mut() {
                for blocks in look.blocks.values_mut() {
                    *blocks = doubled(blocks);
                }
            }
        }
    }

    fn block_count(&self, pid: u32) -> usize {
        let blocks = self.looks().iter().filter_map(|look| look.blocks.get(&pid));
        let all: BTreeSet<u64> = blocks.flat_map(BTreeMap::keys).copied().collect();
        all.len()
    }
}

fn is_large(process: &ProcessStatus) -> bool {
    let swapped = process.swapped_pages.unwrap_or_default();
    let resident = process.resident_bytes.unwrap_or_default();
    process.managed
        && resident + swapped * crate::output::figures::PAGE_BYTES >= PROCESS_BYTES_LEAST
}

/// The same with blocks that are twice as large.
fn doubled(blocks: &BTreeMap<u64, Block>) -> BTreeMap<u64, Block> {
    let mut larger: BTreeMap<u64, Block> = BTreeMap::new();
    for (place, block) in blocks {
        let sum = larger.entry(place / 2).or_default();
        sum.resident = sum.resident.saturating_add(block.resident);
        sum.hot = sum.hot.saturating_add(block.hot);
        for (all, more) in sum.out.iter_mut().zip(block.out) {
            *all = all.saturating_add(more);
        }
    }
    larger
}

#[cfg(test)]
mod tests {
    use super::*;

    fn living(pid: u32, bytes: u64) -> ProcessStatus {
        ProcessStatus {
            pid,
            name: format!("p{pid}"),
            managed: true,
            resident_bytes: Some(bytes),
            ..ProcessStatus::default()
        }
    }

    fn map_of(places: impl Iterator<Item = u64>, pages_gone: u64) -> MemoryMap {
        let block = Block {
            resident: 1,
            hot: 1,
            out: [1; AGES],
        };
        MemoryMap {
            pages_gone,
            blocks: places.map(|place| (place, block)).collect(),
            cut_short: false,
        }
    }

    #[test]
    fn blocks_grow_until_they_are_few_and_nothing_is_lost() {
        let mut maps = Maps::default();
        let process = [living(7, 1 << 30)];
        for seconds in 0..250_u32 {
            let places = 0..u64::from(seconds * 2 + 1);
            maps.look(&process, f64::from(seconds), |query| {
                let scale = query.block_pages / BLOCK_PAGES_MIN;
                let mut map = map_of(places.clone(), 0);
                for _ in 0..scale.trailing_zeros() {
                    map.blocks = doubled(&map.blocks);
                }
                Some(map)
            });
            assert!(maps.looks().len() <= LOOKS_MAX && maps.rows(7).len() <= BLOCKS_MAX);
        }
        assert_eq!(maps.block_pages(), 8 * BLOCK_PAGES_MIN);
        let last = maps.looks().last().expect("a look");
        let pages: u32 = last.blocks[&7].values().map(|block| block.out[3]).sum();
        assert_eq!(pages, 499);
    }

    #[test]
    fn only_the_largest_are_looked_at_and_few_in_all() {
        let mut maps = Maps::default();
        for round in 0..10 {
            let processes: Vec<ProcessStatus> =
                (0..5).map(|n| living(5 * round + n, 1 << 30)).collect();
            let unmanaged = ProcessStatus {
                managed: false,
                ..living(999, 1 << 30)
            };
            let small = living(998, 1 << 20);
            let all = [&[unmanaged, small], processes.as_slice()].concat();
            maps.look(&all, f64::from(round), |_| Some(map_of(0..1, 0)));
        }
        let pids: Vec<u32> = maps.names().keys().copied().collect();
        assert_eq!(pids, [0, 1, 5, 6]);
    }

    #[test]
    fn memory_that_nobody_watches_and_half_a_map_are_no_looks() {
        let mut maps = Maps::default();
        maps.look(&[living(7, 1 << 30)], 0.0, |_| Some(MemoryMap::default()));
        maps.look(&[living(7, 1 << 30)], 1.0, |_| None);
        maps.look(&[living(7, 1 << 30)], 2.0, |_| {
            let half = map_of(0..1, 0);
            Some(MemoryMap {
                cut_short: true,
                ..half
            })
        });
        assert!(maps.looks().is_empty() && maps.names().is_empty());
        assert_eq!(maps.given_up(), 1);
    }

    #[test]
    fn ages_end_where_the_clock_was_so_long_ago() {
        let mut maps = Maps::default();
        let asked = std::cell::Cell::new([0; AGES - 1]);
        for second in 0..2000_u32 {
            maps.look(&[living(7, 1 << 30)], f64::from(second), |query| {
                asked.set(query.gone);
                Some(map_of(0..1, 100 * u64::from(second)))
            });
        }
        assert_eq!(asked.get(), [1989, 1939, 1399].map(|second| 100 * second));
        assert!(maps.gone.len() < 610, "{}", maps.gone.len());
    }
}
