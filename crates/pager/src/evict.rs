//! The evictor of a space: one thread that moves pages out.
//!
//! It takes windows of pages that its `hand` picks, or that its `kin` propose. One window goes through six steps: pick;
//! move into staging (under the space lock); copy from staging to frames; publish entries; free staging; queue for
//! `writeback`. From publishing on a fault on a page of the window is served from its frame.

mod aside;
mod carried;
mod hand;
pub mod shrink;
pub mod write_out;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::kernel::process::{self, LocalSpan, RemoteSpan};
use crate::fault::lost;
use vswap_engine::{AllocError, Entry, FrameMut, Mapping, Page};
use vswap_sys::ring::{MOVED_UNMARKED, op};

use self::carried::{Carrier, Moving, Proposed, Published, Stored, Taken};
use self::hand::Hand;
use crate::base::kernel::clock;
use crate::base::lock::MutexGuard;
use crate::base::page_run::{PAGE_BYTES, PageRun, runs_of};
use crate::base::rules::{self, Rule};
use crate::calls::advice;
use crate::events::layout_events;
use crate::events::regions;
use crate::fault::{FaultServer, Outcome};
use crate::layout::words::{PageState, PageWord};
use crate::layout::{Direction, Ticket};
use crate::run::Run;
use crate::space::agent::{AgentGone, Slot};
use crate::space::mailbox::Proposal;
use crate::space::marks;
use crate::space::present;
use crate::space::process::Process;
use crate::space::{Space, State};

/// Pages moved out together: enough that one command to the agent costs little a page, few enough that a fault that
/// comes in between waits tens of microseconds.
const WINDOW_PAGES: usize = 64;
/// Longest sleep without a request.
const IDLE: Duration = Duration::from_secs(1);
/// Pause when the kernel puts a move off because a layout event is unread, or when no frame is free.
const BLOCKED_PACE: Duration = Duration::from_micros(50);
/// Blocked windows in a row after which the evictor goes back to listening.
const BLOCKED_MAX: u32 = 200;
/// Windows in a row of which no page could be moved after which the evictor gives up for now.
const FRUITLESS_MAX: u32 = 256;

/// Tries to empty staging; somebody who looks at the process's memory may hold a page for a moment.
const EMPTY_TRIES: u32 = 1000;

const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const PAGE_BYTES_USIZE: usize = vswap_engine::PAGE_BYTES;

/// How a window went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Window {
    /// This many pages left the program.
    Moved(u64),
    /// A whole lap found nothing to move.
    Nothing,
    /// Try again a little later.
    Blocked,
}

struct Evictor<'a> {
    core: &'a Arc<Run>,
    space: &'a Arc<Space>,
    process: &'a Process,
    server: FaultServer<'a>,
    hand: Hand<'a>,
    /// Pages that were busy in the last window and have been made movable: others may share them.
    shared: Vec<u64>,
    /// Pages that have left and could not be marked yet.
    unmarked: Vec<u64>,
}

/// Run the evictor until the space ends.
pub fn run(core: &Arc<Run>, space: &Arc<Space>) {
    let Some(process) = space.process.get() else {
        return;
    };
    let mut evictor = Evictor {
        core,
        space,
        process,
        server: FaultServer::new(core, space),
        hand: Hand::new(process),
        shared: Vec::new(),
        unmarked: Vec::new(),
    };
    let every = core.config.evict_all_every;
    loop {
        let wanted = space.mailbox.take(every.unwrap_or(IDLE));
        if wanted.stop || space.has_ended() {
            break;
        }
        if space.is_confined() {
            // Kin need not keep what this one cannot follow.
            space.mailbox.put_proposals(&core.engine, |_| true);
            evictor.admit_against_the_limit();
            continue;
        }
        if wanted.rescan || every.is_some() {
            regions::rescan(core, space, process, &process.agent.slot());
        }
        evictor.serve_deferred();
        evictor.hand.wrapped = every.is_none();
        evictor.follow_kin();
        evictor.move_out(wanted.pages);
        evictor.lead_nothing();
    }
}

