//! Clusters: 512 slots, their tables, and the lock that every change to them takes.
//!
//! A cluster's record and the addresses of its tables are type-stable: made when the cluster is first used, freed with
//! the area. An empty cluster gives the *memory* of its tables back through `PageSource::discard`, which leaves the
//! addresses readable; what a late lock-free reader finds there is all zeros, and zero means free. An epoch scheme
//! would give the addresses back too, at the price of two more atomic operations in every lookup; the addresses cost
//! nothing.
//!
//! Lock order: cluster, then the area's lists. Against it (taking a cluster off a list) only by try-lock.

use std::ptr::NonNull;
// What a lock guards needs not be seen by the model checkers.
use std::sync::atomic::AtomicU16 as UnmodelledU16;

use crate::backing::Backing;
use crate::count::ExtendTable;
use crate::directory::CLUSTERS_MAX;
use crate::groups::{GroupIndex, GroupTable};
use crate::order::Order;
use crate::pages::{PAGE_BYTES, PageSource};
use crate::sync::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Lock, LockGuard, Ordering};
use crate::table::Word;
use crate::transition::BackingWord;

/// Slots of a cluster: what one table page holds. Few under the model checkers and in small-cluster tests, so that
/// clusters fill and empty often.
pub const SLOTS_PER_CLUSTER: usize = if cfg!(any(loom, shuttle, feature = "tests-small")) {
    4
} else if cfg!(miri) {
    16
} else {
    512
};

/// A list holds no cluster, a cluster has no neighbour, a CPU has none to allocate from: the number behind the last.
pub(crate) const NO_CLUSTER: u32 = CLUSTERS_MAX;

/// One page of a cluster's words: its swap table, or its virtual table. All zeros is an empty cluster's.
pub(crate) type Table = [AtomicU64; SLOTS_PER_CLUSTER];

/// Pages that a table takes.
pub(crate) const TABLE_PAGES: usize = size_of::<Table>().div_ceil(PAGE_BYTES);

#[cfg(not(any(loom, shuttle)))]
mod memory {
    use super::{NonNull, PAGE_BYTES, PageSource, TABLE_PAGES, Table};

    pub fn alloc(source: &dyn PageSource) -> Option<NonNull<Table>> {
        const _: () = assert!(align_of::<Table>() <= PAGE_BYTES);
        let run = source.alloc(TABLE_PAGES)?;
        // SAFETY: The run is ours, TABLE_PAGES long. Zeroing it makes valid atomics: every bit pattern is one.
        unsafe { run.as_ptr().write_bytes(0, TABLE_PAGES * PAGE_BYTES) };
        Some(run.cast())
    }

    /// # Safety
    /// `table` came from `alloc` with this source and nobody uses it any longer.
    pub unsafe fn free(table: NonNull<Table>, source: &dyn PageSource) {
        // SAFETY: By the caller's contract.
        unsafe { source.free(table.cast(), TABLE_PAGES) };
    }

    /// Gives the memory back and keeps the addresses. Every word is zero before and after.
    ///
    /// # Safety
    /// `table` came from `alloc` with this source, was not freed, and nobody writes to it meanwhile.
    pub unsafe fn discard(table: NonNull<Table>, source: &dyn PageSource) {
        // SAFETY: The run is TABLE_PAGES long and stays ours. Readers may be at it; they see zeros, as they do now.
        unsafe { source.discard(table.cast(), TABLE_PAGES) };
    }
}

// The model checkers' atomics are bigger than a word and need constructing, so their tables are boxes.
#[cfg(any(loom, shuttle))]
mod memory {
    use super::{AtomicU64, NonNull, PageSource, Table};

    pub fn alloc(_source: &dyn PageSource) -> Option<NonNull<Table>> {
        let zeros: Table = std::array::from_fn(|_| AtomicU64::new(0));
        NonNull::new(Box::into_raw(Box::new(zeros)))
    }

    /// # Safety
    /// `table` came from `alloc` and nobody uses it any longer.
    pub unsafe fn free(table: NonNull<Table>, _source: &dyn PageSource) {
        // SAFETY: By the caller's contract.
        drop(unsafe { Box::from_raw(table.as_ptr()) });
    }

    /// Boxes have nothing to give back.
    ///
    /// # Safety
    /// None needed.
    pub unsafe fn discard(_table: NonNull<Table>, _source: &dyn PageSource) {}
}

