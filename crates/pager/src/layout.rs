//! What the pager knows of one process's memory: registered ranges, page words, and pages under way.
//!
//! Pure data. Every method is one transition under the space lock. So layout events (unmap, remap, remove, fork) and
//! claims can be tested without a kernel. Numbers are page numbers.

pub mod pins;
pub mod words;
mod claims;

use std::ops::Range;

use vswap_engine::Entry;

use crate::base::ranges::RangeSet;
use crate::base::rules::{self, Rule};
use crate::layout::claims::Claims;
use crate::layout::pins::Pins;
use crate::layout::words::{PageState, PageWord, PageWords};

pub use self::claims::{Direction, Ticket};

/// The state of one space; the space lock protects all of it.
#[derive(Debug, Default)]
pub struct Layout {
    /// Ranges for which the kernel reports faults and events. The set may lag behind the kernel after a growing mremap.
    /// A fault outside the set is served all the same, and the next rescan corrects the set.
    pub registered: RangeSet,
    /// A word for each page.
    pub words: PageWords,
    /// Pages that are never evicted. They are known by addresses that the kernel remembers. So they neither move with a
    /// mapping nor go away with it.
    pub pinned: Pins,
    /// Ranges that are never registered: those that the program watches with its own userfaultfd, and those whose
    /// content a fork does not hand down (MADV_WIPEONFORK).
    pub foreign: RangeSet,
    /// Pages that a REMOVE event has named while they were present: the kernel may still discard their content, so they
    /// may not be evicted until they were seen missing (rule P1). Their words are plain. One event can name a terabyte,
    /// so these are ranges, not a mark in each word.
    stale: RangeSet,
    /// Pages of a forked child whose content could not be handed down to it. `events::fork` sees to it that nobody
    /// reads anything else there, before the child is served. Empty from then on.
    pub lost: RangeSet,
    claims: Claims,
}

impl Layout {
    /// Claim `page`: until `finish` nobody else carries it.
    pub fn claim(&mut self, page: u64, direction: Direction) -> Ticket {
        debug_assert!(!self.words.get(page).is_claimed());
        let ticket = self.claims.begin(page, direction);
        self.words.set(page, self.words.get(page).with_claim(true));
        ticket
    }

    /// Does the claim still hold, and its page lie where it was claimed?
    pub fn carries(&self, ticket: Ticket, page: u64) -> bool {
        self.claims.page_of(ticket) == Some(page)
    }

    /// End a claim. Returns where the page is now, because a remap carries pages on their way out along. Returns None
    /// if a layout event has taken the page away meanwhile; the caller must then not write its word.
    pub fn finish(&mut self, ticket: Ticket) -> Option<u64> {
        let page = self.claims.end(ticket)?;
        self.words.set(page, self.words.get(page).with_claim(false));
        Some(page)
    }

    /// True while any page is on its way out.
    pub fn has_pages_going_out(&self) -> bool {
        self.claims.any_out()
    }

    /// A fresh mapping was registered. The words in its place belong to a mapping that is gone, so they are dropped.
    /// Stale pages stay stale: the kernel may have watched the mapping before the layout knew it, and may still be
    /// about to discard.
    pub fn register(&mut self, range: Range<u64>, put: &mut dyn FnMut(PageWord)) {
        let mut fresh = RangeSet::new();
        fresh.insert(range.clone());
        for known in self.registered.overlaps(range.clone()) {
            fresh.remove(known);
        }
        for part in fresh.iter() {
            self.discard(part, put);
        }
        self.registered.insert(range);
        debug_assert!(self.claims.is_valid(&self.words));
    }

    /// The kernel has no registered mapping in `range` any more. An UNMAP event alone does not say that, see
    /// `layout_events`. Foreign memory in `range` stays foreign: it is not registered either and may still be there.
    pub fn unmap(&mut self, range: Range<u64>, put: &mut dyn FnMut(PageWord)) {
        self.forget(range.clone(), put);
        self.registered.remove(range);
        debug_assert!(self.claims.is_valid(&self.words));
    }

