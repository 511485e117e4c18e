//! Clusters: 512 slots, their two tables, and the lock that every change to them takes.
//!
//! A cluster's record and the addresses of its tables are type-stable: made when the cluster is first used, freed with
//! the area. An empty cluster gives the *memory* of its tables back through `PageSource::discard`, which leaves the
//! addresses readable; what a late lock-free reader finds there is all zeros, and zero means free. An epoch scheme
//! would give the addresses back too, at the price of two more atomic operations in every lookup; the addresses cost
//! nothing.
//!
//! Lock order: cluster, then the area's lists. Against it (taking a cluster off a list) only by try-lock.

use std::ptr::NonNull;

use crate::backing::Backing;
use crate::count::ExtendTable;
use crate::pages::{PAGE_BYTES, PageSource};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Lock, LockGuard, Ordering};
use crate::table::Word;

/// Slots of a cluster: what one table page holds. Few under the model checkers and in small-cluster tests, so that
/// clusters fill and empty often.
pub const SLOTS_PER_CLUSTER: usize = if cfg!(any(loom, shuttle, feature = "tests-small")) {
    4
} else if cfg!(miri) {
    16
} else {
    512
};

/// A list holds no cluster, or a cluster has no neighbour.
pub(crate) const NO_CLUSTER: u32 = u32::MAX;

/// The swap table and the virtual table of one cluster. All zeros is an empty cluster.
#[repr(C)]
pub(crate) struct Tables {
    words: [AtomicU64; SLOTS_PER_CLUSTER],
    backing: [AtomicU64; SLOTS_PER_CLUSTER],
}

/// Pages that a cluster's tables take.
pub(crate) const TABLES_PAGES: usize = size_of::<Tables>().div_ceil(PAGE_BYTES);

#[cfg(not(any(loom, shuttle)))]
impl Tables {
    fn alloc(source: &dyn PageSource) -> Option<NonNull<Tables>> {
        const _: () = assert!(align_of::<Tables>() <= PAGE_BYTES);
        let run = source.alloc(TABLES_PAGES)?;
        // SAFETY: The run is ours, TABLES_PAGES long. Zeroing it makes valid atomics: every bit pattern is one.
        unsafe { run.as_ptr().write_bytes(0, TABLES_PAGES * PAGE_BYTES) };
        Some(run.cast())
    }

    /// # Safety
    /// `tables` came from `alloc` with this source and nobody uses it any longer.
    unsafe fn free(tables: NonNull<Tables>, source: &dyn PageSource) {
        // SAFETY: By the caller's contract.
        unsafe { source.free(tables.cast(), TABLES_PAGES) };
    }

    /// Gives the memory back and keeps the addresses. Every word is zero before and after.
    ///
    /// # Safety
    /// `tables` came from `alloc` with this source, was not freed, and nobody writes to it meanwhile.
    unsafe fn discard(tables: NonNull<Tables>, source: &dyn PageSource) {
        // SAFETY: The run is TABLES_PAGES long and stays ours. Readers may be at it; they see zeros, as they do now.
        unsafe { source.discard(tables.cast(), TABLES_PAGES) };
    }
}

// The model checkers' atomics are bigger than a word and need constructing, so their tables are boxes.
#[cfg(any(loom, shuttle))]
impl Tables {
    fn alloc(_source: &dyn PageSource) -> Option<NonNull<Tables>> {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        NonNull::new(Box::into_raw(Box::new(Tables {
            words: zeros(),
            backing: zeros(),
        })))
    }

    /// # Safety
    /// `tables` came from `alloc` and nobody uses it any longer.
    unsafe fn free(tables: NonNull<Tables>, _source: &dyn PageSource) {
        // SAFETY: By the caller's contract.
        drop(unsafe { Box::from_raw(tables.as_ptr()) });
    }

    /// Boxes have nothing to give back.
    ///
    /// # Safety
    /// None needed.
    unsafe fn discard(_tables: NonNull<Tables>, _source: &dyn PageSource) {}
}

/// Which list of its area a cluster is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Place {
    /// Empty, without table memory.
    Free = 0,
    /// Some CPU allocates from it; on no list.
    Current,
    /// Has many free slots.
    Nonfull,
    /// Has few free slots.
    Frag,
    /// Has none; on no list.
    Full,
}