/// Which list of its area a cluster is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Place {
    /// Empty, without table memory.
    Free = 0,
    /// Some CPU allocates runs of the cluster's order from it; on no list.
    Current,
    /// Some CPU takes single slots from it, although it was made for runs; on no list.
    Stolen,
    /// Of order 0: has many free slots. Of a higher one: has a free run.
    Nonfull,
    /// Has free slots, but few of them or no run.
    Frag,
    /// Has none; on no list.
    Full,
    /// Empty, and its storage is still to be told so.
    Discard,
    /// Its storage is just being told; on no list.
    Discarding,
}

impl Place {
    const ALL: [Place; 8] = [
        Place::Free,
        Place::Current,
        Place::Stolen,
        Place::Nonfull,
        Place::Frag,
        Place::Full,
        Place::Discard,
        Place::Discarding,
    ];
}

/// What the cluster's lock guards, beside the right to write the tables.
#[derive(Debug)]
pub(crate) struct ClusterState {
    /// Slots whose word is not null.
    pub(crate) used: u16,
    /// Slots whose word has the zero flag.
    pub(crate) zero: u16,
    /// Where the next search for a free slot starts.
    pub(crate) cursor: u16,
    /// Free runs of the cluster's order; not counted in order 0, where they are the free slots.
    pub(crate) runs: u16,
    /// Counts that do not fit their words; there only while one is.
    pub(crate) extend: Option<Box<ExtendTable>>,
    /// Whose the slots are; there only where they are not all the root group's.
    pub(crate) groups: Option<Box<GroupTable>>,
}

const _: () = assert!(SLOTS_PER_CLUSTER <= u16::MAX as usize);

/// A cluster's record.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Cluster {
    /// Guards [`ClusterState`], all writes to slot words, and those to backing words of which `transition.rs` says so.
    /// Does not guard the neighbours below, which belong to the area's lists.
    state: Lock<ClusterState>,
    /// The swap table. Set once, under the lists' lock.
    words: AtomicPtr<Table>,
    /// The backing table. A virtual cluster has it from the start, set before `words`; a physical one gets it with the
    /// first slot that is directly mapped.
    backing: AtomicPtr<Table>,
    /// A [`Place`]. Written under the cluster's lock and the lists' lock both, so read under either.
    place: AtomicU16,
    /// The [`Order`] that it got when it was last taken off the free list. Written and read as `place` is.
    order: AtomicU32,
    /// Slots that page tables name: all in use in a virtual cluster, the directly mapped ones in a physical one. Under
    /// the lock alone.
    mapped: UnmodelledU16,
    /// Neighbours on the area's list, guarded by the lists' lock.
    pub(crate) prev: AtomicU32,
    pub(crate) next: AtomicU32,
}

// One cache line each: neighbours do not disturb each other, and the record costs 0.125 bytes a slot.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Cluster>() == 64);

impl Cluster {
    pub(crate) fn new() -> Cluster {
        Cluster {
            state: Lock::new(ClusterState {
                used: 0,
                zero: 0,
                cursor: 0,
                runs: 0,
                extend: None,
                groups: None,
            }),
            place: AtomicU16::new(Place::Free as u16),
            order: AtomicU32::new(Order::SLOT.raw()),
            mapped: UnmodelledU16::new(0),
            words: AtomicPtr::new(std::ptr::null_mut()),
            backing: AtomicPtr::new(std::ptr::null_mut()),
            prev: AtomicU32::new(NO_CLUSTER),
            next: AtomicU32::new(NO_CLUSTER),
        }
    }

    #[inline]
    fn words(&self) -> Option<&Table> {
        table(&self.words)
    }

    /// Reads a slot's word without a lock. A hint until what it names was claimed and the word read again.
    #[inline]
    pub(crate) fn word(&self, slot: usize) -> Word {
        // Acquire pairs with the Release in `ClusterGuard::set_word`: what the word names was made before.
        self.words().map_or(Word::NULL, |words| {
            Word::from_raw(words[slot].load(Ordering::Acquire))
        })
    }

    /// Marks a physical slot: its page was read. The caller has it pinned behind its virtual slot, so it stays in use.
    /// One that is directly mapped has no mark.
    pub(crate) fn mark_read(&self, slot: usize) {
        // Looked at first, so that readers share the line while nothing changes.
        let word = self.word(slot);
        if let Some(words) = self
            .words()
            .filter(|_| word.owner().is_some() && !word.is_read())
        {
            // Relaxed: nothing is read through it.
            words[slot].fetch_or(Word::READ, Ordering::Relaxed);
        }
    }

