//! A map of the memory of one process, block by block: how much of each block is in memory, and how long ago the rest
//! went out.
//!
//! Takes the space lock again and again, each time for some thousands of page words, and lets go of it while it asks
//! the engine for ages. So a map is not of one moment: a page that moves meanwhile is counted as it was seen. Nothing
//! is changed. Only memory that vswap watches is in it, which is none before memory is short.
//!
//! The age of a page that is out is in its shadow: how many pages of the run had gone before it. Nobody notes the time
//! of that. Whoever asks knows how many had gone by when ([`MapQuery::gone`]). A page in memory has no age, because a
//! page that nobody moves out tells nothing. It is *hot* if it came back early the last time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::base::kernel::pagemap::{Pagemap, Query, Region};
use crate::base::page_run::PAGE_BYTES;
use crate::layout::words::PageState;
use crate::life::run::Run;
use crate::policy::working_set;
use crate::space::Space;

/// How many ages are told apart.
pub const AGES: usize = 4;
/// Smallest block, in pages: 2 MiB, as many as page words lie together.
pub const BLOCK_PAGES_MIN: u64 = 512;

/// Most page words that are looked at under the lock at a time. That takes tens of microseconds.
const WORDS_MAX: u64 = 4096;
/// Most pages whose ages are asked for; of more than that every so many-th is. A shadow costs up to two cache misses.
const AGES_ASKED_MAX: u64 = 1 << 16;
/// Most pages that one walk through the page table finds, so that its lock is free again after less than a millisecond.
const WALK_PAGES_MAX: u64 = 1 << 14;
/// Most regions that one walk reports.
const WALK_REGIONS: usize = 64;
/// How long the whole look may take, waits for the lock included. What is left then is not in the map.
const LOOK_PATIENCE: Duration = Duration::from_millis(200);

/// Which map is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapQuery {
    /// The process.
    pub pid: u32,
    /// Pages of a block. Fewer than [`BLOCK_PAGES_MIN`] count as that.
    pub block_pages: u64,
    /// How many pages of the run had gone out at the ends of the ages, the youngest first ([`MemoryMap::pages_gone`] of
    /// earlier maps). What went later than the first is of the youngest age.
    pub gone: [u64; AGES - 1],
}

/// What was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryMap {
    /// How many pages of the run have gone out so far.
    pub pages_gone: u64,
    /// Blocks in which there is anything, by their first page divided by the pages of a block.
    pub blocks: BTreeMap<u64, Block>,
    /// The look took too long and was given up: memory is missing.
    pub cut_short: bool,
}

/// One block, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Block {
    /// In memory.
    pub resident: u32,
    /// Of these, pages that came back early the last time.
    pub hot: u32,
    /// Out, by age, the youngest first. Of more than 65,536 pages it is an estimate.
    pub out: [u32; AGES],
}

/// What a page word says, for a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Hot,
    Out(vswap_engine::Entry),
}

/// A map in the making.
#[derive(Debug)]
struct Making<'a> {
    run: &'a Run,
    query: MapQuery,
    map: MemoryMap,
    until: Instant,
}

/// Look at the process. None if it is not managed.
pub(crate) fn look(run: &Run, query: MapQuery) -> Option<MemoryMap> {
    let spaces = run.listening.spaces.all();
    // The newest space of a process comes last.
    let space = spaces
        .iter()
        .rfind(|space| space.pid() == Some(query.pid))?;
    let mut making = Making {
        run,
        query: MapQuery {
            block_pages: query.block_pages.max(BLOCK_PAGES_MIN),
            ..query
        },
        map: MemoryMap {
            pages_gone: run.serving.working_set.pages_gone(),
            ..MemoryMap::default()
        },
        until: Instant::now() + LOOK_PATIENCE,
    };
    if making.walk(space).is_none() {
        making.map.cut_short = true;
    }
    Some(making.map)
}

