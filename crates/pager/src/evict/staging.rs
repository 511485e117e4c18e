//! Staging: the place that the agent moves a window to, and what happens to the window there.

use std::sync::atomic::Ordering;

use vswap_engine::{Entry, Page, Placed};
use vswap_sys::abi::advice;
use vswap_sys::ring::{MOVED_UNMARKED, op};

use super::carried::{Copied, Moving, Proposed, Staged};
use super::{BLOCKED_PACE, Evictor, WINDOW_PAGES};
use crate::base::kernel::clock;
use crate::base::kernel::process::{LocalSpan, RemoteSpan};
use crate::base::lock::MutexGuard;
use crate::base::page_run::{PAGE_BYTES, PageRun, runs_of};
use crate::base::rules::{self, Rule};
use crate::fault::lost;
use crate::layout::words::{PageState, PageWord};
use crate::layout::{Direction, Ticket};
use crate::run::buffers::Buffers;
use crate::space::agent::{AgentGone, Slot};
use crate::space::{State, marks, present};

/// Tries to empty staging. Somebody who inspects the process's memory may hold a page for a moment.
const EMPTY_TRIES: u32 = 1000;

const EAGAIN: i32 = 11;
pub(super) const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const PAGE_BYTES_USIZE: usize = vswap_engine::PAGE_BYTES;

impl<'a> Evictor<'a> {
    /// Have the agent move pages into staging, with the space closed.
    pub(super) fn move_pages(
        &mut self,
        slot: &mut Slot<'_>,
        mut state: MutexGuard<'a, State>,
        pages: &[u64],
    ) -> Result<Staged, AgentGone> {
        let space = self.space;
        if pages.is_empty() {
            return Ok(Staged::Nothing);
        }
        let tickets: Vec<Ticket> = pages
            .iter()
            .map(|&page| state.layout.claim(page, Direction::Out))
            .collect();
        let runs = runs_of(pages.iter().copied());
        let marks = u64::from(space.marks.load(Ordering::Acquire));
        let (after, called) =
            space.close_during(state, || slot.call(op::MOVE_OUT, &[0, marks], &runs));
        state = after;
        if let Err(gone) = called {
            for ticket in tickets {
                state.layout.finish(ticket);
            }
            space.notify_settled();
            return Err(gone);
        }
        let (mut moving, mut clean, mut put_off) = (Vec::new(), 0, false);
        let (mut busy, mut refused) = (Vec::new(), Vec::new());
        let errnos = self.what_moved(slot, &state, pages);
        for (staged, ((&page, ticket), errno)) in pages.iter().zip(tickets).zip(errnos).enumerate()
        {
            let marked = marks != 0 && slot.page_errno(staged) == 0;
            let word = state.layout.words.get(page);
            match (errno, word.state()) {
                (0, PageState::Kept(entry)) => {
                    state.layout.finish(ticket);
                    self.went_out_clean(&mut state, page, entry, marked);
                    clean += 1;
                }
                (0, _) => moving.push(Moving {
                    page,
                    ticket,
                    staged,
                    heat: word.heat(),
                    marked,
                }),
                (errno, _) => {
                    state.layout.finish(ticket);
                    put_off |= errno == EAGAIN;
                    match errno {
                        EBUSY => busy.push(page),
                        EINVAL => refused.push(page),
                        _ => {}
                    }
                }
            }
        }
        if clean > 0 {
            self.mark(&mut state, pages);
        }
        space.notify_settled();
        if put_off && moving.is_empty() && clean == 0 {
            self.serving.stats.retries.add(1);
            self.hand.return_to(pages.first().copied().unwrap_or(0));
            return Ok(Staged::Blocked);
        }
        self.serving.stats.pages_busy.add(busy.len() as u64);
        Ok(Staged::Pages {
            moving,
            clean,
            busy,
            refused,
        })
    }

    /// A kept page has left. Its entry holds the same content.
    pub(super) fn went_out_clean(&self, state: &mut State, page: u64, entry: Entry, marked: bool) {
        let heat = state.layout.words.get(page).heat();
        let word = PageWord::swapped(entry).with_mark(marked);
        state.layout.words.set(page, word);
        let shadow = self.serving.working_set.leave(heat);
        self.serving.engine.set_shadow(entry, shadow);
        self.serving.references.kept_went_out();
    }

    /// Mark those of `pages` that are out now, and the earlier pages that could not be marked.
    pub(super) fn mark(&mut self, state: &mut State, pages: &[u64]) {
        if self.space.marks.load(Ordering::Acquire) {
            let mut late = std::mem::take(&mut self.unmarked);
            late.extend(pages);
            late.sort_unstable();
            self.unmarked = marks::place(self.space, state, &late);
        }
    }

