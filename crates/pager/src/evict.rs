//! The evictor of a space: one thread that moves pages out.
//!
//! It takes windows of pages that its `hand` picks, or that its `kin` propose. One window goes through six steps: pick;
//! move into staging (under the space lock); copy from staging to frames; publish entries; free staging; queue for
//! `writeback`. From publishing on a fault on a page of the window is served from its frame.

mod carried;
mod hand;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vswap_engine::{AllocError, Entry, FrameMut, Mapping, Page, Scratch};
use vswap_sys::process::{self, LocalSpan, RemoteSpan};
use vswap_sys::ring::op;

use self::carried::{Carrier, Moving, Proposed, Published, Stored, Taken};
use self::hand::Hand;
use crate::agent::{AgentGone, Slot};
use crate::core::Core;
use crate::fault::{FaultServer, Outcome};
use crate::kin::Proposal;
use crate::layout::{Direction, Ticket};
use crate::reader;
use crate::regions;
use crate::rules::{self, Rule};
use crate::run::{PAGE_BYTES, PageRun, runs_of};
use crate::space::{Process, Space, State};
use crate::words::{PageState, PageWord};

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
const EEXIST: i32 = 17;
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
    core: &'a Core,
    space: &'a Arc<Space>,
    process: &'a Process,
    server: FaultServer<'a>,
    scratch: Scratch,
    hand: Hand<'a>,
    /// Pages that were busy in the last window and have been made movable: others may share them.
    shared: Vec<u64>,
    /// For looking at what an entry holds.
    page: Box<Page>,
}

