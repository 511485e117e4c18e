//! Claims: pages under way. One thread carries each of them until it is done.
//!
//! The word of a claimed page has a mark. A layout event takes a claim away, or carries it along.

use std::ops::Range;

use crate::layout::words::PageWords;

/// Which way a claimed page travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Swap-in: the entry is being read outside the space lock.
    In,
    /// Swap-out: the page lies in staging and its entry is not published yet.
    Out,
}

/// Names one claim for as long as the space lives. It is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// One page under way.
#[derive(Debug, Clone, Copy)]
struct Claim {
    ticket: Ticket,
    page: u64,
    direction: Direction,
}

/// The claims of one space.
#[derive(Debug, Default)]
pub struct Claims {
    /// In the order of their tickets.
    list: Vec<Claim>,
    tickets: u64,
}

impl Claims {
    /// Claim a page that nobody carries.
    pub fn begin(&mut self, page: u64, direction: Direction) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.list.push(Claim {
            ticket,
            page,
            direction,
        });
        ticket
    }

    /// Where is the page of a claim now? None if the claim was taken away.
    pub fn page_of(&self, ticket: Ticket) -> Option<u64> {
        Some(self.list[self.place_of(ticket)?].page)
    }

    /// End a claim. Returns where its page is now, or None if the claim was taken away.
    pub fn end(&mut self, ticket: Ticket) -> Option<u64> {
        let place = self.place_of(ticket)?;
        Some(self.list.remove(place).page)
    }

    fn place_of(&self, ticket: Ticket) -> Option<usize> {
        let place = self
            .list
            .binary_search_by_key(&ticket, |claim| claim.ticket);
        place.ok()
    }

    /// Is any page on its way out?
    pub fn any_out(&self) -> bool {
        let mut claims = self.list.iter();
        claims.any(|claim| claim.direction == Direction::Out)
    }

    /// Is `page` claimed?
    pub fn contains(&self, page: u64) -> bool {
        self.list.iter().any(|claim| claim.page == page)
    }

    /// The claimed pages.
    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.list.iter().map(|claim| claim.page)
    }

    /// The pages of a range are gone.
    pub fn forget(&mut self, range: &Range<u64>) {
        self.list.retain(|claim| !range.contains(&claim.page));
    }

    /// The pages of `range` are now at `to` and behind it. Claims on pages on their way out move along. Claims on pages
    /// on their way in are dropped, because the pages are wanted elsewhere now.
    pub fn carry(&mut self, range: &Range<u64>, to: u64) {
        self.list
            .retain(|claim| claim.direction == Direction::Out || !range.contains(&claim.page));
        let moved = self.list.iter_mut();
        for claim in moved.filter(|claim| range.contains(&claim.page)) {
            claim.page = claim.page - range.start + to;
        }
    }

    /// Nothing is under way any more.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// Has each page at most one claim, and does its word say so?
    pub fn is_valid(&self, words: &PageWords) -> bool {
        let is_once = |page| self.pages().filter(|other| *other == page).count() == 1;
        self.pages()
            .all(|page| words.get(page).is_claimed() && is_once(page))
            && self.list.is_sorted_by_key(|claim| claim.ticket)
    }
}
