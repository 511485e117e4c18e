//! One window: pages that leave a program together.

use std::sync::atomic::Ordering;

use vswap_engine::{Entry, Placed};

use super::carried::{Copied, Moving, Proposed, Published, Staged};
use super::{Evictor, WINDOW_PAGES};
use crate::events::layout_events;
use crate::fault::Outcome;
use crate::layout::words::PageWord;
use crate::space::State;
use crate::space::agent::{AgentGone, Slot};
use crate::space::kin::Turn;
use crate::space::mailbox::Proposal;
use crate::space::process::Process;

/// Most pages that were made exclusive and have not left.
const SHARED_MAX: usize = 4 * WINDOW_PAGES;

/// Which pages shall leave.
#[derive(Debug)]
pub(super) enum Choice {
    /// Those that the hand picks.
    Hand,
    /// Those that kin have proposed.
    Kin(Vec<Proposal>),
    /// These, in address order, as far as they can.
    Pages(Vec<u64>),
}

impl Choice {
    /// Proposals, and pages that are named.
    fn parts(self) -> (Vec<Proposal>, Option<Vec<u64>>) {
        match self {
            Choice::Hand => (Vec::new(), None),
            Choice::Kin(proposals) => (proposals, None),
            Choice::Pages(pages) => (Vec::new(), Some(pages)),
        }
    }
}

/// How a window went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Window {
    /// So many pages left the program.
    Moved(u64),
    /// A whole lap found nothing to move.
    Nothing,
    /// Try again a little later.
    Blocked,
}

impl<'a> Evictor<'a> {
    /// One window, all six steps.
    pub(super) fn window(&mut self, choice: Choice) -> Result<Window, AgentGone> {
        let (proposals, named) = choice.parts();
        let mut proposals = Proposed::new(&self.serving.engine, proposals);
        let picked = proposals.is_empty();
        let frames = match self.frames(picked) {
            frames if frames.is_empty() => {
                proposals.give_back(self.space);
                return Ok(Window::Blocked);
            }
            frames => frames,
        };
        // A page that is made exclusive was copied, so it has to leave in the same window.
        proposals.limit(frames.len(), self.space);
        let process: &'a Process = self.process;
        let mut slot = process.agent.slot();
        // Checked with the slot held. Whoever confines the space sets this first and takes the slot for the rest. So
        // does who parks the run: an agent that is stopped in the middle of a window leaves the space closed.
        if self.space.is_confined() || self.serving.parking.is_parked() {
            proposals.give_back(self.space);
            return Ok(match picked {
                true => Window::Nothing,
                false => Window::Blocked,
            });
        }
        // With the slot held, so that no wait lies between this look and the pages that are picked.
        self.hand.note_pins(self.space);
        let window = self.carry_out(&mut slot, frames, proposals, named.as_deref());
        drop(slot);
        if let Ok(Window::Moved(_)) = window {
            self.serve_deferred();
        }
        window
    }

    /// A window with its frames, with the agent's slot held.
    fn carry_out(
        &mut self,
        slot: &mut Slot<'_>,
        frames: Vec<Placed<'a>>,
        mut proposals: Proposed<'_>,
        named: Option<&[u64]>,
    ) -> Result<Window, AgentGone> {
        let picked = proposals.is_empty();
        let mut still_here = Vec::new();
        if !picked {
            still_here = self.choose(&mut self.space.lock_thawed(), &proposals);
            self.make_exclusive(slot, &still_here)?;
        }
        let (moving, gone_clean, mut busy, refused) =
            match self.take_pages(slot, frames.len(), &proposals, named)? {
                Staged::Pages {
                    moving,
                    clean,
                    busy,
                    refused,
                } => (moving, clean, busy, refused),
                Staged::Nothing => {
                    proposals.give_up(&self.space.kin, &still_here);
                    return Ok(Window::Nothing);
                }
                Staged::Blocked => {
                    proposals.give_back(self.space);
                    return Ok(Window::Blocked);
                }
            };
        let staging = self.process.agent.staging;
        let entries = self.copy_to_entries(staging, &moving, frames, &mut proposals);
        let mut published = self.publish(&moving, entries);
        self.empty_staging(slot)?;
        let mut moved = (moving.len() + gone_clean) as u64;
        let mut kept_by_kin = self.propose_shared(&published);
        if !refused.is_empty() {
            let gone = self.take_refused(slot, &refused, &mut proposals)?;
            moved += gone.moved;
            kept_by_kin += gone.kept_by_kin;
            published.extend(gone.published);
        }
        if picked && named.is_none() {
            self.lead(&mut busy);
            self.make_exclusive(slot, &busy)?;
            self.note_shared(busy);
        }
        let freed = if picked {
            moved.saturating_sub(kept_by_kin)
        } else {
            // Each of these was copied before it left. What becomes free is the page that all shared.
            let has_left = |page: &u64| published.iter().any(|left| left.page == *page);
            still_here.retain(|page| !has_left(page));
            proposals.give_up(&self.space.kin, &still_here)
        };
        self.reckon(moved, gone_clean as u64, freed);
        let fresh = published
            .iter()
            .filter(|page| page.fresh)
            .map(|page| page.entry);
        let areas = &self.serving.areas;
        self.evicting.write_queue.push(areas, fresh);
        Ok(Window::Moved(moved))
    }

