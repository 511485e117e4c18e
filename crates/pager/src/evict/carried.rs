//! What a window carries: pages on their way out, what became of them, and what kin have proposed.
//!
//! Plain data of the evictor's thread.

use vswap_engine::{AllocError, Engine, Entry, FrameMut, GroupId, Page, Placed, Shadow};

use crate::layout::Ticket;
use crate::policy::working_set::Heat;
use crate::space::Space;
use crate::space::mailbox::Proposal;

/// A frame that a page is copied to.
pub enum Carrier<'a> {
    /// Its slot, a virtual one, is taken when the page is there: there is always one.
    Frame(FrameMut<'a>),
    /// It has its slot, one of an area.
    Placed(Placed<'a>),
}

impl Carrier<'_> {
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        match self {
            Carrier::Frame(frame) => frame.as_mut_ptr(),
            Carrier::Placed(placed) => placed.as_mut_ptr(),
        }
    }

    pub fn page(&self) -> &Page {
        match self {
            Carrier::Frame(frame) => frame,
            Carrier::Placed(placed) => placed,
        }
    }

    /// Give the page its entry.
    pub fn swap_out(
        self,
        engine: &Engine,
        group: GroupId,
        shadow: Shadow,
    ) -> Result<Entry, AllocError> {
        match self {
            Carrier::Frame(frame) => {
                let swapped = engine.swap_out(0, frame, shadow, group);
                swapped.map_err(|(_, error)| error)
            }
            Carrier::Placed(placed) => Ok(placed.publish(shadow)),
        }
    }
}

/// A page on its way out.
pub struct Moving {
    pub page: u64,
    pub ticket: Ticket,
    /// Its place in staging.
    pub staged: usize,
    /// How often in a row it had come back early.
    pub heat: Heat,
    /// It has left a marker in its place, see `marks`.
    pub marked: bool,
}

/// A page's content in swap: in a frame of its own, or behind an entry that kin share.
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

/// Proposals that an evictor has taken; what it does not use is given up in the end.
pub struct Proposed<'a> {
    engine: &'a Engine,
    proposals: Vec<Proposal>,
}

impl<'a> Proposed<'a> {
    /// In ascending order of pages.
    pub fn new(engine: &'a Engine, proposals: Vec<Proposal>) -> Proposed<'a> {
        Proposed { engine, proposals }
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

    /// Queue what is left again.
    pub fn give_back(&mut self, space: &Space) {
        space.mailbox.give_back(&mut self.proposals);
    }

    /// The reference held for a page.
    pub fn hand_over(&mut self, page: u64) -> Option<Entry> {
        let index = self.proposals.iter().position(|p| p.page == page)?;
        Some(self.proposals.remove(index).entry)
    }
}

impl Drop for Proposed<'_> {
    fn drop(&mut self) {
        self.proposals.iter().for_each(|p| self.engine.put(p.entry));
    }
}

/// What `take_pages` took.
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
