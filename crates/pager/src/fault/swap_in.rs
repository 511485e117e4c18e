//! Bringing pages back: the page of a fault, and the pages behind it when the fault continues a stream.
//!
//! Called with the space lock held. The lock is released while entries are read and while pages are given. Meanwhile a
//! claim in the layout keeps each page in place, and a layout event cancels the claim. Pages in an area are left to the
//! threads of `area_reads`, so that no reader of faults waits for a disk. A lone page there brings its neighbours along
//! (`read_around.rs`).

use std::sync::atomic::Ordering;

use vswap_engine::{Entry, Page, Shadow, SwapIn, SwapInError};

use crate::base::kernel::uffd::{UffdError, copy_mode};
use crate::base::page_run::PAGE_BYTES;
use crate::fault::{FaultServer, Outcome, fill, lost};
use crate::layout::words::PageWord;
use crate::policy::working_set::heat_of;
use crate::run::area_queue::{AreaQueue, Lies};
use crate::space::fault::Fault;
use crate::space::giving::SharedGuard;
use crate::space::incoming::{Incoming, claim_swapped, claim_window};
use crate::space::wait::Wait;
use crate::space::{AREA_WINDOW_PAGES_MAX, Space, State, WINDOW_PAGES_MAX, marks};

/// Windows to read ahead of a long stream. Together with the fault's own these requests keep a disk busy.
const WINDOWS_AHEAD: u64 = 6;

/// Why pages come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody wants them, or will.
    Wanted,
    /// The run has been parked and goes on. That they come back soon says nothing about them, and they will go to where
    /// they were when it is parked again: entries in areas are kept.
    Woken,
}

/// What becomes of entries whose pages come back.
#[derive(Debug, Clone, Copy)]
struct Return {
    why: Why,
    /// They stay behind the pages.
    keep: bool,
}

/// The result of reading the pages of a window.
#[derive(Debug, Default)]
struct Read {
    /// Pages read, from the first on.
    good: usize,
    /// Why the page behind them could not be read.
    error: Option<SwapInError>,
    /// Pages that had been read ahead into the swap cache.
    hits: u64,
}