impl Making<'_> {
    /// None if it was given up before the end.
    fn walk(&mut self, space: &Space) -> Option<()> {
        let state = space.lock_by_chance(self.until)?;
        let ranges: Vec<_> = state.layout.registered.iter().collect();
        let swapped = state.layout.words.swapped();
        drop(state);
        let stride = swapped / AGES_ASKED_MAX + 1;
        let mut passed = 0;
        for range in ranges {
            if let Some(process) = space.process.get() {
                self.resident(&process.pagemap, range.clone())?;
            }
            let mut from = range.start;
            while from < range.end {
                let (seen, next) = words_of(space, from..range.end, self.until)?;
                for (page, seen) in seen {
                    self.note(page, seen, stride, &mut passed);
                }
                from = next;
                self.is_in_time()?;
            }
        }
        Some(())
    }

    fn resident(&mut self, pagemap: &Pagemap, range: Range<u64>) -> Option<()> {
        let query = Query {
            report: 0,
            pages_max: WALK_PAGES_MAX,
            ..Query::EVICTABLE
        };
        let mut regions = [Region::default(); WALK_REGIONS];
        let (mut start, end) = (range.start * PAGE_BYTES, range.end * PAGE_BYTES);
        while start < end {
            // A process that has ended has no memory.
            let Ok(scan) = pagemap.scan(start, end, &query, &mut regions) else {
                return Some(());
            };
            for region in regions.iter().take(scan.regions) {
                let pages = region.start / PAGE_BYTES..region.end / PAGE_BYTES;
                each_block(pages, self.query.block_pages, |block, pages| {
                    self.map.blocks.entry(block).or_default().resident += pages;
                });
            }
            start = scan.walk_end.max(start + PAGE_BYTES);
            self.is_in_time()?;
        }
        Some(())
    }

    /// Every `stride`-th page that is out counts for as many.
    fn note(&mut self, page: u64, seen: Seen, stride: u64, passed: &mut u64) {
        let block = page / self.query.block_pages;
        match seen {
            Seen::Hot => self.map.blocks.entry(block).or_default().hot += 1,
            Seen::Out(entry) => {
                *passed += 1;
                if !(*passed).is_multiple_of(stride) {
                    return;
                }
                let shadow = self.run.serving.engine.shadow(entry);
                let gone = shadow.map(working_set::gone_before);
                let age = age_of(gone, &self.query.gone);
                let out = &mut self.map.blocks.entry(block).or_default().out[age];
                *out = out.saturating_add(u32::try_from(stride).unwrap_or(u32::MAX));
            }
        }
    }

    fn is_in_time(&self) -> Option<()> {
        (Instant::now() < self.until).then_some(())
    }
}

/// What the next page words say, in address order, and where to go on. None if the lock is not to be had.
fn words_of(space: &Space, range: Range<u64>, until: Instant) -> Option<(Vec<(u64, Seen)>, u64)> {
    let state = space.lock_by_chance(until)?;
    let words = &state.layout.words;
    let Some((first, _)) = words.iter(range.clone()).next() else {
        return Some((Vec::new(), range.end));
    };
    let end = range.end.min(first.saturating_add(WORDS_MAX));
    let seen = words
        .iter(first..end)
        .filter_map(|(page, word)| match word.state() {
            PageState::Swapped(entry) => Some((page, Seen::Out(entry))),
            _ if word.heat().is_early() => Some((page, Seen::Hot)),
            _ => None,
        });
    Some((seen.collect(), end))
}

/// The age of a page that so many had gone before. What is not known is old.
fn age_of(gone: Option<u64>, ends: &[u64; AGES - 1]) -> usize {
    let is_younger = |end: &u64| gone.is_some_and(|gone| gone >= *end);
    ends.iter().position(is_younger).unwrap_or(AGES - 1)
}

/// Cuts pages at the borders of blocks.
fn each_block(mut pages: Range<u64>, block_pages: u64, mut note: impl FnMut(u64, u32)) {
    while pages.start < pages.end {
        let block = pages.start / block_pages;
        let end = pages.end.min((block + 1).saturating_mul(block_pages));
        note(block, u32::try_from(end - pages.start).unwrap_or(u32::MAX));
        pages.start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_in_the_blocks_that_they_lie_in() {
        let mut found = Vec::new();
        each_block(510..1537, 512, |block, pages| found.push((block, pages)));
        assert_eq!(found, [(0, 2), (1, 512), (2, 512), (3, 1)]);
        each_block(7..7, 512, |_, _| panic!("there is no page"));
    }

    #[test]
    fn ages_are_told_apart_by_how_many_had_gone() {
        let ends = [1000, 500, 10];
        let ages = [1200, 1000, 999, 500, 10, 9, 0].map(|gone| age_of(Some(gone), &ends));
        assert_eq!(ages, [0, 0, 1, 1, 2, 3, 3]);
        assert_eq!(age_of(None, &ends), 3);
        assert_eq!(age_of(Some(0), &[0; 3]), 0, "nobody has looked for long");
    }
}