    /// A slot's backing word; `None` in a physical cluster none of whose slots was ever directly mapped.
    #[inline]
    pub(crate) fn backing(&self, slot: usize) -> Option<BackingWord<'_>> {
        table(&self.backing).map(|backing| BackingWord::new(&backing[slot]))
    }

    /// Locks a cluster that has been used; `None` for one that never was, which holds no slot.
    #[inline]
    pub(crate) fn lock(&self) -> Option<ClusterGuard<'_>> {
        let words = self.words()?;
        Some(ClusterGuard {
            record: self,
            words,
            state: self.state.lock(),
        })
    }

    /// As [`Cluster::lock`], but also `None` if somebody holds the lock.
    pub(crate) fn try_lock(&self) -> Option<ClusterGuard<'_>> {
        let words = self.words()?;
        Some(ClusterGuard {
            record: self,
            words,
            state: self.state.try_lock()?,
        })
    }

    /// Makes the tables if the cluster never had any: the swap table, and the backing one if `with_backing`. False if
    /// there is no memory for them. Callers hold the lists' lock, so there is one at a time.
    pub(crate) fn ensure_tables(&self, with_backing: bool, source: &dyn PageSource) -> bool {
        (!with_backing || ensure(&self.backing, source)) && ensure(&self.words, source)
    }

    /// Makes the backing table of a physical cluster, a slot of which is about to be directly mapped. False if there is
    /// no memory for it. Under the lock.
    #[inline]
    pub(crate) fn ensure_backing(&self, source: &dyn PageSource) -> bool {
        ensure(&self.backing, source)
    }

    /// Where the cluster is. Under its lock or the lists' lock.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        let place = self.place.load(Ordering::Relaxed);
        Place::ALL
            .get(usize::from(place))
            .copied()
            .unwrap_or(Place::Free)
    }

    /// Moves the cluster. Under its lock and the lists' lock both.
    pub(crate) fn set_place(&self, place: Place) {
        self.place.store(place as u16, Ordering::Relaxed);
    }

    /// Of which runs it is. Under its lock or the lists' lock.
    #[inline]
    pub(crate) fn order(&self) -> Order {
        Order::from_raw(self.order.load(Ordering::Relaxed))
    }

    /// May runs of `order` be taken from it? Then it is some CPU's, and one is free. Single slots may come from any,
    /// longer runs only from clusters made for them. Under its lock or the lists' lock.
    #[inline]
    pub(crate) fn serves(&self, order: Order) -> bool {
        match self.place() {
            Place::Current => order.is_slot() || self.order() == order,
            Place::Stolen => order.is_slot(),
            _ => false,
        }
    }

    /// Frees the tables for good.
    ///
    /// # Safety
    /// Nobody else uses the cluster: its area is being dropped. `source` is the one that `ensure_tables` was given.
    pub(crate) unsafe fn free_tables(&self, source: &dyn PageSource) {
        for table in [&self.words, &self.backing] {
            if let Some(table) = NonNull::new(table.swap(std::ptr::null_mut(), Ordering::Relaxed)) {
                // SAFETY: It came from `memory::alloc`, and by the caller's contract nobody uses it.
                unsafe { memory::free(table, source) };
            }
        }
    }
}

#[inline]
fn table(pointer: &AtomicPtr<Table>) -> Option<&Table> {
    // Acquire pairs with the Release in `ensure`.
    let table = pointer.load(Ordering::Acquire);
    // SAFETY: Null, or set once to a table that lives until `free_tables`, which is called when the area is dropped.
    unsafe { table.as_ref() }
}

