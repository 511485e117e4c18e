//! The layout of a space, with page words and claims, compared with a naive model that has one row for each page.
//!
//! Every reference to an entry is followed: it is put exactly once, and never while a page still needs it.

use std::collections::BTreeSet;
use std::ops::Range;

use vswap_engine::Entry;
use vswap_pager::layout::{Direction, Layout, Ticket};
use vswap_pager::words::{PageState, PageWord};

use crate::bytes::Bytes;

/// Pages of the space. There are few, so that ranges meet.
const PAGES: u8 = 24;
/// Most pages of one range.
const RANGE_MAX: u8 = 8;
/// How raw entries of the virtual area begin.
const AREA: u64 = 1 << 48;

/// The expected state of a page.
#[derive(Debug, Clone, Copy, Default)]
struct Page {
    state: State,
    is_stale: bool,
    is_registered: bool,
    claim: Option<(Ticket, Direction)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Plain,
    Swapped(u64),
    Kept(u64),
}

impl State {
    fn entry(self) -> Option<u64> {
        match self {
            State::Plain => None,
            State::Swapped(raw) | State::Kept(raw) => Some(raw),
        }
    }
}

/// The layout and the model, and the referenced entries.
struct Run {
    layout: Layout,
    pages: Vec<Page>,
    /// Claims that have begun and not finished, including cancelled ones.
    tickets: Vec<Ticket>,
    entries_made: u64,
}

/// Does steps until the bytes end, then gives everything up.
pub fn layout(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut run = Run {
        layout: Layout::default(),
        pages: vec![Page::default(); usize::from(PAGES)],
        tickets: Vec::new(),
        entries_made: 0,
    };
    while !bytes.is_empty() {
        run.step(&mut bytes);
        run.compare();
    }
    run.end();
}

fn range(bytes: &mut Bytes<'_>) -> Range<usize> {
    let start = usize::from(bytes.below(PAGES));
    let pages = usize::from(bytes.below(RANGE_MAX)) + 1;
    start..(start + pages).min(usize::from(PAGES))
}

fn numbers(range: &Range<usize>) -> Range<u64> {
    range.start as u64..range.end as u64
}