impl<'a> Evictor<'a> {
    /// Move out about `pages` pages, as many windows as faults wait for, and to the end of the lap if it is not.
    fn move_out(&mut self, pages: u64) {
        let (mut left, mut blocked, mut fruitless) = (pages, 0, 0);
        while !self.space.has_ended() && (left > 0 || !self.hand.wrapped || self.faults_wait()) {
            self.follow_kin();
            match self.window(Vec::new()) {
                Ok(Window::Moved(moved)) => {
                    left = left.saturating_sub(moved);
                    blocked = 0;
                    // Pages that cannot be moved (locked, pinned) are met again each lap.
                    fruitless = if moved == 0 { fruitless + 1 } else { 0 };
                    if fruitless > FRUITLESS_MAX {
                        self.admit_against_the_limit();
                        return;
                    }
                }
                Ok(Window::Blocked) if blocked < BLOCKED_MAX => {
                    blocked += 1;
                    clock::sleep(BLOCKED_PACE);
                }
                Ok(Window::Nothing) => {
                    self.admit_against_the_limit();
                    return;
                }
                Ok(Window::Blocked) | Err(AgentGone) => return,
            }
            // Mappings that nobody watches yet grow unasked: they come first.
            if self.space.mailbox.is_rescan_wanted() {
                return;
            }
        }
    }

    fn faults_wait(&self) -> bool {
        !self.space.lock().deferred.is_empty() && !self.core.limit.has_headroom()
    }

    /// Give up what kin have moved out, so that the memory behind it becomes free.
    fn follow_kin(&mut self) {
        while !self.space.has_ended() {
            let proposals = self.space.mailbox.take_proposals(WINDOW_PAGES);
            if proposals.is_empty() {
                return;
            }
            match self.window(proposals) {
                Ok(Window::Moved(_) | Window::Nothing) => {}
                Ok(Window::Blocked) | Err(AgentGone) => return,
            }
        }
    }

    /// One window, all six steps: of `proposals`, or of what the hand picks when there are none.
    fn window(&mut self, proposals: Vec<Proposal>) -> Result<Window, AgentGone> {
        let mut proposals = Proposed::new(self.core, proposals);
        let picked = proposals.is_empty();
        let frames = match self.frames(picked) {
            frames if frames.is_empty() => {
                proposals.give_back(self.space);
                return Ok(Window::Blocked);
            }
            frames => frames,
        };
        // What is made exclusive has been copied, so it has to leave in the same window.
        proposals.limit(frames.len(), self.space);
        let process: &'a Process = self.process;
        let mut slot = process.agent.slot();
        // Set before the slot is taken for what follows from it.
        if self.space.is_confined() {
            proposals.give_back(self.space);
            return Ok(if picked {
                Window::Nothing
            } else {
                Window::Blocked
            });
        }
        if !proposals.is_empty() {
            let shared = self.choose(&mut self.space.lock_thawed(), &proposals);
            self.make_exclusive(&mut slot, &shared)?;
        }
        let (moving, gone_clean, mut busy, refused) =
            match self.take_pages(&mut slot, frames.len(), &proposals)? {
                Taken::Pages {
                    moving,
                    clean,
                    busy,
                    refused,
                } => (moving, clean, busy, refused),
                Taken::Nothing => return Ok(Window::Nothing),
                Taken::Blocked => {
                    proposals.give_back(self.space);
                    return Ok(Window::Blocked);
                }
            };
        let staging = process.agent.staging;
        let entries = self.copy_to_entries(staging, &moving, frames, &mut proposals);
        let mut published = self.publish(&moving, entries);
        self.empty_staging(&mut slot)?;
        let mut moved = (moving.len() + gone_clean) as u64;
        let mut kept_by_kin = self.propose_shared(&published);
        if !refused.is_empty() {
            let gone = self.take_refused(&mut slot, &refused, &mut proposals)?;
            moved += gone.moved;
            kept_by_kin += gone.kept_by_kin;
            published.extend(gone.published);
        }
        if picked {
            self.lead(&mut busy);
            self.make_exclusive(&mut slot, &busy)?;
            // What the hand goes back for stays known as shared over a window of proposals.
            self.shared = busy;
        }
        drop(slot);
        let core = self.core;
        core.limit.gave_pages(moved.saturating_sub(kept_by_kin));
        self.space.gave(-moved.cast_signed());
        core.stats.pages_out.add(moved);
        core.stats.pages_dropped_clean.add(gone_clean as u64);
        let fresh = published
            .iter()
            .filter(|page| page.fresh)
            .map(|page| page.entry);
        core.write_queue.push(&core.areas, fresh);
        self.serve_deferred();
        Ok(Window::Moved(moved))
    }