impl Place {
    const ALL: [Place; 5] = [
        Place::Free,
        Place::Current,
        Place::Nonfull,
        Place::Frag,
        Place::Full,
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
    /// Counts that do not fit their words; there only while one is.
    pub(crate) extend: Option<Box<ExtendTable>>,
}

const _: () = assert!(SLOTS_PER_CLUSTER <= u16::MAX as usize);

/// A cluster's record.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Cluster {
    /// Guards [`ClusterState`] and all writes to slot words, and to backing words except pins. Does not guard the
    /// neighbours below, which belong to the area's lists.
    state: Lock<ClusterState>,
    /// Set once, under the lock.
    tables: AtomicPtr<Tables>,
    /// A [`Place`]. Written under the cluster's lock and the lists' lock both, so read under either.
    place: AtomicU32,
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
                extend: None,
            }),
            place: AtomicU32::new(Place::Free as u32),
            tables: AtomicPtr::new(std::ptr::null_mut()),
            prev: AtomicU32::new(NO_CLUSTER),
            next: AtomicU32::new(NO_CLUSTER),
        }
    }

    #[inline]
    fn tables(&self) -> Option<&Tables> {
        // Acquire pairs with the Release in `ensure_tables`.
        let tables = self.tables.load(Ordering::Acquire);
        // SAFETY: Null, or set once to tables that live until `free_tables`, which is called when the area is dropped.
        unsafe { tables.as_ref() }
    }

    /// Reads a slot's word without a lock. A hint until what it names was claimed and the word read again.
    #[inline]
    pub(crate) fn word(&self, slot: usize) -> Word {
        // Acquire pairs with the Release in `ClusterGuard::set_word`: what the word names was made before.
        self.tables().map_or(Word::NULL, |tables| {
            Word::from_raw(tables.words[slot].load(Ordering::Acquire))
        })
    }

    /// A slot's backing word, for pinning without a lock.
    #[inline]
    pub(crate) fn backing(&self, slot: usize) -> Option<&AtomicU64> {
        self.tables().map(|tables| &tables.backing[slot])
    }

    /// Locks a cluster that has been used; `None` for one that never was, which holds no slot.
    #[inline]
    pub(crate) fn lock(&self) -> Option<ClusterGuard<'_>> {
        let tables = self.tables()?;
        Some(ClusterGuard {
            record: self,
            tables,
            state: self.state.lock(),
        })
    }

    /// As [`Cluster::lock`], but also `None` if somebody holds the lock.
    pub(crate) fn try_lock(&self) -> Option<ClusterGuard<'_>> {
        let tables = self.tables()?;
        Some(ClusterGuard {
            record: self,
            tables,
            state: self.state.try_lock()?,
        })
    }

    /// Makes the tables if the cluster never had any. False if there is no memory for them. Callers hold the lists'
    /// lock, so there is one at a time.
    pub(crate) fn ensure_tables(&self, source: &dyn PageSource) -> bool {
        if self.tables().is_some() {
            return true;
        }
        let Some(fresh) = Tables::alloc(source) else {
            return false;
        };
        // Release pairs with the Acquire in `tables`.
        self.tables.store(fresh.as_ptr(), Ordering::Release);
        true
    }

    /// Where the cluster is. Under its lock or the lists' lock.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        let place = self.place.load(Ordering::Relaxed);
        Place::ALL
            .get(place as usize)
            .copied()
            .unwrap_or(Place::Free)
    }

    /// Moves the cluster. Under its lock and the lists' lock both.
    pub(crate) fn set_place(&self, place: Place) {
        self.place.store(place as u32, Ordering::Relaxed);
    }

    /// Frees the tables for good.
    ///
    /// # Safety
    /// Nobody else uses the cluster: its area is being dropped. `source` is the one that `ensure_tables` was given.
    pub(crate) unsafe fn free_tables(&self, source: &dyn PageSource) {
        let tables = self.tables.swap(std::ptr::null_mut(), Ordering::Relaxed);
        if let Some(tables) = NonNull::new(tables) {
            // SAFETY: It came from `Tables::alloc`, and by the caller's contract nobody uses it.
            unsafe { Tables::free(tables, source) };
        }
    }
}

/// A locked cluster: the right to change its slots.
#[derive(Debug)]
pub(crate) struct ClusterGuard<'a> {
    record: &'a Cluster,
    tables: &'a Tables,
    pub(crate) state: LockGuard<'a, ClusterState>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
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
        Word::from_raw(self.tables.words[slot].load(Ordering::Relaxed))
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
        self.tables.words[slot].store(word.raw(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn backing(&self, slot: usize) -> Backing {
        Backing::from_raw(self.backing_word(slot).load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn backing_word(&self, slot: usize) -> &AtomicU64 {
        &self.tables.backing[slot]
    }

    /// Stores a backing word. Only over a word that no reader can pin: NONE, or abandoned without pins.
    #[inline]
    pub(crate) fn set_backing(&mut self, slot: usize, backing: Backing) {
        self.backing_word(slot)
            .store(backing.raw(), Ordering::Release);
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
        debug_assert_eq!(
            self.backing(slot),
            Backing::NONE,
            "a free slot has nothing behind it"
        );
        self.state.used += 1;
        self.state.zero += u16::from(word.is_zero());
        let after = slot + 1;
        #[expect(clippy::cast_possible_truncation, reason = "a cluster's slots fit u16")]
        let cursor = if after == SLOTS_PER_CLUSTER { 0 } else { after } as u16;
        self.state.cursor = cursor;
        // Release pairs with the Acquire in `Cluster::word`.
        self.tables.words[slot].store(word.raw(), Ordering::Release);
        Some(slot)
    }

    /// Makes a used slot free. The caller has taken away what was behind it, and moves the cluster between lists.
    #[inline]
    pub(crate) fn release_slot(&mut self, slot: usize) {
        let before = self.word(slot);
        debug_assert!(before.is_used());
        debug_assert_eq!(self.backing(slot), Backing::NONE);
        self.state.zero -= u16::from(before.is_zero());
        self.state.used -= 1;
        self.tables.words[slot].store(Word::NULL.raw(), Ordering::Release);
    }

    /// Gives the memory of an empty cluster's tables back.
    pub(crate) fn discard(&mut self, source: &dyn PageSource) {
        debug_assert_eq!(self.state.used, 0);
        // The pointer as the source gave it: a reference to the tables would not stand for the rest of the run's pages.
        if let Some(tables) = NonNull::new(self.record.tables.load(Ordering::Relaxed)) {
            // SAFETY: Set once, to what `alloc` took from the area's one source; we hold the lock, so nobody writes.
            unsafe { Tables::discard(tables, source) };
        }
    }
}
