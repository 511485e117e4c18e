//! The hand of an evictor: it decides which pages go out next.
//!
//! It sweeps in address order. A page in use faults back just behind the hand and is then safe for a whole lap. Only
//! the evictor's thread uses it. It picks with the space lock held.
//!
//! Where hardly anything can be moved, a lap is over at once. Two pages that one instruction needs would then push each
//! other out for ever: each comes back, and leaves before the thread runs again. So laps count only with the time, and
//! what is spared in this one stays, even if there is nothing else. Then the faults that wait are admitted against the
//! limit. MGLRU of the kernel has `min_ttl_ms` for this, and kills somebody in the end.

use std::ops::Range;
use std::time::{Duration, Instant};

use vswap_sys::process::task;

use super::WINDOW_PAGES;
use crate::base::kernel::clock;
use crate::base::kernel::pagemap::{Query, Region};
use crate::base::page_run::{PAGE_BYTES, runs_of};
use crate::calls::thread_exit::Known;
use crate::run::stats::Stats;
use crate::space::process::Process;
use crate::space::{Space, State};

/// The least time of a lap. A thread whose page has come runs again within it, unless the machine is very busy.
const LAP_LEAST: Duration = Duration::from_millis(1);
/// How long to look at all threads again when some seem not to have started yet.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

/// Where an evictor is in its lap.
#[derive(Debug)]
pub struct Hand<'a> {
    process: &'a Process,
    /// The next window is looked for from this page on.
    at: u64,
    /// The hand has come around since somebody cleared this.
    pub wrapped: bool,
    /// First of the pages that were busy at the last try. Pages shared after a fork can be made movable, pages pinned
    /// for I/O cannot.
    tried_busy: Option<u64>,
    /// Pages passed over and not yet counted in the figures.
    spared: u64,
    /// When one pick went all around and pages aged in it.
    came_around: Option<Instant>,
    /// Pages age in this pick.
    ages: bool,
    /// Everything is to leave: no page is spared for its age.
    pub hurries: bool,
    /// Set while threads have to be looked at before each window: when that began, and those that are known.
    looks: Option<(Instant, Known)>,
}