    /// Frames for a window, as many as there are; none when the writers are behind, or when no directly mapped page
    /// would find a slot. What kin propose needs one for as long as it is compared: there are some for that also when
    /// nothing can be written out.
    fn frames(&mut self, picked: bool) -> Vec<Carrier<'a>> {
        let core: &'a Run = self.core;
        let mut frames = Vec::with_capacity(WINDOW_PAGES);
        let mut most = if picked {
            core.part.frames_left(core.write_queue.pending())
        } else {
            WINDOW_PAGES
        };
        while frames.len() < WINDOW_PAGES {
            let frame = (frames.len() < most).then(|| core.engine.frame());
            match frame.flatten() {
                Some(frame) => match self.carrier(frame) {
                    Ok(carrier) => frames.push(carrier),
                    Err(error) => {
                        if frames.is_empty() {
                            self.found_no_slot(error);
                        }
                        break;
                    }
                },
                // The writers are behind: help them.
                None if write_out::help(core) => {
                    most = core.part.frames_left(core.write_queue.pending());
                }
                None => break,
            }
        }
        frames
    }

    /// A frame for one page. A directly mapped page gets its slot before it is moved: if there is none it stays.
    fn carrier(&self, frame: FrameMut<'a>) -> Result<Carrier<'a>, AllocError> {
        let core: &'a Run = self.core;
        match core.config.mapping {
            Mapping::Virtual => Ok(Carrier::Frame(frame)),
            Mapping::Direct => {
                let placed = core
                    .engine
                    .place(0, frame, core.part.group, Mapping::Direct);
                placed.map(Carrier::Placed).map_err(|(_, error)| error)
            }
        }
    }

    /// No page can leave: the areas have no slot, or the group may not have more. Copies of resident pages have some.
    fn found_no_slot(&self, error: AllocError) {
        let is_limited = error == AllocError::Limited;
        self.core.limit.note_full(true, is_limited);
        self.core.references.shed_kept(&self.core.spaces, |_| true);
    }

    /// Proposed pages that are in memory and have no entry yet: those that have one are not shared any more.
    fn choose(&mut self, state: &mut State, proposals: &Proposed<'_>) -> Vec<u64> {
        let mut pages = self.hand.choose(state, &proposals.pages());
        pages.retain(|page| state.layout.words.get(*page).entry().is_none());
        pages
    }

    /// Of the pages that were busy, those that this evictor goes back for. Kin see to the others, now or as soon as
    /// this one follows them; asked in this order, since they propose a page before they cease to lead it.
    fn lead(&mut self, busy: &mut Vec<u64>) {
        self.space.kin.lead(self.space.id, busy);
        self.space.mailbox.leave_out(busy);
        if !self.hand.retry_busy(busy) {
            busy.clear();
        }
    }

    /// Nobody need wait for this evictor while it sleeps.
    fn lead_nothing(&self) {
        self.space.kin.lead(self.space.id, &mut Vec::new());
    }

    /// Propose to kin what they may share; the number of pages that stay in memory until they follow.
    fn propose_shared(&mut self, published: &[Published]) -> u64 {
        let shared: Vec<(u64, Entry)> = published
            .iter()
            .filter(|page| self.shared.binary_search(&page.page).is_ok())
            .map(|page| (page.page, page.entry))
            .collect();
        self.space
            .kin
            .propose(&self.core.engine, self.space.id, &shared);
        shared.len() as u64
    }

    /// Pick a window and have the agent move it into staging, all under the space lock.
    fn take_pages(
        &mut self,
        slot: &mut Slot<'_>,
        most: usize,
        proposals: &Proposed<'_>,
    ) -> Result<Taken, AgentGone> {
        let space = self.space;
        let mut state = space.lock_thawed();
        layout_events::decide(self.core, space, &mut state, slot);
        let mut pages = if proposals.is_empty() {
            self.hand.pick(self.core, &mut state, most)
        } else {
            self.choose(&mut state, proposals)
        };
        pages.truncate(most);
        self.move_pages(slot, state, &pages)
    }

    /// Have the agent move pages into staging, while the space is closed.
    fn move_pages(
        &mut self,
        slot: &mut Slot<'_>,
        mut state: MutexGuard<'a, State>,
        pages: &[u64],
    ) -> Result<Taken, AgentGone> {
        let space = self.space;
        if pages.is_empty() {
            return Ok(Taken::Nothing);
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
        let errnos = self.what_moved(slot, pages);
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
            self.core.stats.retries.add(1);
            self.hand.return_to(pages.first().copied().unwrap_or(0));
            return Ok(Taken::Blocked);
        }
        self.core.stats.pages_busy.add(busy.len() as u64);
        Ok(Taken::Pages {
            moving,
            clean,
            busy,
            refused,
        })
    }

    /// A kept page has left: its entry holds the same.
    fn went_out_clean(&self, state: &mut State, page: u64, entry: Entry, marked: bool) {
        let heat = state.layout.words.get(page).heat();
        let word = PageWord::swapped(entry).with_mark(marked);
        state.layout.words.set(page, word);
        let shadow = self.core.working_set.leave(heat);
        self.core.engine.set_shadow(entry, shadow);
        self.core.references.kept_went_out();
    }

    /// Mark those of `pages` that are out now, and those that could not be marked before.
    fn mark(&mut self, state: &mut State, pages: &[u64]) {
        if self.space.marks.load(Ordering::Acquire) {
            let mut late = std::mem::take(&mut self.unmarked);
            late.extend(pages);
            late.sort_unstable();
            self.unmarked = marks::place(self.space, state, &late);
        }
    }

    /// The outcome of each page's move. Staging was empty, so what lies there has just come, if its own place is empty
    /// now, whatever was said of it (rule P8): EEXIST as a rule, but EAGAIN or EINVAL where a layout event or mprotect
    /// came before the agent asked again. Under the space lock, so nobody has brought it back meanwhile.
    fn what_moved(&self, slot: &Slot<'_>, pages: &[u64]) -> Vec<i32> {
        let errno = |at| match slot.page_errno(at) {
            MOVED_UNMARKED => 0,
            errno => errno,
        };
        let mut errnos: Vec<i32> = (0..pages.len()).map(errno).collect();
        if errnos.iter().all(|&errno| errno == 0) || !rules::holds(Rule::MovedUnsaid) {
            return errnos;
        }
        let staging = self.process.agent.staging / PAGE_BYTES;
        let staged = present::present_pages(self.space, staging..staging + pages.len() as u64);
        for place in staged {
            let at = usize::try_from(place - staging).unwrap_or(usize::MAX);
            let (Some(errno), Some(&page)) = (errnos.get_mut(at), pages.get(at)) else {
                continue;
            };
            if *errno != 0 && present::present_pages(self.space, page..page + 1).is_empty() {
                self.core.stats.moved_unsaid.add(1);
                *errno = 0;
            }
        }
        errnos
    }

    /// Discard what was copied, through a userfaultfd without events (rule P5). What stayed would be taken for the next
    /// page that comes to lie there.
    fn empty_staging(&self, slot: &mut Slot<'_>) -> Result<(), AgentGone> {
        let staging = self.process.agent.staging;
        if !rules::holds(Rule::SilentStaging) {
            let bytes = WINDOW_PAGES as u64 * PAGE_BYTES;
            let arguments = [staging, bytes, advice::DONTNEED, 0];
            return slot.call(op::ADVISE, &arguments, &[]).map(drop);
        }
        for _ in 0..EMPTY_TRIES {
            if slot.call(op::STAGING_FREE, &[0, WINDOW_PAGES as u64], &[])? >= 0 {
                return Ok(());
            }
            clock::sleep(BLOCKED_PACE);
        }
        let why = "what was moved out cannot be freed";
        lost::fail_closed(self.space, staging / PAGE_BYTES, &why);
        Err(AgentGone)
    }

    /// After a fork MOVE refuses pages until their owner has written to them (rule P4).
    fn make_exclusive(&mut self, slot: &mut Slot<'_>, busy: &[u64]) -> Result<(), AgentGone> {
        if busy.is_empty() || !rules::holds(Rule::Exclusive) {
            return Ok(());
        }
        slot.call(op::POPULATE_WRITE, &[], &runs_of(busy.iter().copied()))?;
        // Each was copied in a fault of the agent's, unless nobody else had it any more.
        let copied = busy.len() as u64;
        self.space.gave(copied.cast_signed());
        self.space
            .faults_served
            .fetch_add(copied, Ordering::Relaxed);
        Ok(())
    }

    /// Copy staged pages into frames and give each a slot, or the entry that kin have proposed for the same content.
    fn copy_to_entries(
        &mut self,
        staging: u64,
        moving: &[Moving],
        mut frames: Vec<Carrier<'a>>,
        proposals: &mut Proposed<'_>,
    ) -> Vec<Stored> {
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
        let read = self.process.by_a_thread(|tid| {
            // SAFETY: each local span is a frame that this thread holds exclusively.
            unsafe { process::read_memory(tid, &remote, &local) }
        });
        if read != Ok(local.len() * PAGE_BYTES_USIZE) {
            // Staging cannot be read: either the process has ended, or its pages are lost to it.
            if let Some(lost) = moving.first() {
                lost::fail_closed(
                    self.space,
                    lost.page,
                    &format!("staging unreadable: {read:?}"),
                );
            }
            return Vec::new();
        }
        let mut stored = Vec::with_capacity(frames.len());
        for (frame, moved) in frames.into_iter().zip(moving) {
            if let Some(entry) = self.same_as_kin(frame.page(), moved.page, proposals) {
                stored.push(Stored {
                    entry,
                    fresh: false,
                });
                continue;
            }
            let shadow = self.core.working_set.leave(moved.heat);
            match frame.swap_out(self.core, shadow) {
                Ok(entry) => stored.push(Stored { entry, fresh: true }),
                Err(error) => {
                    lost::fail_closed(self.space, moved.page, &error);
                    break;
                }
            }
        }
        stored
    }

    /// The entry proposed for a page, if it holds what the page holds; the reference is then the caller's.
    fn same_as_kin(
        &mut self,
        content: &Page,
        page: u64,
        proposals: &mut Proposed<'_>,
    ) -> Option<Entry> {
        let entry = proposals.find(page)?;
        // An entry that cannot be read is its owner's trouble.
        let core = self.core;
        let same = core
            .spare_buffers
            .with(&core.engine, &core.stats, |buffers| {
                let (scratch, pages) = buffers.parts(1);
                core.engine.swap_in(entry, &mut pages[0], scratch).is_ok()
                    && pages[0].0 == content.0
            });
        same.then(|| proposals.hand_over(page)).flatten()
    }

    /// Name the entries in the page words. Returns those that are somebody's.
    fn publish(&mut self, moving: &[Moving], stored: Vec<Stored>) -> Vec<Published> {
        let mut state = self.space.lock();
        let mut published = Vec::with_capacity(stored.len());
        for (moved, Stored { entry, fresh }) in moving.iter().zip(stored) {
            match state.layout.finish(moved.ticket) {
                Some(page) => {
                    let word = PageWord::swapped(entry).with_mark(moved.marked);
                    state.layout.words.set(page, word);
                    published.push(Published { page, entry, fresh });
                }
                // A layout event took the page away meanwhile: nobody wants the content.
                None => self.core.engine.put(entry),
            }
        }
        let out: Vec<u64> = published.iter().map(|published| published.page).collect();
        self.mark(&mut state, &out);
        self.space.notify_settled();
        for fault in state.take_ready() {
            let (after, outcome) = self.server.serve(state, &fault);
            state = after;
            if outcome == Outcome::Again {
                state.deferred.push(fault);
            }
        }
        self.server.release(state);
        published
    }

    /// Serve faults that waited for memory, as far as there is some again. When everything is full, swap-ins go on:
    /// each frees its own place in the pool.
    fn serve_deferred(&mut self) {
        let governor = &self.core.limit;
        let stalled = governor.is_stalled() && governor.may_overdraw();
        self.server.serve_deferred(|state, fault| {
            let word = state.layout.words.get(fault.page);
            governor.has_headroom() || (stalled && matches!(word.state(), PageState::Swapped(_)))
        });
    }

    /// Nothing in this space can be moved. If nothing anywhere can, waiting would be for ever: memory that cannot be
    /// moved (locked, shared, pinned) is beyond the limit's reach.
    fn admit_against_the_limit(&mut self) {
        if self.core.limit.is_stalled() {
            return;
        }
        self.server.serve_deferred(|_, _| true);
    }
}

fn span(staging: u64, run: &PageRun) -> RemoteSpan {
    let bytes = usize::try_from(run.pages).unwrap_or(0) * PAGE_BYTES_USIZE;
    RemoteSpan {
        address: staging + run.address(),
        bytes,
    }
}

/// The runs of a window always fit one command.
const _: () = assert!(WINDOW_PAGES <= vswap_sys::ring::MOVE_RUNS_MAX);
const _: () = assert!(size_of::<PageRun>() == 16);