fn ensure(pointer: &AtomicPtr<Table>, source: &dyn PageSource) -> bool {
    if table(pointer).is_some() {
        return true;
    }
    let Some(fresh) = memory::alloc(source) else {
        return false;
    };
    // Release pairs with the Acquire in `table`.
    pointer.store(fresh.as_ptr(), Ordering::Release);
    true
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

    /// Stores a used slot's new word.
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

    /// Takes the mark of having been read away from a slot in use; false if it had none.
    pub(crate) fn take_read_mark(&self, slot: usize) -> bool {
        // Relaxed: as above. Nobody frees the slot while we hold the lock.
        let had =
            |word: &AtomicU64| word.fetch_and(!Word::READ, Ordering::Relaxed) & Word::READ != 0;
        self.word(slot).is_read() && had(&self.words[slot])
    }

    /// What is behind a slot; nothing in a cluster without a backing table.
    #[inline]
    pub(crate) fn backing(&self, slot: usize) -> Backing {
        let word = self.record.backing(slot);
        word.map_or(Backing::NONE, BackingWord::load)
    }

    /// Slots that page tables name.
    #[inline]
    pub(crate) fn mapped(&self) -> u16 {
        // Relaxed: the lock orders all writers.
        self.record.mapped.load(Ordering::Relaxed)
    }

    #[inline]
    fn set_mapped(&mut self, mapped: u16) {
        self.record.mapped.store(mapped, Ordering::Relaxed);
    }

    /// Marks a free slot as never to be used. It counts as used, so that the cluster is never taken for empty.
    pub(crate) fn mark_bad(&mut self, slot: usize) {
        debug_assert_eq!(self.word(slot), Word::NULL);
        self.state.used += 1;
        self.words[slot].store(Word::BAD.raw(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn order(&self) -> Order {
        self.record.order()
    }

    /// Slots that can be taken.
    #[inline]
    pub(crate) fn free_slots(&self) -> usize {
        SLOTS_PER_CLUSTER - usize::from(self.state.used)
    }

    /// Makes an empty cluster one for runs of `order`. Under the lists' lock, too.
    pub(crate) fn dedicate(&mut self, order: Order) {
        debug_assert_eq!(self.state.used, 0);
        self.record.order.store(order.raw(), Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "a cluster's slots fit u16")]
        let runs = (SLOTS_PER_CLUSTER / order.slots()) as u16;
        self.state.runs = if order.is_slot() { 0 } else { runs };
    }

    /// Is the run of the cluster's order around `slot` free, apart from the slot itself? Looks at neighbours first, so
    /// that slots freed one after the other find a used one soon, whichever way they go.
    fn is_alone_in_run(&self, slot: usize) -> bool {
        (1..self.order().slots()).all(|distance| self.word(slot ^ distance) == Word::NULL)
    }

    /// Takes a free run of `order`, which is the cluster's, and gives its first slots `words`, one each. The others
    /// stay free. `None` if there is no such run.
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
        Some(first)
    }

    /// Gives a free slot its word.
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

    /// Takes the next free slot at or after the cursor, going round, and gives it `word`. `None` if all are used.
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
        Some(slot)
    }

    /// Makes a used slot free. The caller has taken away what was behind it, and moves the cluster between lists.
    #[inline]
    pub(crate) fn release_slot(&mut self, slot: usize) {
        let before = self.word(slot);
        debug_assert!(before != Word::NULL && before != Word::BAD);
        debug_assert_eq!(self.backing(slot), Backing::NONE);
        self.set_group(slot, GroupIndex::ROOT);
        self.state.zero -= u16::from(before.is_zero());
        self.state.used -= 1;
        self.set_mapped(self.mapped() - u16::from(before.is_used()));
        self.words[slot].store(Word::NULL.raw(), Ordering::Release);
        if !self.order().is_slot() && self.is_alone_in_run(slot) {
            self.state.runs += 1;
        }
    }

    /// Gives the memory of an empty cluster's tables back.
    pub(crate) fn discard(&mut self, source: &dyn PageSource) {
        debug_assert_eq!(self.state.used, 0);
        self.give_back(&self.record.words, source);
        self.discard_backing(source);
    }

    /// Gives the memory of the tables back that only slots need which page tables name, of which there are none.
    pub(crate) fn discard_backing(&mut self, source: &dyn PageSource) {
        debug_assert_eq!(self.mapped(), 0);
        self.state.groups = None;
        self.give_back(&self.record.backing, source);
    }

    fn give_back(&self, table: &AtomicPtr<Table>, source: &dyn PageSource) {
        // The pointer as the source gave it: a reference to the table would not stand for the rest of the run's pages.
        if let Some(table) = NonNull::new(table.load(Ordering::Relaxed)) {
            // SAFETY: Set once, to what `alloc` took from the one source; we hold the lock, so nobody writes.
            unsafe { memory::discard(table, source) };
        }
    }
}