impl<'a> Hand<'a> {
    /// A hand at the beginning of a lap.
    pub fn new(process: &'a Process) -> Hand<'a> {
        Hand {
            process,
            at: 0,
            wrapped: true,
            tried_busy: None,
            spared: 0,
            came_around: None,
            ages: true,
            hurries: false,
            looks: Some((Instant::now(), Known::default())),
        }
    }

    /// Pin the pages that threads need when they end, before pages are picked. The pager looks for the first threads
    /// itself and is told of later ones. The space lock is held only for what was found.
    pub fn note_pins(&mut self, space: &Space) {
        let mut ended = space.lock().layout.pinned.ask_next();
        ended.retain(|tid| task::has_ended(*tid));
        let heads = self.look_at_threads();
        if ended.is_empty() && heads.is_empty() {
            return;
        }
        let pinned = &mut space.lock().layout.pinned;
        pinned.forget_ended(&ended);
        heads.into_iter().for_each(|head| pinned.add(head));
    }

    /// What is needed by threads that were not known at the last look.
    fn look_at_threads(&mut self) -> Vec<u64> {
        let Some((since, known)) = &mut self.looks else {
            return Vec::new();
        };
        let (heads, are_all_known) = known.look(self.process);
        if are_all_known || since.elapsed() > LOOK_PATIENCE {
            self.looks = None;
        }
        heads
    }

    /// Up to `most` evictable pages from the hand on, in address order, going once around at most. Spared pages are
    /// passed over and have one lap less afterwards. If there are no others, spared pages are taken; but not so soon
    /// after the last lap that who needs them cannot have run meanwhile.
    pub fn pick(&mut self, stats: &Stats, state: &mut State, most: usize) -> Vec<u64> {
        let is_soon = |at| clock::now().saturating_duration_since(at) < LAP_LEAST;
        self.ages = self.hurries || !self.came_around.is_some_and(is_soon);
        let pages = self.lap(state, most, true);
        let spared = std::mem::take(&mut self.spared);
        stats.pages_spared.add(spared);
        if pages.is_empty() && spared > 0 && self.ages {
            return self.lap(state, most, false);
        }
        pages
    }

    fn lap(&mut self, state: &mut State, most: usize, spares: bool) -> Vec<u64> {
        let mut pages = Vec::with_capacity(most);
        let hand = self.at;
        for part in [hand..u64::MAX / PAGE_BYTES, 0..hand] {
            let mut from = part.start;
            // One at a time: there may be a million, and the window is mostly full within the first.
            while let Some(range) = next_in(state, from..part.end) {
                if range.start < hand {
                    self.wrapped = true;
                    self.tried_busy = None;
                }
                from = range.start;
                while from < range.end && pages.len() < most {
                    let before = pages.len();
                    from = self.scan(state, from, range.end, most, &mut pages);
                    if spares {
                        self.spare(state, &mut pages, before);
                    }
                }
                if pages.len() >= most {
                    self.at = from;
                    return pages;
                }
            }
        }
        self.wrapped = true;
        if self.ages {
            self.came_around = Some(clock::now());
        }
        self.at = pages.last().map_or(0, |page| page + 1);
        pages
    }

    /// Leave out the spared ones of `pages` from index `from` on, for this lap.
    fn spare(&mut self, state: &mut State, pages: &mut Vec<u64>, from: usize) {
        let words = &mut state.layout.words;
        let mut kept = from;
        for at in from..pages.len() {
            let word = words.get(pages[at]);
            if word.is_spared() {
                if self.ages {
                    words.set(pages[at], word.swept());
                }
                self.spared += 1;
            } else {
                pages[kept] = pages[at];
                kept += 1;
            }
        }
        pages.truncate(kept);
    }

    /// Those of `pages` (ascending) that can be evicted.
    pub fn choose(&mut self, state: &mut State, pages: &[u64]) -> Vec<u64> {
        let mut chosen = Vec::with_capacity(pages.len());
        for run in runs_of(pages.iter().copied()) {
            let range = run.range();
            for known in state.layout.registered.overlaps(range) {
                let mut from = known.start;
                while from < known.end && chosen.len() < pages.len() {
                    from = self.scan(state, from, known.end, pages.len(), &mut chosen);
                }
            }
        }
        chosen
    }

    /// Go back to `page`.
    pub fn return_to(&mut self, page: u64) {
        self.at = page;
    }

    /// Busy pages get one second chance in each lap: the hand goes back to the `first` of them after they were made
    /// exclusive. False if they had their chance.
    pub fn retry_busy(&mut self, first: u64) -> bool {
        if self.tried_busy == Some(first) {
            return false;
        }
        self.tried_busy = Some(first);
        self.at = first;
        true
    }

    /// Add evictable pages of [from, end) to `pages`. Returns where to go on.
    fn scan(&self, state: &State, from: u64, end: u64, most: usize, pages: &mut Vec<u64>) -> u64 {
        let mut regions = [Region::default(); WINDOW_PAGES];
        let query = Query {
            pages_max: (most - pages.len()) as u64,
            ..Query::EVICTABLE
        };
        let pagemap = &self.process.pagemap;
        let Ok(scan) = pagemap.scan(from * PAGE_BYTES, end * PAGE_BYTES, &query, &mut regions)
        else {
            return end;
        };
        let own = self.process.agent.own_pages.range();
        let found = regions.iter().take(scan.regions);
        pages.extend(
            found
                .flat_map(|r| r.start / PAGE_BYTES..r.end / PAGE_BYTES)
                .filter(|page| {
                    let word = state.layout.words.get(*page);
                    let layout = &state.layout;
                    !word.is_claimed()
                        && !layout.is_stale(*page)
                        && !layout.pinned.contains(*page)
                        && !own.contains(page)
                }),
        );
        (scan.walk_end / PAGE_BYTES).max(from + 1)
    }
}

/// The first registered range in there.
fn next_in(state: &State, part: Range<u64>) -> Option<Range<u64>> {
    state.layout.registered.overlaps(part).next()
}