    /// How the move of each page ended, as an errno. Staging was empty before. So a page that lies there now has moved
    /// if its own place is empty, whatever the agent reports (rule P8). It usually reports EEXIST. It reports EAGAIN or
    /// EINVAL if a layout event or mprotect came before it tried again. The state is locked, so nobody has brought the
    /// page back meanwhile.
    fn what_moved(&self, slot: &Slot<'_>, _state: &State, pages: &[u64]) -> Vec<i32> {
        let errno = |at| match slot.page_errno(at) {
            MOVED_UNMARKED => 0,
            errno => errno,
        };
        let mut errnos: Vec<i32> = (0..pages.len()).map(errno).collect();
        if errnos.iter().all(|&errno| errno == 0) || !rules::holds(Rule::MovedUnsaid) {
            return errnos;
        }
        let staging = self.process.agent.staging / PAGE_BYTES;
        let staged = present::present_parts(self.space, staging..staging + pages.len() as u64);
        for place in staged.into_iter().flatten() {
            let at = usize::try_from(place - staging).unwrap_or(usize::MAX);
            let (Some(errno), Some(&page)) = (errnos.get_mut(at), pages.get(at)) else {
                continue;
            };
            if *errno != 0 && present::present_parts(self.space, page..page + 1).is_empty() {
                self.serving.stats.moved_unsaid.add(1);
                *errno = 0;
            }
        }
        errnos
    }

    /// Discard what was copied, through a userfaultfd without events (rule P5). Content left in staging would be taken
    /// for that of the next page moved there.
    pub(super) fn empty_staging(&self, slot: &mut Slot<'_>) -> Result<(), AgentGone> {
        let staging = self.process.agent.staging;
        if !rules::holds(Rule::SilentStaging) {
            let bytes = WINDOW_PAGES as u64 * PAGE_BYTES;
            let arguments = [staging, bytes, advice::DONTNEED.into(), 0];
            return slot.call(op::ADVISE, &arguments, &[]).map(drop);
        }
        let mut refused = 0;
        for _ in 0..EMPTY_TRIES {
            refused = slot.call(op::STAGING_FREE, &[0, WINDOW_PAGES as u64], &[])?;
            if refused >= 0 {
                return Ok(());
            }
            clock::sleep(BLOCKED_PACE);
        }
        let why = format!("what was moved out cannot be freed (errno {})", -refused);
        lost::fail_closed(self.space, staging / PAGE_BYTES, &why);
        Err(AgentGone)
    }

    /// Make pages exclusive. After a fork UFFDIO_MOVE refuses a page until its owner has written to it (rule P4).
    pub(super) fn make_exclusive(
        &mut self,
        slot: &mut Slot<'_>,
        busy: &[u64],
    ) -> Result<(), AgentGone> {
        if busy.is_empty() || !rules::holds(Rule::Exclusive) {
            return Ok(());
        }
        slot.call(op::POPULATE_WRITE, &[], &runs_of(busy.iter().copied()))?;
        // Each page was copied in a fault of the agent, unless nobody else had the page any more.
        let copied = busy.len() as u64;
        self.space.gave(copied.cast_signed());
        self.space
            .faults_served
            .fetch_add(copied, Ordering::Relaxed);
        Ok(())
    }

    /// Copy staged pages into frames, which have their slots. So each gets an entry, or the one that kin have proposed
    /// for the same content.
    pub(super) fn copy_to_entries(
        &mut self,
        staging: u64,
        moving: &[Moving],
        mut frames: Vec<Placed<'a>>,
        proposals: &mut Proposed<'_>,
    ) -> Vec<Copied> {
        frames.truncate(moving.len());
        let staged = runs_of(moving.iter().map(|m| m.staged as u64));
        let remote: Vec<RemoteSpan> = staged.iter().map(|run| span(staging, run)).collect();
        let local: Vec<LocalSpan> = frames
            .iter_mut()
            .map(|frame| LocalSpan {
                pointer: frame.as_mut_ptr(),
                bytes: PAGE_BYTES_USIZE,
            })
            .collect();
        // SAFETY: each local span is a frame that this thread holds exclusively. The call is unsafe because the kernel
        // writes through raw pointers.
        let read = unsafe { self.process.read(remote, local) };
        if read != Ok(frames.len() * PAGE_BYTES_USIZE) {
            // Staging cannot be read. The process has ended, or the pages are lost to it.
            if let Some(first) = moving.first() {
                let why = format!("staging unreadable: {read:?}");
                lost::fail_closed(self.space, first.page, &why);
            }
            return Vec::new();
        }
        let mut stored = Vec::with_capacity(frames.len());
        for (frame, moved) in frames.into_iter().zip(moving) {
            let copied = match self.same_as_kin(&frame, moved.page, proposals) {
                Some(entry) => Copied {
                    entry,
                    fresh: false,
                },
                None => Copied {
                    entry: frame.publish(self.serving.working_set.leave(moved.heat)),
                    fresh: true,
                },
            };
            stored.push(copied);
        }
        stored
    }

    /// The entry proposed for a page, if both have the same content. The caller then owns the reference.
    fn same_as_kin(
        &mut self,
        content: &Page,
        page: u64,
        proposals: &mut Proposed<'_>,
    ) -> Option<Entry> {
        let entry = proposals.find(page)?;
        // An entry that cannot be read is ignored here. Its owner reports the error.
        let serving = self.serving;
        let is_same = |buffers: &mut Buffers| {
            let (scratch, pages) = buffers.parts(1);
            let read = serving.engine.swap_in(entry, &mut pages[0], scratch);
            read.is_ok() && pages[0].0 == content.0
        };
        let buffers = &serving.spare_buffers;
        let same = buffers.with(&serving.engine, &serving.stats, is_same);
        same.then(|| proposals.hand_over(page)).flatten()
    }
}

fn span(staging: u64, run: &PageRun) -> RemoteSpan {
    let bytes = usize::try_from(run.pages).unwrap_or(0) * PAGE_BYTES_USIZE;
    RemoteSpan {
        address: staging + run.address(),
        bytes,
    }
}
