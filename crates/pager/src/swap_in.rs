//! Bringing pages back: the page of a fault, and what follows it when the fault continues a stream.
//!
//! Called with the space lock held, which is released while entries are read. A claim in the layout keeps each page
//! meanwhile, and a layout event that arrives in between cancels the claim. What has to be fetched from an area is
//! left to the threads of `area_reads`, so that no reader of faults waits for a disk.

use vswap_engine::{Entry, Page, SwapInError};
use vswap_sys::uffd::{UffdError, copy_mode};

use crate::fault::{Buffers, Fault, FaultServer, Outcome, fill};
use crate::layout::{Direction, Ticket};
use crate::lock::MutexGuard;
use crate::run::PAGE_BYTES;
use crate::space::{AREA_WINDOW_PAGES_MAX, State, WINDOW_PAGES_MAX};
use crate::words::{PageState, PageWord};
use crate::working_set::Return;

/// A page being brought in.
#[derive(Debug)]
pub struct Incoming {
    page: u64,
    entry: Entry,
    ticket: Ticket,
}

impl<'a> FaultServer<'a> {
    /// Bring a page back, and what follows it when the fault continues a stream.
    pub(crate) fn swap_in<'g>(
        &mut self,
        mut state: MutexGuard<'g, State>,
        fault: &Fault,
        entry: Entry,
    ) -> (MutexGuard<'g, State>, Outcome)
    where
        'a: 'g,
    {
        let is_in_area =
            |entry: Entry| self.core.areas.any() && self.core.engine.is_physical(entry);
        let begins_there = is_in_area(entry);
        let most = if begins_there {
            AREA_WINDOW_PAGES_MAX
        } else {
            WINDOW_PAGES_MAX
        };
        let incoming = claim_window(&mut state, fault.page, entry, most);
        // Asked once of the first page: it may move while we look, and the window was chosen by the answer.
        if begins_there || incoming.iter().any(|page| is_in_area(page.entry)) {
            let reached = incoming.len() as u64;
            self.core.area_reads.push(self.space, *fault, incoming);
            if reached == AREA_WINDOW_PAGES_MAX {
                self.read_ahead(&mut state, fault, reached);
            }
            return (state, Outcome::Done);
        }
        drop(state);
        self.fetch(fault, &incoming)
    }

    /// The fault goes on with a long stream: have its next window read at the same time, so that the area works while
    /// the program does.
    fn read_ahead(&self, state: &mut State, fault: &Fault, reached: u64) {
        let room = 2 * AREA_WINDOW_PAGES_MAX * PAGE_BYTES;
        if !self.core.governor.has_room(room) {
            return;
        }
        let next = Fault {
            page: fault.page + reached,
            write: false,
            ahead: true,
            ..*fault
        };
        let incoming = claim_run(state, next.page, AREA_WINDOW_PAGES_MAX);
        if !incoming.is_empty() {
            state.swap_ins.ahead(fault.page, incoming.len() as u64);
            self.core.area_reads.push(self.space, next, incoming);
        }
    }

    /// Read what was claimed, without the lock, and give it to the process, with it.
    pub(crate) fn fetch<'g>(
        &mut self,
        fault: &Fault,
        incoming: &[Incoming],
    ) -> (MutexGuard<'g, State>, Outcome)
    where
        'a: 'g,
    {
        let read = self.read_entries(incoming);
        let space = self.space;
        let mut state = space.lock();
        let good = match read {
            Ok(pages) => pages,
            // Whoever touches it hears of it.
            Err((0, _)) if fault.ahead => 0,
            Err((0, error)) => {
                let lost = self.lose(&mut state, fault, &incoming[0], &error);
                incoming[1..].iter().for_each(|page| {
                    state.layout.finish(page.ticket);
                });
                return (state, lost);
            }
            // Read ahead; whoever touches it hears of it.
            Err((pages, SwapInError::Unreadable { .. })) => pages,
            Err((pages, error)) => {
                // The entry may have been given up by a layout event meanwhile; then the claim says so.
                let failed = &incoming[pages];
                if state.layout.finish(failed.ticket) == Some(failed.page) {
                    self.core.fail_closed(self.space, failed.page, &error);
                }
                pages
            }
        };
        let outcome = self.install(&mut state, fault, incoming, good);
        (state, outcome)
    }

    /// Read entries into the buffers; the number read, or the first that failed.
    fn read_entries(&mut self, incoming: &[Incoming]) -> Result<usize, (usize, SwapInError)> {
        let Buffers { scratch, pages, .. } = &mut self.buffers;
        let engine = &self.core.engine;
        if let ([one], Some(page)) = (incoming, pages.first_mut()) {
            return match engine.swap_in(one.entry, page, scratch) {
                Ok(_) => Ok(1),
                Err(error) => Err((0, error)),
            };
        }
        let entries: Vec<Entry> = incoming.iter().map(|page| page.entry).collect();
        let mut pages: Vec<&mut Page> = pages.iter_mut().take(entries.len()).collect();
        let mut failed: Option<(usize, SwapInError)> = None;
        engine.swap_in_all(&entries, &mut pages, scratch, |at, outcome| {
            if let Err(error) = outcome
                && failed.is_none_or(|(first, _)| at < first)
            {
                failed = Some((at, error));
            }
        });
        failed.map_or(Ok(entries.len()), Err)
    }

    /// The page of the fault cannot be read. If its area says so, whoever touches it gets SIGBUS and everybody else
    /// lives; what is damaged in memory stops the process.
    fn lose(
        &mut self,
        state: &mut State,
        fault: &Fault,
        lost: &Incoming,
        error: &SwapInError,
    ) -> Outcome {
        // The entry may have been given up by a layout event meanwhile; then the claim says so.
        if state.layout.finish(lost.ticket) != Some(lost.page) {
            return Outcome::Again;
        }
        if !matches!(error, SwapInError::Unreadable { .. }) {
            self.core.fail_closed(self.space, lost.page, error);
            return Outcome::Done;
        }
        match self
            .space
            .uffd
            .poison(lost.page * PAGE_BYTES, PAGE_BYTES, true)
        {
            Err(UffdError::Again { .. } | UffdError::NoMemory { .. }) => return Outcome::Again,
            Err(UffdError::Invalid { .. } | UffdError::Other { .. }) => {
                // A kernel before 6.6 cannot tell one thread alone.
                self.core.fail_closed(self.space, lost.page, error);
                return Outcome::Done;
            }
            // There already, or its mapping is gone: the thread shall look again.
            Err(_) => {}
            Ok(()) => {
                let word = state.layout.words.set(lost.page, PageWord::PLAIN);
                self.core.put_word(word);
                self.core.areas.page_lost(self.space, lost.page, error);
            }
        }
        self.wake(fault);
        Outcome::Done
    }

    /// With the lock held again: give the pages to the process and settle their words.
    fn install(
        &mut self,
        state: &mut State,
        fault: &Fault,
        incoming: &[Incoming],
        good: usize,
    ) -> Outcome {
        let mut held = 0;
        for page in incoming {
            let still_ours = state.layout.finish(page.ticket) == Some(page.page);
            if still_ours && held < good && incoming[held].page == page.page {
                held += 1;
            }
        }
        if held == 0 {
            return Outcome::Again;
        }
        let keep = !fault.write && self.core.may_keep_copies();
        let modes = copy_mode::DONTWAKE | if keep { copy_mode::WP } else { 0 };
        let (uffd, source) = (&self.space.uffd, self.buffers.pages.as_ptr().cast());
        let answer = fill(held as u64, |bytes| {
            uffd.copy(fault.page * PAGE_BYTES, source, bytes, modes)
        });
        let done = match answer {
            Ok(done) => done,
            Err(UffdError::Again { .. } | UffdError::NoMemory { .. }) => return Outcome::Again,
            Err(error) => return self.not_installed(state, fault, error),
        };
        self.served.push((fault.page, done));
        let resident_pages = self.core.governor.resident_pages();
        for page in incoming.iter().take(usize::try_from(done).unwrap_or(0)) {
            let shadow = self.core.engine.shadow(page.entry).unwrap_or_default();
            let how = self.core.working_set.come_back(shadow, resident_pages);
            let word = if keep {
                self.core.kept_one();
                PageWord::kept(page.entry)
            } else {
                self.core.engine.put(page.entry);
                PageWord::PLAIN
            };
            state.layout.words.set(page.page, word.returned(how));
            self.core
                .stats
                .pages_early
                .add(u64::from(how != Return::Late));
        }
        state.swap_ins.reached(fault.page, done);
        self.took(done);
        self.core.stats.pages_in.add(done);
        if !fault.ahead {
            self.core.stats.faults.add(1);
            self.buffers.recorder.record(fault.since.elapsed());
        }
        Outcome::Done
    }

    /// The kernel refused the page.
    fn not_installed(&mut self, state: &mut State, fault: &Fault, error: UffdError) -> Outcome {
        match error {
            // A page is there that vswap did not put there: what the program sees is the truth.
            UffdError::Exists { .. } => {
                if let Some(entry) = state.layout.words.set(fault.page, PageWord::PLAIN).entry() {
                    self.core.engine.put(entry);
                }
                self.wake(fault);
            }
            UffdError::Gone => {}
            // Its mapping has gone and the UNMAP event was read after the fault, or it is about to come. If the
            // mapping is there but no longer registered, waking the thread would show it zeros.
            error => {
                if self.core.is_mapped(self.space, fault.page) {
                    self.core.fail_closed(self.space, fault.page, &error);
                } else {
                    self.wake(fault);
                }
            }
        }
        Outcome::Done
    }
}

/// Claim the faulting page and the swapped pages behind it that the stream's window reaches, `most` at the most.
fn claim_window(state: &mut State, page: u64, entry: Entry, most: u64) -> Vec<Incoming> {
    let window = state.swap_ins.window_up_to(page, most);
    let mut incoming = vec![Incoming {
        page,
        entry,
        ticket: state.layout.claim(page, Direction::In),
    }];
    incoming.extend(claim_run(state, page + 1, window - 1));
    incoming
}

/// Claim the swapped pages from `first` on, up to the first that is none, `most` at the most.
fn claim_run(state: &mut State, first: u64, most: u64) -> Vec<Incoming> {
    let mut incoming = Vec::new();
    for page in first..first + most {
        let word = state.layout.words.get(page);
        let PageState::Swapped(entry) = word.state() else {
            break;
        };
        if word.is_claimed() || !state.layout.registered.contains(page) {
            break;
        }
        let ticket = state.layout.claim(page, Direction::In);
        incoming.push(Incoming {
            page,
            entry,
            ticket,
        });
    }
    incoming
}