impl<'a> FaultServer<'a> {
    /// Bring a page back, and the pages behind it when the fault continues a stream.
    pub(crate) fn swap_in<'g>(
        &mut self,
        mut state: SharedGuard<'g>,
        fault: &Fault,
        entry: Entry,
    ) -> (SharedGuard<'g>, Outcome)
    where
        'a: 'g,
    {
        let begins = self.lies(entry);
        let begins_there = begins > Lies::Memory;
        let most = if begins_there {
            AREA_WINDOW_PAGES_MAX
        } else {
            WINDOW_PAGES_MAX
        };
        let window = state.swap_ins.window_up_to(fault.page, most);
        let incoming = claim_window(&mut state, fault.page, entry, window);
        // The first page's answer is taken from above: the page may move meanwhile, and the window was chosen by that
        // answer.
        let others = incoming.iter().skip(1).map(|page| self.lies(page.entry));
        let farthest = others.fold(begins, Ord::max);
        if let Some(queue) = self.serving.area_queues.of(farthest) {
            let around = if begins_there && incoming.len() == 1 {
                state.read_around.window(fault.page, self.around_max(entry))
            } else {
                1
            };
            queue.push(&state, self.space, fault.clone(), incoming, around);
            if window == AREA_WINDOW_PAGES_MAX {
                self.read_ahead(&mut state, fault, queue);
            }
            return (state, Outcome::Done);
        }
        drop(state);
        self.fetch(fault, &incoming, 1)
    }

    /// Where is the page just now?
    fn lies(&self, entry: Entry) -> Lies {
        if !self.serving.areas.any() {
            return Lies::Memory;
        }
        match self.serving.engine.area_of(entry) {
            None => Lies::Memory,
            Some(area) if self.serving.engine.is_far(area) => Lies::Far,
            Some(_) => Lies::Area,
        }
    }

    /// The most pages that are worth a request to the area where this one lies.
    fn around_max(&self, entry: Entry) -> u64 {
        let area = self.serving.engine.area_of(entry);
        area.map_or(1, |area| self.serving.engine.read_around_max(area) as u64)
    }

    /// Is the page in an area just now?
    fn is_in_area(&self, entry: Entry) -> bool {
        self.lies(entry) > Lies::Memory
    }

    /// The fault continues a long stream. Have its next windows read at the same time, so that the area works while the
    /// program does, and on several requests.
    fn read_ahead(&self, state: &mut State, fault: &Fault, queue: &AreaQueue) {
        for number in 1..=WINDOWS_AHEAD {
            let room = (number + 1) * AREA_WINDOW_PAGES_MAX * PAGE_BYTES;
            let behind = fault.page + number * AREA_WINDOW_PAGES_MAX;
            if !self.serving.limit.has_room(room) {
                return;
            }
            let incoming = claim_swapped(state, behind, AREA_WINDOW_PAGES_MAX);
            let Some(first) = incoming.first() else {
                return;
            };
            let next = Fault {
                page: first.page,
                write: false,
                ahead: true,
                protected: fault.protected,
                urgent: fault.urgent,
                since: fault.since,
                wait: Wait::nobody(),
            };
            state.swap_ins.ahead(fault.page, AREA_WINDOW_PAGES_MAX);
            queue.push(state, self.space, next, incoming, 1);
        }
    }

    /// Read the claimed pages without the lock, then give them to the process with the lock. A lone page brings a
    /// window of `around` slots into the swap cache.
    pub(crate) fn fetch<'g>(
        &mut self,
        fault: &Fault,
        incoming: &[Incoming],
        around: u64,
    ) -> (SharedGuard<'g>, Outcome)
    where
        'a: 'g,
    {
        self.fetch_because(Why::Wanted, fault, incoming, around)
    }

    /// The same, and what it is for.
    pub(crate) fn fetch_because<'g>(
        &mut self,
        why: Why,
        fault: &Fault,
        incoming: &[Incoming],
        around: u64,
    ) -> (SharedGuard<'g>, Outcome)
    where
        'a: 'g,
    {
        let read = self.read_entries(incoming, around);
        let keep = !fault.write && read.good > 0 && self.may_keep(incoming[0].entry, why);
        let space = self.space;
        let mut state = space.lock_shared();
        // A kept page is write-protected. The kernel could not write to it when a thread ends.
        let keep = keep
            && !incoming
                .iter()
                .any(|page| state.layout.pinned.contains(page.page));
        state.read_around.hit(read.hits);
        self.serving.stats.read_ahead_hits.add(read.hits);
        if let (0, Some(error), false) = (read.good, read.error, fault.ahead) {
            let lost = self.lose(&mut state, fault, &incoming[0], &error);
            incoming[1..].iter().for_each(|page| {
                state.layout.finish(page.ticket);
            });
            return (state, lost);
        }
        // A page that the area cannot read stays out. Whoever touches it is told.
        if let Some(error) = read.error
            && !matches!(error, SwapInError::Unreadable { .. })
        {
            // A layout event may have given the entry up meanwhile. Then the claim is cancelled.
            let failed = &incoming[read.good];
            if state.layout.finish(failed.ticket) == Some(failed.page) {
                lost::fail_closed_later(space, &mut state, failed.page, fault, &error);
            }
        }
        let back = Return { why, keep };
        self.install(state, fault, incoming, read.good, back)
    }

    /// Read the entries into the buffers.
    fn read_entries(&mut self, incoming: &[Incoming], around: u64) -> Read {
        let serving = self.serving;
        let engine = &serving.engine;
        let (scratch, pages) = self.buffers().parts(incoming.len());
        let is_hit = |from| u64::from(from == SwapIn::ReadAhead);
        if let ([one], Some(page)) = (incoming, pages.first_mut()) {
            let window = usize::try_from(around).unwrap_or(1);
            return match engine.swap_in_around(one.entry, window, page, scratch) {
                Ok((from, along)) => {
                    serving.stats.pages_read_ahead.add(along as u64);
                    Read {
                        good: 1,
                        hits: is_hit(from),
                        ..Read::default()
                    }
                }
                Err(error) => Read {
                    error: Some(error),
                    ..Read::default()
                },
            };
        }
        let entries: Vec<Entry> = incoming.iter().map(|page| page.entry).collect();
        let mut pages: Vec<&mut Page> = pages.iter_mut().collect();
        let mut read = Read {
            good: entries.len(),
            ..Read::default()
        };
        engine.swap_in_all(&entries, &mut pages, scratch, |at, outcome| match outcome {
            Ok(from) => read.hits += is_hit(from),
            Err(error) if at < read.good => {
                (read.good, read.error) = (at, Some(error));
            }
            Err(_) => {}
        });
        read
    }

    /// The page of the fault cannot be read. If the area failed, whoever touches the page gets SIGBUS and everybody
    /// else lives. If the page is damaged in memory, the process is stopped.
    fn lose(
        &mut self,
        state: &mut State,
        fault: &Fault,
        lost: &Incoming,
        error: &SwapInError,
    ) -> Outcome {
        // A layout event may have given the entry up meanwhile. Then the claim is cancelled.
        if state.layout.finish(lost.ticket) != Some(lost.page) {
            return Outcome::Again;
        }
        if !matches!(error, SwapInError::Unreadable { .. }) {
            lost::fail_closed_later(self.space, state, lost.page, fault, error);
            return Outcome::Done;
        }
        let address = lost.page * PAGE_BYTES;
        self.lift_marker(fault.page);
        match self.space.uffd.poison(address, PAGE_BYTES, true) {
            Ok(()) => {
                let word = state.layout.words.set(lost.page, PageWord::PLAIN);
                self.serving.references.put(word);
                lost::page_lost(&self.serving.stats, self.space, lost.page, error);
                self.wake(fault);
            }
            Err(UffdError::Again { .. } | UffdError::NoMemory { .. }) => return Outcome::Again,
            // A kernel before 6.6 cannot poison a page.
            Err(UffdError::Invalid { .. } | UffdError::Other { .. }) => {
                lost::fail_closed_later(self.space, state, lost.page, fault, error);
            }
            Err(refused) => return self.not_installed(state, fault, refused),
        }
        Outcome::Done
    }

    /// With the lock held again: give the first `good` pages to the process and set their words, which may keep their
    /// entries. Nobody takes a claim away between the look at it and the word, see `giving`.
    fn install<'g>(
        &mut self,
        mut state: SharedGuard<'g>,
        fault: &Fault,
        incoming: &[Incoming],
        good: usize,
        back: Return,
    ) -> (SharedGuard<'g>, Outcome)
    where
        'a: 'g,
    {
        let mut runs = self.runs_to_give(&mut state, incoming, good);
        let space = self.space;
        let source = self.buffers().pages();
        let (mut state, refused) = space.give(state, || give_runs(space, &mut runs, source, back));
        for page in incoming {
            state.layout.finish(page.ticket);
        }
        for run in runs.iter().filter(|run| run.done > 0) {
            self.settle(&mut state, &incoming[run.first..], run, back);
        }
        match refused {
            None if !runs.is_empty() => {}
            None | Some(UffdError::Again { .. } | UffdError::NoMemory { .. }) => {
                return (state, Outcome::Again);
            }
            Some(error) => {
                let outcome = self.not_installed(&mut state, fault, error);
                return (state, outcome);
            }
        }
        if let Some(last) = runs.iter().rfind(|run| run.done > 0)
            && last.done < last.wanted
        {
            let end = last.start + last.done as u64;
            state.swap_ins.reached(fault.page, end - fault.page);
        }
        if !fault.ahead {
            self.serving.stats.faults.add(1);
            self.buffers().recorder.record(fault.since.elapsed());
        }
        (state, Outcome::Done)
    }

    /// The runs of neighbouring pages that the process shall get: what was read and no layout event has taken away, up
    /// to the first page that is missing. Nobody waits for a page other than the first; whoever touches it faults. No
    /// runs if the first page is not among them.
    fn runs_to_give(&self, state: &mut State, incoming: &[Incoming], good: usize) -> Vec<Run> {
        let is_ours = |state: &State, page: &Incoming| state.layout.carries(page.ticket, page.page);
        let mut runs = Vec::new();
        let mut first = 0;
        for run in incoming.chunk_by(|a, b| a.page + 1 == b.page) {
            let held = run.iter().take_while(|page| is_ours(state, page)).count();
            let held = held.min(good.saturating_sub(first));
            // What is there of the others may be told later.
            let there = run[0].page..run[0].page + held as u64;
            let put = &mut |word| self.serving.references.put(word);
            let there = marks::drop_discarded(self.space, state, there, put).unwrap_or(0);
            let held = held.min(usize::try_from(there).unwrap_or(held));
            if held > 0 {
                runs.push(Run {
                    start: run[0].page,
                    first,
                    held,
                    wanted: run.len(),
                    done: 0,
                });
            }
            if held < run.len() {
                break;
            }
            first += run.len();
        }
        runs
    }

    /// The process has got the pages of a run: write their words.
    fn settle(
        &mut self,
        state: &mut State,
        pages: &[Incoming],
        run: &Run,
        Return { why, keep }: Return,
    ) {
        let (start, done) = (run.start, run.done as u64);
        if run.held == 1 {
            self.space.faults_served.fetch_add(1, Ordering::Relaxed);
        } else {
            self.buffers().served.push((start, done));
        }
        let resident_pages = self.serving.limit.resident_pages();
        for page in &pages[..run.done] {
            let shadow = self.serving.engine.shadow(page.entry).unwrap_or_default();
            let is_wanted = why == Why::Wanted;
            let is_from_area = self.is_in_area(page.entry);
            let heat = if is_wanted {
                let distance = self.serving.working_set.distance(shadow);
                self.serving.packing.came_back(distance, is_from_area);
                self.serving.working_set.come_back(shadow, resident_pages)
            } else {
                heat_of(shadow)
            };
            if is_from_area {
                let is_early = is_wanted && self.is_early(shadow);
                self.serving
                    .shrinker
                    .came_from_area(&self.serving.stats, is_early);
            }
            let word = if keep {
                self.serving.references.kept_one();
                PageWord::kept(page.entry)
            } else {
                self.serving.engine.put(page.entry);
                PageWord::PLAIN
            };
            state.layout.words.set(page.page, word.returned(heat));
            self.serving
                .stats
                .pages_early
                .add(u64::from(is_wanted && heat.is_early()));
        }
        self.took(done);
        self.serving
            .samples
            .came_back(self.space.id, start..start + done);
        self.serving.stats.pages_in.add(done);
        self.serving.limit.has_more_room();
    }

    /// May the pages that were read keep their entries? The first page decides. Its content is in the first buffer.
    /// Called without the lock, because it may compress.
    ///
    /// A copy that only this page needs may stay in an area but not in the pool. In the pool it takes memory that other
    /// pages need, and bringing those in again costs more than compressing this one a second time. An entry that kin
    /// also refer to stays in the pool anyway. Without it, pages that are alike would be stored once for each of them.
    fn may_keep(&mut self, entry: Entry, why: Why) -> bool {
        let is_in_area = self.is_in_area(entry);
        if is_in_area && why == Why::Woken {
            return !self.serving.limit.is_stalled();
        }
        if !is_in_area {
            return self.serving.engine.is_shared(entry) && self.serving.references.may_keep();
        }
        let serving = self.serving;
        let is_early = self.is_early(serving.engine.shadow(entry).unwrap_or_default());
        let (scratch, pages) = self.buffers().parts(1);
        let packs = || {
            pages
                .first()
                .is_some_and(|page| serving.engine.packs(page, scratch))
        };
        // Where everything is full, a page that is nowhere else needs the slot.
        !serving.limit.is_stalled()
            && serving.references.may_keep()
            && serving
                .shrinker
                .may_keep(&serving.engine, entry, is_early, packs)
    }

    /// Would a page with this shadow, coming back from an area, have stayed in a larger pool?
    fn is_early(&self, shadow: Shadow) -> bool {
        let serving = self.serving;
        serving
            .shrinker
            .is_early(&serving.limit, &serving.working_set, shadow)
    }

    /// The kernel refused the page.
    fn not_installed(&mut self, state: &mut State, fault: &Fault, error: UffdError) -> Outcome {
        match error {
            // vswap did not put that page there. What the program sees is the truth.
            UffdError::Exists { .. } => {
                if let Some(entry) = state.layout.words.set(fault.page, PageWord::PLAIN).entry() {
                    self.serving.engine.put(entry);
                }
                self.wake(fault);
            }
            UffdError::Gone => {}
            // An UNMAP event has named the page, and nobody has checked yet whether it is true.
            _ if state.undecided.contains(fault.page) => return Outcome::Again,
            // The mapping is gone: its UNMAP event was read after the fault, or is about to come. But if the mapping is
            // there and no longer registered, a woken thread would see zeros.
            error => {
                if lost::is_mapped(self.space, fault.page) {
                    lost::fail_closed_later(self.space, state, fault.page, fault, &error);
                } else {
                    self.wake(fault);
                }
            }
        }
        Outcome::Done
    }
}

