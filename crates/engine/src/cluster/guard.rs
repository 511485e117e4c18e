//! A locked cluster: taking, changing and freeing its slots.
//!
//! Unsafe is needed here because a table's memory is given back while readers without a lock may look at it, so it
//! cannot be owned as a slice.

use std::ptr::NonNull;

use super::place::Place;
use super::record::{Cluster, ClusterState};
use super::slot_groups::SlotGroups;
use super::tables::{Table, memory};
use crate::base::pages::PageSource;
use crate::base::sync::{AtomicPtr, AtomicU64, LockGuard, Ordering};
use crate::groups::GroupIndex;
use crate::words::backing::Backing;
use crate::words::backing_word::BackingWord;
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::order::Order;
use crate::words::slot::Word;

impl Cluster {
    /// Locks a cluster that has been used. `None` for a cluster that never was used and so holds no slot.
    #[inline]
    pub(crate) fn lock(&self) -> Option<ClusterGuard<'_>> {
        let words = self.words()?;
        Some(ClusterGuard {
            record: self,
            words,
            state: self.state.lock(),
        })
    }

    /// Like [`Cluster::lock`], but also `None` if somebody holds the lock.
    pub(crate) fn try_lock(&self) -> Option<ClusterGuard<'_>> {
        let words = self.words()?;
        Some(ClusterGuard {
            record: self,
            words,
            state: self.state.try_lock()?,
        })
    }
}

/// A locked cluster: the right to change its slots.
#[derive(Debug)]
pub(crate) struct ClusterGuard<'a> {
    record: &'a Cluster,
    words: &'a Table,
    pub(crate) state: LockGuard<'a, ClusterState>,
}

