//! What a window carries: pages on their way out, how they ended, and what kin have proposed.
//!
//! Plain data of the evictor's thread.

use vswap_engine::{Engine, Entry};

use crate::layout::Ticket;
use crate::policy::working_set::Heat;
use crate::space::Space;
use crate::space::flight::Seat;
use crate::space::kin::Kin;
use crate::space::mailbox::Proposal;

/// A page on its way out.
pub struct Moving {
    pub page: u64,
    pub ticket: Ticket,
    /// Its place in staging.
    pub staged: usize,
    /// How often in a row the page had come back early.
    pub heat: Heat,
    /// The page has left a marker in its place, see `marks`.
    pub marked: bool,
}

/// Where the content of a page is now: in a fresh frame, or behind an entry shared with kin.
pub struct Copied {
    pub entry: Entry,
    pub fresh: bool,
}

/// A page that is out.
pub struct Published {
    pub page: u64,
    pub entry: Entry,
    pub fresh: bool,
}

/// Proposals that an evictor has taken. What it does not use is put when this is dropped.
pub struct Proposed<'a> {
    engine: &'a Engine,
    proposals: Vec<Proposal>,
    /// Pages whose reference is handed over, and their seats.
    handed: Vec<(u64, Seat)>,
}

impl<'a> Proposed<'a> {
    /// `proposals` ascend by page.
    pub fn new(engine: &'a Engine, proposals: Vec<Proposal>) -> Proposed<'a> {
        Proposed {
            engine,
            proposals,
            handed: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.proposals.is_empty()
    }

    pub fn pages(&self) -> Vec<u64> {
        let mut pages: Vec<u64> = self.proposals.iter().map(|p| p.page).collect();
        pages.dedup();
        pages
    }

    pub fn find(&self, page: u64) -> Option<Entry> {
        let found = self.proposals.iter().find(|proposal| proposal.page == page);
        found.map(|proposal| proposal.entry)
    }

    /// Keep those of at most `most` pages, and queue the rest again.
    pub fn limit(&mut self, most: usize, space: &Space) {
        if self.proposals.len() > most {
            let mut rest = self.proposals.split_off(most);
            space.mailbox.give_back(&mut rest);
        }
    }

    /// Queue again what is left.
    pub fn give_back(&mut self, space: &Space) {
        space.mailbox.give_back(&mut self.proposals);
    }

    /// Hand over the reference held for a page.
    pub fn hand_over(&mut self, page: u64) -> Option<Entry> {
        let index = self.proposals.iter().position(|p| p.page == page)?;
        let Proposal { entry, seat, .. } = self.proposals.remove(index);
        self.handed.push((page, seat));
        Some(entry)
    }

    /// This space has given up all proposed pages but those `still_here` (ascending), or never had them. Returns how
    /// many pages nobody has any more.
    pub fn give_up(&mut self, kin: &Kin, still_here: &[u64]) -> u64 {
        let proposals = self.proposals.iter();
        let seats = proposals.map(|proposal| (proposal.page, proposal.seat.clone()));
        let seats = seats.chain(self.handed.drain(..));
        let is_gone = |(page, _): &(u64, Seat)| still_here.binary_search(page).is_err();
        kin.gave_up(seats.filter(is_gone).map(|(_, seat)| seat))
    }
}

impl Drop for Proposed<'_> {
    fn drop(&mut self) {
        self.proposals.iter().for_each(|p| self.engine.put(p.entry));
    }
}

/// The result of `take_pages`.
pub enum Staged {
    Pages {
        moving: Vec<Moving>,
        clean: usize,
        busy: Vec<u64>,
        refused: Vec<u64>,
    },
    Nothing,
    Blocked,
}