/// Neighbouring pages that come back together.
#[derive(Debug)]
struct Run {
    /// Its first page.
    start: u64,
    /// The place of the first one among all that were claimed.
    first: usize,
    /// How many can come.
    held: usize,
    /// How many were claimed.
    wanted: usize,
    /// How many the process has taken.
    done: usize,
}

/// Give runs to the process, until it does not take all of one. `source` has the content of all claimed pages. The
/// error says why it has not taken the first page at all.
fn give_runs(space: &Space, runs: &mut [Run], source: &[Page], back: Return) -> Option<UffdError> {
    for run in runs {
        // The call that brings a lone page also wakes its thread, which saves a call. The thread may fault again before
        // the lock is released, and then waits for the lock.
        let lone = run.held == 1;
        let modes =
            if lone { 0 } else { copy_mode::DONTWAKE } | if back.keep { copy_mode::WP } else { 0 };
        let content = source[run.first..].as_ptr().cast();
        let given = fill(run.held as u64, |bytes| {
            space
                .uffd
                .copy(run.start * PAGE_BYTES, content, bytes, modes)
        });
        match given {
            Ok(done) => run.done = usize::try_from(done).unwrap_or(run.held),
            Err(error) if run.first == 0 => return Some(error),
            Err(_) => return None,
        }
        if run.done < run.held {
            return None;
        }
    }
    None
}