    /// A call has just made new memory in `range`. Everything that lay there is gone, foreign memory as well.
    pub fn renew(&mut self, range: Range<u64>, put: &mut dyn FnMut(PageWord)) {
        self.unmap(range.clone(), put);
        self.foreign.remove(range);
    }

    /// REMOVE: the content will be zero. `present` are the pages of `range` in memory at this moment. The kernel
    /// discards them only after the event was read. So they may not be evicted until they were seen missing.
    pub fn remove(
        &mut self,
        range: Range<u64>,
        present: impl Iterator<Item = Range<u64>>,
        put: &mut dyn FnMut(PageWord),
    ) {
        self.forget(range, put);
        // Rule P1.
        if rules::holds(Rule::Stale) {
            present.for_each(|part| self.stale.insert(part));
        }
    }

    /// May the kernel still discard a page that is in memory?
    pub fn is_stale(&self, page: u64) -> bool {
        self.stale.contains(page)
    }

    /// May the kernel still discard any page of a range that is in memory?
    pub fn has_stale(&self, range: Range<u64>) -> bool {
        self.stale.overlaps(range).next().is_some()
    }

    /// Pages were seen missing: the discard that the REMOVE event announced has happened.
    pub fn seen_missing(&mut self, range: Range<u64>) {
        if self.has_stale(range.clone()) {
            self.stale.remove(range);
        }
    }

    /// REMAP: `pages` pages moved from page `from` to page `to`.
    pub fn remap(&mut self, from: u64, to: u64, pages: u64, put: &mut dyn FnMut(PageWord)) {
        let (source, target) = (from..from + pages, to..to + pages);
        // The kernel gave the target away, so whatever lay there was unmapped before. Its UNMAP event may come later
        // and then changes nothing, because the kernel has a registered mapping in its place.
        self.registered.remove(target.clone());
        self.forget(target.clone(), put);
        self.claims.carry(&source, to);
        for (page, word) in self.words.take(source.clone()) {
            let moving_out = word.is_claimed() && self.claims.contains(page - from + to);
            self.words
                .set(page - from + to, word.with_claim(moving_out));
        }
        self.registered.remove(source.clone());
        self.foreign.remove(target.clone());
        self.registered.insert(target);
        move_set(&mut self.foreign, &source, to);
        move_set(&mut self.stale, &source, to);
        debug_assert!(self.claims.is_valid(&self.words));
    }

    /// A range is not to be watched, except where it is watched already.
    pub fn leave_alone(&mut self, range: Range<u64>) {
        let mut rest = RangeSet::of(range.clone());
        for watched in self.registered.overlaps(range) {
            rest.remove(watched);
        }
        rest.iter().for_each(|part| self.foreign.insert(part));
    }

    /// An mremap has taken `from` to `to`. No event tells where foreign memory is now. One mapping may have grown or
    /// shrunk. Several mappings keep their sizes, and some of them may be foreign. Returns false unless all are
    /// foreign.
    pub fn move_foreign(&mut self, from: Range<u64>, to: Range<u64>, keeps_old: bool) -> bool {
        let alone: Vec<Range<u64>> = self.foreign.overlaps(from.clone()).collect();
        let is_one = alone.first().is_some_and(|first| first.start == from.start);
        let is_resized = from.end - from.start != to.end - to.start;
        let is_all = is_one && (is_resized || alone == [from.clone()]);
        if !keeps_old {
            self.foreign.remove(from.clone());
        }
        if is_all {
            self.foreign.insert(to);
        } else {
            for part in alone {
                let place = part.start - from.start + to.start..part.end - from.start + to.start;
                self.foreign.insert(place);
            }
        }
        is_all
    }