impl<'a> ClusterGuard<'a> {
    pub(crate) fn record(&self) -> &'a Cluster {
        self.record
    }

    #[inline]
    pub(crate) fn place(&self) -> Place {
        self.record.place()
    }

    #[inline]
    pub(crate) fn word(&self, slot: usize) -> Word {
        // Relaxed: the lock orders all writers.
        Word::from_raw(self.words[slot].load(Ordering::Relaxed))
    }

    /// Stores the new word of a used slot.
    #[inline]
    pub(crate) fn set_word(&mut self, slot: usize, word: Word) {
        debug_assert!(
            word.is_used(),
            "a used slot is never null; release frees it"
        );
        let before = self.word(slot);
        debug_assert!(before.is_used());
        self.state.zero = self.state.zero + u16::from(word.is_zero()) - u16::from(before.is_zero());
        // Release pairs with the Acquire in `Cluster::word`.
        self.words[slot].store(word.raw(), Ordering::Release);
    }

    /// Clears the read mark of a slot in use. False if it had none.
    pub(crate) fn take_read_mark(&self, slot: usize) -> bool {
        // Relaxed: the lock orders all writers, and nobody frees the slot while we hold it.
        let had =
            |word: &AtomicU64| word.fetch_and(!Word::READ, Ordering::Relaxed) & Word::READ != 0;
        self.word(slot).is_read() && had(&self.words[slot])
    }

    /// What is stored behind a slot. Nothing in a cluster without a backing table.
    #[inline]
    pub(crate) fn backing(&self, slot: usize) -> Backing {
        let word = self.record.backing(slot);
        word.map_or(Backing::NONE, BackingWord::load)
    }

    /// Number of slots that page tables name.
    #[inline]
    pub(crate) fn mapped(&self) -> u16 {
        // Relaxed: the lock orders all writers.
        self.record.mapped.load(Ordering::Relaxed)
    }

    #[inline]
    fn set_mapped(&mut self, mapped: u16) {
        self.record.mapped.store(mapped, Ordering::Relaxed);
    }

    /// Marks a free slot so that it is never used. The slot counts as used, so that the cluster never seems empty.
    pub(crate) fn mark_bad(&mut self, slot: usize) {
        debug_assert_eq!(self.word(slot), Word::NULL);
        self.state.used += 1;
        self.words[slot].store(Word::BAD.raw(), Ordering::Release);
    }

    /// Makes every slot of a cluster free that has none in use but bad ones.
    pub(crate) fn forget_bad(&mut self) {
        for word in self.words {
            let before = Word::from_raw(word.load(Ordering::Relaxed));
            debug_assert!(before == Word::NULL || before == Word::BAD);
            word.store(Word::NULL.raw(), Ordering::Release);
        }
        self.state.used = 0;
    }

    #[inline]
    pub(crate) fn order(&self) -> Order {
        self.record.order()
    }

    /// Number of slots that can be taken.
    #[inline]
    pub(crate) fn free_slots(&self) -> usize {
        SLOTS_PER_CLUSTER - usize::from(self.state.used)
    }

    /// Makes an empty cluster one for runs of `order`. The caller also holds the lists' lock.
    pub(crate) fn dedicate(&mut self, order: Order) {
        debug_assert_eq!(self.state.used, 0);
        self.record.order.store(order.raw(), Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "a cluster's slots fit u16")]
        let runs = (SLOTS_PER_CLUSTER / order.slots()) as u16;
        self.state.runs = if order.is_slot() { 0 } else { runs };
        debug_assert_eq!(self.are_counters_valid(), Ok(()));
    }

    /// Whether all other slots in the run of the cluster's order around `slot` are free. Looks at the nearest
    /// neighbours first. So when slots are freed one after the other, in either direction, a used one is found soon.
    fn is_alone_in_run(&self, slot: usize) -> bool {
        (1..self.order().slots()).all(|distance| self.word(slot ^ distance) == Word::NULL)
    }

    /// Takes a free run of `order`, which is the cluster's order, and stores `words` in its first slots. The other
    /// slots stay free. `None` if there is no such run.
    pub(crate) fn take_run(&mut self, order: Order, words: &[Word]) -> Option<usize> {
        debug_assert!(order == self.order() && !order.is_slot());
        debug_assert!(!words.is_empty() && words.len() <= order.slots());
        if self.state.runs == 0 {
            return None;
        }
        let slots = order.slots();
        let start = usize::from(self.state.cursor).next_multiple_of(slots);
        let is_free =
            |first: &usize| self.word(*first) == Word::NULL && self.is_alone_in_run(*first);
        let after = (start..SLOTS_PER_CLUSTER).step_by(slots);
        let first = after.chain((0..start).step_by(slots)).find(is_free)?;
        for (slot, &word) in (first..first + slots).zip(words) {
            self.put_word(slot, word);
        }
        self.state.runs -= 1;
        self.set_cursor(first + slots);
        debug_assert_eq!(self.are_counters_valid(), Ok(()));
        Some(first)
    }

    /// Stores the first word of a free slot.
    #[inline]
    fn put_word(&mut self, slot: usize, word: Word) {
        debug_assert_eq!(
            self.backing(slot),
            Backing::NONE,
            "a free slot has nothing behind it"
        );
        self.state.used += 1;
        self.set_mapped(self.mapped() + u16::from(word.is_used()));
        self.state.zero += u16::from(word.is_zero());
        // Release pairs with the Acquire in `Cluster::word`.
        self.words[slot].store(word.raw(), Ordering::Release);
    }

    #[inline]
    fn set_cursor(&mut self, after: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "a cluster's slots fit u16")]
        let cursor = if after == SLOTS_PER_CLUSTER { 0 } else { after } as u16;
        self.state.cursor = cursor;
    }

    /// Takes the next free slot at or after the cursor, wrapping around, and stores `word` in it. `None` if all are
    /// used.
    #[inline]
    pub(crate) fn take_slot(&mut self, word: Word) -> Option<usize> {
        if usize::from(self.state.used) >= SLOTS_PER_CLUSTER {
            return None;
        }
        let start = usize::from(self.state.cursor);
        let is_free = |slot: &usize| self.word(*slot) == Word::NULL;
        let slot = (start..SLOTS_PER_CLUSTER)
            .find(is_free)
            .or_else(|| (0..start).find(is_free))?;
        if !self.order().is_slot() && self.is_alone_in_run(slot) {
            self.state.runs -= 1;
        }
        self.put_word(slot, word);
        self.set_cursor(slot + 1);
        debug_assert_eq!(self.are_counters_valid(), Ok(()));
        Some(slot)
    }

    /// Lets the search go on at a slot that is about to be free again because its page did not come. So pages that do
    /// come have slots without gaps.
    pub(crate) fn search_again_from(&mut self, slot: usize) {
        self.set_cursor(slot.min(usize::from(self.state.cursor)));
    }

    /// Makes a used slot free. The caller has already taken away what was behind it, and afterwards moves the cluster
    /// between lists.
    #[inline]
    pub(crate) fn release_slot(&mut self, slot: usize) {
        let before = self.word(slot);
        debug_assert!(before != Word::NULL && before != Word::BAD);
        debug_assert_eq!(self.backing(slot), Backing::NONE);
        self.state.groups.set(slot, GroupIndex::ROOT);
        self.state.zero -= u16::from(before.is_zero());
        self.state.used -= 1;
        self.set_mapped(self.mapped() - u16::from(before.is_used()));
        self.words[slot].store(Word::NULL.raw(), Ordering::Release);
        if !self.order().is_slot() && self.is_alone_in_run(slot) {
            self.state.runs += 1;
        }
        debug_assert_eq!(self.are_counters_valid(), Ok(()));
    }

    /// Gives the memory of an empty cluster's tables back.
    pub(crate) fn discard(&mut self, source: &dyn PageSource) {
        debug_assert_eq!(self.state.used, 0);
        self.give_back(&self.record.words, source);
        self.discard_backing(source);
    }

    /// Gives back the memory of the tables that only mapped slots need. The cluster has no mapped slot.
    pub(crate) fn discard_backing(&mut self, source: &dyn PageSource) {
        debug_assert_eq!(self.mapped(), 0);
        self.state.groups = SlotGroups::default();
        self.give_back(&self.record.backing, source);
    }

    fn give_back(&self, table: &AtomicPtr<Table>, source: &dyn PageSource) {
        // We use the pointer as the source gave it. A reference to the table would not be valid for the other pages of
        // the run.
        if let Some(table) = NonNull::new(table.load(Ordering::Relaxed)) {
            // SAFETY: The pointer was set once, to what `alloc` took from the area's only source. We hold the lock, so
            // nobody writes.
            unsafe { memory::discard(table, source) };
        }
    }
}