impl Run {
    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.below(12) {
            0..2 => self.register(&range(bytes)),
            2 => self.unmap(&range(bytes)),
            3 => self.remove(&range(bytes), bytes.u8()),
            4 => self.remap(bytes),
            5 => self.discard(&range(bytes)),
            6..9 => self.claim(usize::from(bytes.below(PAGES))),
            9..11 => self.finish(bytes),
            _ if bytes.bool() => self.shed_kept(),
            _ => self.fork(),
        }
    }

    /// Compares the entries that were put with those that had to be.
    fn expect_put(mut put: Vec<u64>, mut expected: Vec<u64>) {
        put.sort_unstable();
        expected.sort_unstable();
        assert_eq!(put, expected, "references put");
    }

    /// Clears rows of the model. Returns the entries that have to be put.
    fn forget(&mut self, pages: impl Iterator<Item = usize>) -> Vec<u64> {
        let mut put = Vec::new();
        for page in pages {
            let page = &mut self.pages[page];
            put.extend(page.state.entry());
            page.state = State::Plain;
            page.is_stale = false;
            page.claim = None;
        }
        put
    }

    fn register(&mut self, range: &Range<usize>) {
        let mut put = Vec::new();
        self.layout
            .register(numbers(range), &mut |word| put.extend(raw(word)));
        let fresh: Vec<usize> = range
            .clone()
            .filter(|&page| !self.pages[page].is_registered)
            .collect();
        let stale: Vec<bool> = fresh.iter().map(|&p| self.pages[p].is_stale).collect();
        let expected = self.forget(fresh.iter().copied());
        for (&page, is_stale) in fresh.iter().zip(stale) {
            self.pages[page].is_stale = is_stale;
        }
        self.set_registered(range, true);
        Self::expect_put(put, expected);
    }

    fn unmap(&mut self, range: &Range<usize>) {
        let mut put = Vec::new();
        self.layout
            .unmap(numbers(range), &mut |word| put.extend(raw(word)));
        let mut expected = Vec::new();
        for page in range.clone() {
            expected.extend(self.forget(page..page + 1));
            self.pages[page].is_registered = false;
        }
        Self::expect_put(put, expected);
    }

    fn discard(&mut self, range: &Range<usize>) {
        let mut put = Vec::new();
        self.layout
            .discard(numbers(range), &mut |word| put.extend(raw(word)));
        let stale: Vec<bool> = range.clone().map(|p| self.pages[p].is_stale).collect();
        Self::expect_put(put, self.forget(range.clone()));
        for (page, is_stale) in range.clone().zip(stale) {
            self.pages[page].is_stale = is_stale;
        }
    }

    /// `present` has a bit for each page of the range and says which are in memory.
    fn remove(&mut self, range: &Range<usize>, present: u8) {
        let is_present = |page: &usize| present >> (page - range.start) & 1 == 1;
        let present: Vec<usize> = range.clone().filter(is_present).collect();
        let mut put = Vec::new();
        let named = present.iter().map(|&page| page as u64..page as u64 + 1);
        self.layout
            .remove(numbers(range), named, &mut |word| put.extend(raw(word)));
        let expected = self.forget(range.clone());
        for page in present {
            self.pages[page].is_stale = true;
        }
        Self::expect_put(put, expected);
    }

    /// The kernel refuses to move a mapping onto itself, and so does this.
    fn remap(&mut self, bytes: &mut Bytes<'_>) {
        let source = range(bytes);
        let to = usize::from(bytes.below(PAGES));
        let target = to..to + source.len();
        let overlap = source.start < target.end && target.start < source.end;
        if overlap || target.end > usize::from(PAGES) {
            return;
        }
        let mut put = Vec::new();
        self.layout.remap(
            source.start as u64,
            to as u64,
            source.len() as u64,
            &mut |word| put.extend(raw(word)),
        );
        let expected = self.forget(target.clone());
        for (from, to) in source.clone().zip(target) {
            self.pages[to] = std::mem::take(&mut self.pages[from]);
            // A claim for coming in stays behind, because it reads for the old place. A claim for going out moves
            // along.
            let claim = &mut self.pages[to].claim;
            *claim = claim.filter(|(_, direction)| *direction == Direction::Out);
            self.pages[to].is_registered = true;
        }
        Self::expect_put(put, expected);
    }

    fn set_registered(&mut self, range: &Range<usize>, is_registered: bool) {
        for page in range.clone() {
            self.pages[page].is_registered = is_registered;
        }
    }

    /// Claims a page: in if the page is out, out if it is here.
    fn claim(&mut self, page: usize) {
        let row = &mut self.pages[page];
        if row.claim.is_some() || row.is_stale {
            return;
        }
        let direction = match row.state {
            State::Swapped(_) => Direction::In,
            State::Plain | State::Kept(_) => Direction::Out,
        };
        let ticket = self.layout.claim(page as u64, direction);
        row.claim = Some((ticket, direction));
        self.tickets.push(ticket);
    }

    fn finish(&mut self, bytes: &mut Bytes<'_>) {
        if self.tickets.is_empty() {
            return;
        }
        let index = usize::from(bytes.u8()) % self.tickets.len();
        let ticket = self.tickets.swap_remove(index);
        let holds = |page: &Page| page.claim.is_some_and(|(other, _)| other == ticket);
        let expected = self.pages.iter().position(holds);
        let found = self.layout.finish(ticket);
        assert_eq!(found, expected.map(|page| page as u64));
        let Some(page) = expected else {
            return;
        };
        let row = &mut self.pages[page];
        row.claim = None;
        row.state = match row.state {
            State::Plain => {
                self.entries_made += 1;
                State::Swapped(AREA + self.entries_made)
            }
            State::Kept(raw) => State::Swapped(raw),
            State::Swapped(raw) => State::Kept(raw),
        };
        let word = match row.state {
            State::Kept(raw) => PageWord::kept(entry(raw)),
            State::Swapped(raw) => PageWord::swapped(entry(raw)),
            State::Plain => PageWord::PLAIN,
        };
        self.layout.words.set(page as u64, word);
    }

    fn shed_kept(&mut self) {
        let mut put = Vec::new();
        self.layout
            .shed_kept(&|_| true, &mut |word| put.extend(raw(word)));
        let mut expected = Vec::new();
        for page in &mut self.pages {
            if page.claim.is_none() && matches!(page.state, State::Kept(_)) {
                expected.extend(page.state.entry());
                page.state = State::Plain;
                page.is_stale = false;
            }
        }
        Self::expect_put(put, expected);
    }

    /// A child gets every word of its parent, without claims, and gives it up again.
    fn fork(&mut self) {
        let goes_out =
            |page: &Page| matches!(page.claim, Some((_, direction)) if direction == Direction::Out);
        let any_out = self.pages.iter().any(goes_out);
        assert_eq!(self.layout.has_pages_going_out(), any_out);
        if any_out {
            return;
        }
        let mut taken = Vec::new();
        let mut child = self.layout.fork(&mut |word| {
            taken.extend(raw(word));
            true
        });
        assert!(child.words.iter_all().all(|(_, word)| !word.is_claimed()));
        let mut put = Vec::new();
        child.clear(&mut |word| put.extend(raw(word)));
        Self::expect_put(taken.clone(), put);
        let all = self.pages.iter().filter_map(|page| page.state.entry());
        Self::expect_put(taken, all.collect());
    }

    fn compare(&self) {
        for (number, page) in (0..).zip(&self.pages) {
            let word = self.layout.words.get(number);
            let state = match word.state() {
                PageState::Plain => State::Plain,
                PageState::Swapped(entry) => State::Swapped(entry.raw()),
                PageState::Kept(entry) => State::Kept(entry.raw()),
            };
            assert_eq!(state, page.state, "page {number}");
            assert_eq!(word.is_claimed(), page.claim.is_some(), "page {number}");
            assert_eq!(self.layout.is_stale(number), page.is_stale, "page {number}");
            let is_registered = self.layout.registered.contains(number);
            assert_eq!(is_registered, page.is_registered, "page {number}");
        }
    }

    /// Gives everything up: each remaining entry is put once.
    fn end(mut self) {
        let mut put = Vec::new();
        self.layout.clear(&mut |word| put.extend(raw(word)));
        let distinct: BTreeSet<u64> = put.iter().copied().collect();
        assert_eq!(distinct.len(), put.len(), "an entry in two places");
        let left = self.pages.iter().filter_map(|page| page.state.entry());
        Self::expect_put(put, left.collect());
    }
}

fn raw(word: PageWord) -> Option<u64> {
    word.entry().map(Entry::raw)
}

fn entry(raw: u64) -> Entry {
    Entry::from_raw(raw).expect("a slot of the virtual area")
}