    /// The layout of a forked child. `dup` counts every entry once more. No page may be on its way out. If `dup`
    /// returns false it could not take the reference, and the page is lost for the child. One that it has in memory
    /// only loses the entry behind it.
    #[must_use]
    pub fn fork(&self, dup: &mut dyn FnMut(PageWord) -> bool) -> Layout {
        debug_assert!(!self.has_pages_going_out());
        let mut child = Layout {
            registered: self.registered.clone(),
            words: self.words.clone(),
            pinned: self.pinned.of_child(),
            foreign: self.foreign.clone(),
            stale: self.stale.clone(),
            ..Layout::default()
        };
        for page in self.claims.pages() {
            let word = child.words.get(page);
            child.words.set(page, word.with_claim(false));
        }
        let entries = child.words.iter_all();
        let entries = entries.filter(|(_, word)| word.entry().is_some());
        let failed: Vec<(u64, PageWord)> = entries.filter(|(_, word)| !dup(*word)).collect();
        for (page, word) in failed {
            child.words.set(page, PageWord::PLAIN);
            if matches!(word.state(), PageState::Swapped(_)) {
                child.lost.insert(page..page + 1);
            }
        }
        child
    }

    /// Give up the `wanted` entries that are kept behind resident pages. These pages stay write-protected until the
    /// next write to them.
    pub fn shed_kept(&mut self, wanted: &dyn Fn(Entry) -> bool, put: &mut dyn FnMut(PageWord)) {
        let is_wanted = |word: PageWord| match word.state() {
            PageState::Kept(entry) => !word.is_claimed() && wanted(entry),
            PageState::Plain | PageState::Swapped(_) => false,
        };
        self.words.take_wanted(is_wanted, put);
    }

    /// Forget everything, because the space has ended. The words are left to the caller, who has to give up their
    /// entries: that takes the longer the more is out, so it is not done here.
    #[must_use]
    pub fn end(&mut self) -> PageWords {
        self.registered = RangeSet::new();
        self.stale = RangeSet::new();
        self.claims.clear();
        std::mem::take(&mut self.words)
    }

    /// Give up every word, because the space has ended.
    pub fn clear(&mut self, put: &mut dyn FnMut(PageWord)) {
        self.end().into_references().for_each(put);
    }

    /// The content of `range` is gone already, whatever the words say. Stale pages stay stale, because other discards
    /// may still be under way.
    pub fn discard(&mut self, range: Range<u64>, put: &mut dyn FnMut(PageWord)) {
        self.forget_words(range, put);
    }

    /// Is everything consistent? Looks at every word, so it is for tests.
    pub fn is_valid(&self) -> bool {
        let claimed = self.words.iter_all().filter(|(_, word)| word.is_claimed());
        let is_known = |page: u64| self.registered.contains(page);
        self.words.is_valid()
            && self.registered.is_valid()
            && self.foreign.is_valid()
            && self.stale.is_valid()
            && self.claims.is_valid(&self.words)
            && claimed.count() == self.claims.pages().count()
            && self.words.iter_all().all(|(page, word)| {
                word.entry().is_none() || (is_known(page) && !self.is_stale(page))
            })
    }

    /// Drop all that is known of the pages of `range`.
    fn forget(&mut self, range: Range<u64>, put: &mut dyn FnMut(PageWord)) {
        self.seen_missing(range.clone());
        self.forget_words(range, put);
    }

    /// Drop the words of `range` with their references and claims.
    fn forget_words(&mut self, range: Range<u64>, put: &mut dyn FnMut(PageWord)) {
        self.claims.forget(&range);
        let words = self.words.take(range).map(|(_, word)| word);
        words.filter(|word| word.entry().is_some()).for_each(put);
    }
}

