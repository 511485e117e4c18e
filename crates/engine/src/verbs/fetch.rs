//! Pages that are to leave an area while programs go on: pinned where they lie, and read.
//!
//! A slot's word says which virtual slot it stands behind, and that is only a hint: its writer may not have said so to
//! the virtual slot yet, or the page has just gone and the slot is about to be freed. It is the virtual slot's backing
//! word that decides. If it does not name this very slot, nothing is touched: somebody is about to finish. If it does,
//! one compare-exchange pins it, as a swap-in would: the slot stays behind this virtual slot until we let go
//! ([`Engine::settle`]). Programs read the page meanwhile; if they put it, freeing is left to the last who has it
//! pinned. Neighbours are read at once. A page that cannot be read stays where it is.

use super::leaving::Leaving;
use super::runs::Wanted;
use crate::base::pages::Page;
use crate::engine::Engine;
use crate::words::backing_word::Pin;
use crate::words::entry::Entry;
use crate::words::slot::Word;

/// What was fetched, and what was not.
#[derive(Default)]
pub(crate) struct Fetched<'p> {
    /// The pages, pinned.
    pub(crate) leaving: Vec<Leaving<&'p Page>>,
    /// The slot of each.
    pub(crate) slots: Vec<Entry>,
    /// Slots that somebody else is at.
    pub(crate) held: usize,
    /// Slots that are directly mapped: their pages cannot be moved behind the back of page tables.
    pub(crate) direct: usize,
    /// Slots that cannot be read, or of whose page nobody knows whose it is.
    pub(crate) unreadable: usize,
}

impl Engine {
    /// Pins and reads the pages in these slots of one area, which have these words; no more of them than `pages`.
    pub(crate) fn fetch<'p>(&self, slots: &[(Entry, Word)], pages: &'p mut [Page]) -> Fetched<'p> {
        debug_assert!(slots.len() <= pages.len());
        let mut fetched = Fetched::default();
        let mut pinned = Vec::with_capacity(slots.len());
        for (&(physical, word), page) in slots.iter().zip(pages) {
            let Some(entry) = word.owner() else {
                // If it is neither, it is damaged: nobody knows whose page it is.
                let is_direct = word.is_used();
                fetched.direct += usize::from(is_direct);
                fetched.unreadable += usize::from(!is_direct);
                continue;
            };
            match self.pin_behind(physical, entry) {
                Pin::Taken(_) => pinned.push(Wanted::new(0, entry, physical, page)),
                Pin::Nothing | Pin::Crowded => fetched.held += 1,
            }
        }
        self.read_runs(&mut pinned);
        for one in pinned {
            if one.read.is_err() {
                fetched.unreadable += 1;
                self.unpin_entry(one.entry);
                continue;
            }
            let group = self.group_of(one.entry);
            fetched.slots.push(one.physical);
            fetched
                .leaving
                .push(Leaving::new(one.entry, group, &*one.page));
        }
        fetched
    }
}
