//! Pages that cannot be given back, while nobody knows yet why: the process may just be ending.
//!
//! Each of them stays claimed. So nobody carries the page, nobody gives up its entry, and whoever touches it waits.

use crate::layout::{Direction, Ticket};
use crate::space::State;

/// Such a page.
#[derive(Debug)]
pub struct LostPage {
    /// Number of the page.
    pub page: u64,
    /// Its claim. A layout event that takes the page away cancels it.
    pub ticket: Ticket,
    /// Why it cannot be given back.
    pub why: String,
}

/// Such pages of a space.
#[derive(Debug, Default)]
pub struct Unexplained {
    /// In the order in which they were met.
    pub pages: Vec<LostPage>,
    /// A thread waits for the explanation, or the process was stopped for want of one.
    pub is_awaited: bool,
}

impl State {
    /// Note a page that cannot be given back. A page that somebody carries by now is that one's to look after.
    pub fn note_lost(&mut self, page: u64, why: String) {
        if !self.layout.words.get(page).is_claimed() {
            let ticket = self.layout.claim(page, Direction::In);
            self.unexplained.pages.push(LostPage { page, ticket, why });
        }
    }

    /// Is this a page whose loss nobody has explained yet?
    pub fn is_unexplained(&self, page: u64) -> bool {
        self.unexplained.pages.iter().any(|lost| lost.page == page)
    }
}