fn move_set(set: &mut RangeSet, source: &Range<u64>, to: u64) {
    for part in set.remove(source.clone()) {
        set.insert(part.start - source.start + to..part.end - source.start + to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vswap_engine::Entry;

    /// Raw entries of the virtual area begin with this.
    const AREA: u64 = 1 << 48;

    fn entry(slot: u64) -> Entry {
        Entry::from_raw(AREA + slot).expect("a slot of the virtual area")
    }

    /// Swapped and kept pages.
    fn counts(layout: &Layout) -> (usize, usize) {
        let states = layout.words.iter_all().map(|(_, word)| word.state());
        let (kept, swapped): (Vec<_>, Vec<_>) =
            states.partition(|state| matches!(state, PageState::Kept(_)));
        (
            swapped
                .iter()
                .filter(|state| **state != PageState::Plain)
                .count(),
            kept.len(),
        )
    }

    fn ranges(set: &RangeSet) -> Vec<Range<u64>> {
        set.iter().collect()
    }

    fn raw(word: PageWord) -> u64 {
        word.entry().map_or(0, |entry| entry.raw() - AREA)
    }

    fn layout(pages: Range<u64>) -> Layout {
        let mut layout = Layout::default();
        layout.register(pages.clone(), &mut |_| panic!("nothing to put"));
        for page in pages {
            layout.words.set(page, PageWord::swapped(entry(page)));
        }
        layout
    }

    #[test]
    fn what_does_not_fit_together_is_seen() {
        assert!(layout(10..20).is_valid());
        let broken: [fn(&mut Layout); 4] = [
            |it| drop(it.registered.remove(12..14)),
            |it| {
                it.stale.insert(12..13);
            },
            |it| {
                it.words.set(12, it.words.get(12).with_claim(true));
            },
            |it| {
                let word = it.words.get(12);
                it.claim(12, Direction::In);
                it.words.set(12, word);
            },
        ];
        for break_it in broken {
            let mut it = layout(10..20);
            break_it(&mut it);
            assert!(!it.is_valid());
        }
    }

    #[test]
    fn unmap_puts_what_it_drops_and_nothing_else() {
        let mut it = layout(10..20);
        let mut put = Vec::new();
        it.unmap(12..15, &mut |w| put.push(raw(w)));
        assert_eq!(put, [12, 13, 14]);
        assert_eq!(ranges(&it.registered), [10..12, 15..20]);
        assert_eq!(counts(&it), (7, 0));
        assert!(it.is_valid());
    }

    #[test]
    fn remap_carries_words_and_replaces_the_target() {
        let mut it = layout(10..20);
        it.register(30..40, &mut |_| ());
        it.words.set(31, PageWord::swapped(entry(99)));
        let mut put = Vec::new();
        it.remap(10, 30, 10, &mut |w| put.push(raw(w)));
        assert_eq!(put, [99]);
        assert_eq!(it.words.get(31).state(), PageState::Swapped(entry(11)));
        assert_eq!(it.words.get(11), PageWord::PLAIN);
        assert_eq!(ranges(&it.registered), vec![30..40; 1]);
        assert!(it.is_valid());
    }

    #[test]
    fn removal_of_a_page_under_way_cancels_its_claim() {
        let mut it = layout(10..12);
        let ticket = it.claim(10, Direction::In);
        let mut put = Vec::new();
        it.remove(10..11, std::iter::once(10..11), &mut |w| put.push(raw(w)));
        assert_eq!(put, [10]);
        assert!(it.is_stale(10));
        assert_eq!(it.finish(ticket), None);
        assert!(it.is_stale(10));
        assert_eq!(it.words.get(10), PageWord::PLAIN);
    }

    #[test]
    fn a_page_on_its_way_out_follows_a_remap_and_one_on_its_way_in_does_not() {
        let mut it = layout(10..12);
        it.words.set(10, PageWord::PLAIN);
        let out = it.claim(10, Direction::Out);
        let back = it.claim(11, Direction::In);
        it.remap(10, 50, 2, &mut |_| ());
        assert!(it.words.get(50).is_claimed() && !it.words.get(51).is_claimed());
        assert_eq!(it.finish(back), None);
        assert_eq!(it.finish(out), Some(50));
        assert_eq!(it.words.get(51).state(), PageState::Swapped(entry(11)));
        assert!(it.is_valid());
    }

    #[test]
    fn a_child_references_every_entry_once_more() {
        let it = layout(10..20);
        let mut dup = Vec::new();
        let child = it.fork(&mut |e| {
            dup.push(raw(e));
            true
        });
        assert_eq!(dup, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
        assert_eq!((counts(&child), ranges(&child.lost)), ((10, 0), vec![]));
    }

    #[test]
    fn what_a_child_has_no_reference_to_is_lost_unless_it_is_in_memory() {
        let mut it = layout(10..20);
        it.words.set(12, PageWord::kept(entry(12)));
        let child = it.fork(&mut |word| !(11..14).contains(&raw(word)));
        assert_eq!(counts(&child), (7, 0));
        assert!((11..14).all(|page| child.words.get(page) == PageWord::PLAIN));
        assert_eq!(ranges(&child.lost), [11..12, 13..14]);
        assert!(child.is_valid() && ranges(&it.lost).is_empty());
    }

    #[test]
    fn a_fresh_mapping_starts_without_old_words() {
        let mut it = layout(10..20);
        it.registered.remove(12..14);
        let mut put = Vec::new();
        it.register(8..22, &mut |w| put.push(raw(w)));
        assert_eq!(put, [12, 13]);
        assert_eq!(ranges(&it.registered), vec![8..22; 1]);
        assert!(it.is_valid());
    }

    #[test]
    fn nothing_is_left_of_a_mapping_that_is_gone() {
        let mut it = layout(10..20);
        it.remove(14..15, std::iter::once(14..15), &mut |_| ());
        let ticket = it.claim(13, Direction::In);
        let mut put = Vec::new();
        it.unmap(12..16, &mut |w| put.push(raw(w)));
        assert_eq!(put, [12, 13, 15]);
        assert!((12..16).all(|page| it.words.get(page) == PageWord::PLAIN));
        assert_eq!(it.finish(ticket), None);
        assert_eq!(ranges(&it.registered), [10..12, 16..20]);
        assert!(it.is_valid());
    }

    #[test]
    fn memory_that_is_left_alone_stays_so_where_it_moves_and_grows() {
        let mut it = layout(10..12);
        assert!(!it.move_foreign(10..12, 50..54, false));
        // The call behind an UNMAP event may have failed.
        it.foreign.insert(30..34);
        it.unmap(28..33, &mut |_| {});
        assert_eq!(ranges(&it.foreign), vec![30..34; 1]);
        it.renew(28..40, &mut |_| {});
        assert_eq!(ranges(&it.foreign), []);
        it.foreign.insert(20..24);
        assert!(it.move_foreign(20..24, 20..30, false));
        assert!(it.move_foreign(20..30, 60..65, false));
        assert_eq!(ranges(&it.foreign), vec![60..65; 1]);
        assert!(it.move_foreign(60..65, 80..85, true));
        assert_eq!(ranges(&it.foreign), [60..65, 80..85]);
        // Several mappings, some of them foreign.
        assert!(!it.move_foreign(58..62, 158..162, false));
        assert!(!it.move_foreign(80..90, 180..190, false));
        assert_eq!(ranges(&it.foreign), [62..65, 160..162, 180..185]);
        // What is watched does not become foreign.
        it.leave_alone(5..15);
        assert_eq!(
            ranges(&it.foreign),
            [5..10, 12..15, 62..65, 160..162, 180..185]
        );
        it.foreign.remove(5..15);
        // Whatever lay at the target is gone.
        it.registered.insert(100..102);
        it.remap(100, 183, 2, &mut |_| {});
        assert_eq!(ranges(&it.foreign), [62..65, 160..162, 180..183]);
    }

    #[test]
    fn a_discard_of_a_terabyte_costs_no_more_than_one_of_a_page() {
        let pages = 1 << 28;
        let mut it = Layout::default();
        it.register(0..pages, &mut |_| panic!("nothing to put"));
        it.remove(0..pages, std::iter::once(0..pages), &mut |_| {});
        assert!(it.is_stale(pages - 1) && it.has_stale(7..8));
        it.seen_missing(5..9);
        assert!(it.is_stale(4) && !it.is_stale(8) && it.is_stale(9));
        it.remap(0, pages, 16, &mut |_| {});
        assert_eq!(ranges(&it.stale), [16..pages + 5, pages + 9..pages + 16]);
        assert!(it.is_valid());
    }

    #[test]
    fn a_fresh_mapping_keeps_the_marks_of_a_discard() {
        let mut it = layout(10..20);
        it.registered.remove(12..14);
        it.remove(12..14, std::iter::once(13..14), &mut |_| ());
        it.register(8..22, &mut |_| panic!("the discard has put them"));
        assert!(!it.is_stale(12));
        assert!(it.is_stale(13));
    }
}
