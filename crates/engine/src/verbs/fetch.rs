//! Fetching pages that are to leave an area while programs run: they are pinned in place and read.
//!
//! A physical slot's word says which virtual slot it stands behind, but only as a hint. The writer of the slot may not
//! have told the virtual slot yet, or the page has just gone and the slot is about to be freed. The virtual slot's
//! backing word decides. If it does not name this physical slot, nothing is touched, because somebody is about to
//! finish. If it does, one compare-exchange pins it, as in a swap-in. The physical slot then stays behind this virtual
//! slot until we let go ([`Engine::settle`]). Programs may read the page meanwhile. If they put it, the last thread
//! that has it pinned frees it. Neighbours are read together. A page that cannot be read stays where it is.

use super::leaving::Leaving;
use super::runs::Wanted;
use crate::base::pages::Page;
use crate::engine::Engine;
use crate::groups::GroupIndex;
use crate::words::backing_word::Pin;
use crate::words::entry::Entry;
use crate::words::slot::Word;

/// What was fetched, and what was not.
#[derive(Default)]
pub(crate) struct Fetched<'p> {
    /// The fetched pages, pinned.
    pub(crate) leaving: Vec<Leaving<&'p Page>>,
    /// The slot of each page.
    pub(crate) slots: Vec<Entry>,
    /// How many slots somebody else is using.
    pub(crate) held: usize,
    /// How many slots are directly mapped. Page tables name them, so their pages cannot be moved here.
    pub(crate) direct: usize,
    /// How many slots cannot be read, or hold a page of an unknown owner.
    pub(crate) unreadable: usize,
    /// How many slots hold pages of groups that are to be left alone.
    pub(crate) unwanted: usize,
}

impl Engine {
    /// Pins and reads the pages in these slots of one area, given with their words, if they are of groups that are
    /// `wanted`. There are no more slots than `pages`.
    pub(crate) fn fetch<'p>(
        &self,
        slots: &[(Entry, Word)],
        pages: &'p mut [Page],
        wanted: impl Fn(GroupIndex) -> bool,
    ) -> Fetched<'p> {
        debug_assert!(slots.len() <= pages.len());
        let mut fetched = Fetched::default();
        let mut pinned = Vec::with_capacity(slots.len());
        let mut groups = Vec::with_capacity(slots.len());
        for (&(physical, word), page) in slots.iter().zip(pages) {
            let Some(entry) = word.owner() else {
                // A word that is neither is damaged: nobody knows whose page it is.
                let is_direct = word.is_used();
                fetched.direct += usize::from(is_direct);
                fetched.unreadable += usize::from(!is_direct);
                continue;
            };
            match self.pin_behind(physical, entry) {
                Pin::Taken(_) => {}
                Pin::Nothing | Pin::Crowded => {
                    fetched.held += 1;
                    continue;
                }
            }
            let group = self.group_of(entry);
            if wanted(group) {
                pinned.push(Wanted::new(0, entry, physical, page));
                groups.push(group);
            } else {
                fetched.unwanted += 1;
                self.unpin_entry(entry);
            }
        }
        self.read_runs(&mut pinned);
        for (one, group) in pinned.into_iter().zip(groups) {
            if one.read.is_err() {
                fetched.unreadable += 1;
                self.unpin_entry(one.entry);
                continue;
            }
            let leaving = Leaving::new(one.entry, group, &*one.page);
            let tier = self.areas.tier_of(one.physical);
            fetched.leaving.push(leaving.out_of_tier(tier));
            fetched.slots.push(one.physical);
        }
        fetched
    }
}