/// Run the evictor until the space ends.
pub fn run(core: &Arc<Core>, space: &Arc<Space>) {
    let Some(process) = space.process.get() else {
        return;
    };
    let mut evictor = Evictor {
        core,
        space,
        process,
        server: FaultServer::new(core, space),
        scratch: core.engine.scratch(),
        hand: Hand::new(process),
        shared: Vec::new(),
        page: Box::new(Page([0; PAGE_BYTES_USIZE])),
    };
    let every = core.config.evict_all_every;
    loop {
        let wanted = space.evictor.take(every.unwrap_or(IDLE));
        if wanted.stop || space.has_ended() {
            break;
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
                    // Pages that cannot be moved (read-only, locked, pinned) are met again each lap.
                    fruitless = if moved == 0 { fruitless + 1 } else { 0 };
                    if fruitless > FRUITLESS_MAX {
                        self.admit_against_the_limit();
                        return;
                    }
                }
                Ok(Window::Blocked) if blocked < BLOCKED_MAX => {
                    blocked += 1;
                    std::thread::sleep(BLOCKED_PACE);
                }
                Ok(Window::Nothing) => {
                    self.admit_against_the_limit();
                    return;
                }
                Ok(Window::Blocked) | Err(AgentGone) => return,
            }
            // Mappings that nobody watches yet grow unasked: they come first.
            if self.space.evictor.is_rescan_wanted() {
                return;
            }
        }
    }

    fn faults_wait(&self) -> bool {
        !self.space.lock().deferred.is_empty() && !self.core.governor.has_headroom()
    }

    /// Give up what kin have moved out, so that the memory behind it becomes free.
    fn follow_kin(&mut self) {
        while !self.space.has_ended() {
            let proposals = self.space.proposals.take(WINDOW_PAGES);
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
        let process: &'a Process = self.process;
        let mut slot = process.agent.slot();
        if !proposals.is_empty() {
            let shared = self.choose(&mut self.space.lock_thawed(), &proposals);
            self.make_exclusive(&mut slot, &shared)?;
        }
        let (moving, gone_clean, mut busy) =
            match self.take_pages(&mut slot, frames.len(), &proposals)? {
                Taken::Pages {
                    moving,
                    clean,
                    busy,
                } => (moving, clean, busy),
                Taken::Nothing => return Ok(Window::Nothing),
                Taken::Blocked => {
                    proposals.give_back(self.space);
                    return Ok(Window::Blocked);
                }
            };
        let entries = self.copy_to_entries(&moving, frames, &mut proposals);
        let published = self.publish(&moving, entries);
        self.empty_staging(&mut slot)?;
        let moved = (moving.len() + gone_clean) as u64;
        let kept_by_kin = self.propose_shared(&published);
        if picked {
            self.lead(&mut busy);
            self.make_exclusive(&mut slot, &busy)?;
            // What the hand goes back for stays known as shared over a window of proposals.
            self.shared = busy;
        }
        drop(slot);
        let core = self.core;
        core.governor.gave_pages(moved.saturating_sub(kept_by_kin));
        self.space.gave(-moved.cast_signed());
        core.stats.pages_out.add(moved);
        core.stats.pages_dropped_clean.add(gone_clean as u64);
        let fresh = published
            .iter()
            .filter(|page| page.fresh)
            .map(|page| page.entry);
        core.writeback.push(core, fresh);
        self.serve_deferred();
        Ok(Window::Moved(moved))
    }

    /// Frames for a window, as many as there are; none when the writers are behind, or when no directly mapped page
    /// would find a slot. What kin propose needs one for as long as it is compared: there are some for that also when
    /// nothing can be written out.
    fn frames(&mut self, picked: bool) -> Vec<Carrier<'a>> {
        let core: &'a Core = self.core;
        let mut frames = Vec::with_capacity(WINDOW_PAGES);
        let mut most = if picked {
            core.frames_left()
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
                None if core.writeback.help(core, &mut self.scratch) => most = core.frames_left(),
                None => break,
            }
        }
        frames
    }

    /// A frame for one page. A directly mapped page gets its slot before it is moved: if there is none it stays.
    fn carrier(&self, frame: FrameMut<'a>) -> Result<Carrier<'a>, AllocError> {
        let core: &'a Core = self.core;
        match core.config.mapping {
            Mapping::Virtual => Ok(Carrier::Frame(frame)),
            Mapping::Direct => {
                let placed = core.engine.place(0, frame, core.group, Mapping::Direct);
                placed.map(Carrier::Placed).map_err(|(_, error)| error)
            }
        }
    }

    /// No page can leave: the areas have no slot, or the group may not have more. Copies of resident pages have some.
    fn found_no_slot(&self, error: AllocError) {
        let is_limited = error == AllocError::Limited;
        self.core.governor.note_full(true, is_limited);
        self.core.shed_kept_copies(|_| true);
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
        self.space.proposals.leave_out(busy);
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
        self.space.kin.propose(self.core, self.space.id, &shared);
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
        let mut pages = if proposals.is_empty() {
            self.hand.pick(self.core, &mut state, most)
        } else {
            self.choose(&mut state, proposals)
        };
        pages.truncate(most);
        if pages.is_empty() {
            return Ok(Taken::Nothing);
        }
        let tickets: Vec<Ticket> = pages
            .iter()
            .map(|&page| state.layout.claim(page, Direction::Out))
            .collect();
        let runs = runs_of(pages.iter().copied());
        if let Err(gone) = slot.call(op::MOVE_OUT, &[0], &runs) {
            for ticket in tickets {
                state.layout.finish(ticket);
            }
            space.notify_settled();
            return Err(gone);
        }
        let (mut moving, mut clean, mut busy, mut put_off) = (Vec::new(), 0, Vec::new(), false);
        for (staged, (&page, ticket)) in pages.iter().zip(tickets).enumerate() {
            let errno = self.what_moved(slot.page_errno(staged), page);
            let word = state.layout.words.get(page);
            match (errno, word.state()) {
                (0, PageState::Kept(entry)) => {
                    state.layout.finish(ticket);
                    state.layout.words.set(page, PageWord::swapped(entry));
                    let shadow = self.core.working_set.leave(word.heat());
                    self.core.engine.set_shadow(entry, shadow);
                    self.core.kept_went_out();
                    clean += 1;
                }
                (0, _) => moving.push(Moving {
                    page,
                    ticket,
                    staged,
                    heat: word.heat(),
                }),
                (errno, _) => {
                    state.layout.finish(ticket);
                    put_off |= errno == EAGAIN;
                    if errno == EBUSY {
                        busy.push(page);
                    }
                }
            }
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
        })
    }

    /// The outcome of a page's move. Staging was empty, so a page that is said to be there already has just come there,
    /// if its own place is empty now (rule P8). Under the space lock, so nobody has brought it back meanwhile.
    fn what_moved(&self, errno: i32, page: u64) -> i32 {
        let is_said_to_exist = errno == EEXIST && rules::holds(Rule::MovedUnsaid);
        if is_said_to_exist && reader::present_pages(self.space, page..page + 1).is_empty() {
            self.core.stats.moved_unsaid.add(1);
            return 0;
        }
        errno
    }

    /// Discard what was copied, through a userfaultfd without events (rule P5). What stayed would be taken for the next
    /// page that comes to lie there.
    fn empty_staging(&self, slot: &mut Slot<'_>) -> Result<(), AgentGone> {
        let staging = self.process.agent.staging;
        if !rules::holds(Rule::SilentStaging) {
            let bytes = WINDOW_PAGES as u64 * PAGE_BYTES;
            return slot.call(op::DISCARD, &[staging, bytes], &[]).map(drop);
        }
        for _ in 0..EMPTY_TRIES {
            if slot.call(op::STAGING_FREE, &[0, WINDOW_PAGES as u64], &[])? >= 0 {
                return Ok(());
            }
            std::thread::sleep(BLOCKED_PACE);
        }
        let why = "what was moved out cannot be freed";
        self.core
            .fail_closed(self.space, staging / PAGE_BYTES, &why);
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
        moving: &[Moving],
        mut frames: Vec<Carrier<'a>>,
        proposals: &mut Proposed<'_>,
    ) -> Vec<Stored> {
        frames.truncate(moving.len());
        let staging = self.process.agent.staging;
        let staged = runs_of(moving.iter().map(|m| m.staged as u64));
        let remote: Vec<RemoteSpan> = staged.iter().map(|run| span(staging, run)).collect();
        let local: Vec<LocalSpan> = frames
            .iter_mut()
            .map(|frame| LocalSpan {
                pointer: frame.as_mut_ptr(),
                bytes: PAGE_BYTES_USIZE,
            })
            .collect();
        // SAFETY: each local span is a frame that this thread holds exclusively.
        let read = unsafe { process::read_memory(self.process.pid, &remote, &local) };
        if read != Ok(local.len() * PAGE_BYTES_USIZE) {
            // Staging cannot be read: either the process has ended, or its pages are lost to it.
            if let Some(lost) = moving.first() {
                self.core.fail_closed(
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
                    self.core.fail_closed(self.space, moved.page, &error);
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
        let read = self
            .core
            .engine
            .swap_in(entry, &mut self.page, &mut self.scratch);
        let same = read.is_ok() && self.page.0 == content.0;
        same.then(|| proposals.hand_over(page)).flatten()
    }

    /// Name the entries in the page words. Returns those that are somebody's.
    fn publish(&mut self, moving: &[Moving], stored: Vec<Stored>) -> Vec<Published> {
        let mut state = self.space.lock();
        let mut published = Vec::with_capacity(stored.len());
        for (moved, Stored { entry, fresh }) in moving.iter().zip(stored) {
            match state.layout.finish(moved.ticket) {
                Some(page) => {
                    state.layout.words.set(page, PageWord::swapped(entry));
                    published.push(Published { page, entry, fresh });
                }
                // A layout event took the page away meanwhile: nobody wants the content.
                None => self.core.engine.put(entry),
            }
        }
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
        let governor = &self.core.governor;
        let stalled = governor.is_stalled() && governor.may_overdraw();
        self.server.serve_deferred(|state, fault| {
            let word = state.layout.words.get(fault.page);
            governor.has_headroom() || (stalled && matches!(word.state(), PageState::Swapped(_)))
        });
    }

    /// Nothing in this space can be moved. If nothing anywhere can, waiting would be for ever: memory that cannot be
    /// moved (locked, shared, pinned) is beyond the limit's reach.
    fn admit_against_the_limit(&mut self) {
        if self.core.governor.is_stalled() {
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