    /// So many pages have moved out, some of them without a copy, and so much memory has become free.
    fn reckon(&self, moved: u64, gone_clean: u64, freed: u64) {
        let serving = self.serving;
        serving.limit.gave_pages(freed);
        self.space.gave(-moved.cast_signed());
        serving.stats.pages_out.add(moved);
        serving.stats.pages_dropped_clean.add(gone_clean);
    }

    /// Proposed pages that are in memory and have no entry yet. A page with an entry is not shared any more.
    fn choose(&mut self, state: &mut State, proposals: &Proposed<'_>) -> Vec<u64> {
        let mut pages = self.hand.choose(state, &proposals.pages());
        pages.retain(|page| state.layout.words.get(*page).entry().is_none());
        pages
    }

    /// Keep those of the busy pages that this evictor goes back for, if it leads its kin. They are none if it has just
    /// been back, or if kin have proposed them. The order of the questions matters: kin propose pages before they cease
    /// to lead.
    fn lead(&mut self, busy: &mut Vec<u64>) {
        let kin = &self.space.kin;
        let left_to_kin = &self.space.mailbox.left_to_kin;
        let Some(&first) = busy.first() else {
            left_to_kin.store(false, Ordering::Relaxed);
            if self.shared.is_empty() {
                kin.lead_no_more(self.space.id);
            }
            return;
        };
        let turn = kin.lead(self.space.id);
        left_to_kin.store(turn != Turn::Free, Ordering::Relaxed);
        if turn == Turn::Later && !kin.is_held_up() {
            self.hand.return_to(first);
        }
        if turn != Turn::Free {
            return busy.clear();
        }
        let in_hands_order = busy.clone();
        // The hand may have come around within the window.
        busy.sort_unstable();
        self.space.mailbox.leave_out(busy);
        let is_left = |page: &u64| busy.binary_search(page).is_ok();
        let first = in_hands_order.into_iter().find(is_left);
        if !first.is_some_and(|first| self.hand.retry_busy(first)) {
            busy.clear();
        }
    }

    /// These were shared and have been made exclusive. The hand goes back for them, but if there are few frames it does
    /// not take all at once. They stay known until they leave: kin that heard nothing of one would store it again.
    fn note_shared(&mut self, busy: Vec<u64>) {
        if self.shared.len() > SHARED_MAX {
            // They do not leave.
            self.shared.clear();
        }
        self.shared.extend(busy);
        self.shared.sort_unstable();
        self.shared.dedup();
    }

    /// Propose to kin the pages that they may share. Returns how many stay in memory until kin follow.
    fn propose_shared(&mut self, published: &[Published]) -> u64 {
        let is_shared = |page: u64| self.shared.binary_search(&page).is_ok();
        let shared: Vec<(u64, Entry)> = published
            .iter()
            .filter(|page| is_shared(page.page))
            .map(|page| (page.page, page.entry))
            .collect();
        let has_left = |page: &u64| shared.iter().any(|(left, _)| left == page);
        self.shared.retain(|page| !has_left(page));
        let engine = &self.serving.engine;
        self.space.kin.propose(engine, self.space.id, &shared)
    }

    /// Pick a window and have the agent move it into staging. The space is locked or closed all the time.
    fn take_pages(
        &mut self,
        slot: &mut Slot<'_>,
        most: usize,
        proposals: &Proposed<'_>,
        named: Option<&[u64]>,
    ) -> Result<Staged, AgentGone> {
        let space = self.space;
        let mut state = space.lock_thawed();
        layout_events::decide(&self.serving.references, space, &mut state, slot);
        let mut pages = if let Some(named) = named {
            self.hand.choose(&mut state, named)
        } else if proposals.is_empty() {
            let mut pages = self.hand.pick(&self.serving.stats, &mut state, most);
            let are_none = pages.is_empty();
            // As the last one that has it, this space could move such a page out, and would store it again.
            space.mailbox.leave_out(&mut pages);
            if pages.is_empty() && !are_none {
                return Ok(Staged::Blocked);
            }
            pages
        } else {
            self.choose(&mut state, proposals)
        };
        pages.truncate(most);
        self.move_pages(slot, state, &pages)
    }

    /// Write the entries into the page words. Returns the pages that still exist.
    pub(super) fn publish(&mut self, moving: &[Moving], stored: Vec<Copied>) -> Vec<Published> {
        let mut state = self.space.lock_shared();
        let mut published = Vec::with_capacity(stored.len());
        for (moved, Copied { entry, fresh }) in moving.iter().zip(stored) {
            match state.layout.finish(moved.ticket) {
                Some(page) => {
                    let word = PageWord::swapped(entry).with_mark(moved.marked);
                    state.layout.words.set(page, word);
                    published.push(Published { page, entry, fresh });
                }
                // A layout event has taken the page away meanwhile, so nobody needs the content.
                None => self.serving.engine.put(entry),
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
}
