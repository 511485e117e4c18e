//! Pages on their way in. Each is claimed until it is there or given up.

use std::ops::Range;

use vswap_engine::Entry;

use crate::layout::words::{PageState, PageWord};
use crate::layout::{Direction, Ticket};
use crate::space::State;

/// A page on its way in.
#[derive(Debug)]
pub struct Incoming {
    /// Number of the page.
    pub page: u64,
    /// The entry that holds its content.
    pub entry: Entry,
    /// Its claim.
    pub ticket: Ticket,
}

/// Claim the faulting page, and those behind it in the stream's window that are swapped.
pub fn claim_window(state: &mut State, page: u64, entry: Entry, window: u64) -> Vec<Incoming> {
    let mut incoming = vec![Incoming {
        page,
        entry,
        ticket: state.layout.claim(page, Direction::In),
    }];
    incoming.extend(claim_swapped(state, page + 1, window - 1));
    incoming
}

/// Claim the swapped ones of `pages` pages from `first` on. Pages in memory, or carried by somebody else, are passed
/// over.
pub fn claim_swapped(state: &mut State, first: u64, pages: u64) -> Vec<Incoming> {
    let swapped = (first..first + pages)
        .filter_map(|page| Some((page, may_claim(state, page, state.layout.words.get(page))?)))
        .collect();
    claim_all(state, swapped)
}

/// Claim up to `most` pages of `range`, from its start on, that are swapped to `wanted` entries.
pub fn claim_matching(
    state: &mut State,
    range: Range<u64>,
    most: u64,
    wanted: impl Fn(Entry) -> bool,
) -> Vec<Incoming> {
    let words = state.layout.words.iter(range);
    let swapped = words.filter_map(|(page, word)| Some((page, may_claim(state, page, word)?)));
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let swapped = swapped
        .filter(|&(_, entry)| wanted(entry))
        .take(most)
        .collect();
    claim_all(state, swapped)
}

/// The entry of a page that is swapped and that nobody carries.
fn may_claim(state: &State, page: u64, word: PageWord) -> Option<Entry> {
    match word.state() {
        PageState::Swapped(entry)
            if !word.is_claimed() && state.layout.registered.contains(page) =>
        {
            Some(entry)
        }
        _ => None,
    }
}

fn claim_all(state: &mut State, swapped: Vec<(u64, Entry)>) -> Vec<Incoming> {
    let claim = |(page, entry)| Incoming {
        page,
        entry,
        ticket: state.layout.claim(page, Direction::In),
    };
    swapped.into_iter().map(claim).collect()
}
