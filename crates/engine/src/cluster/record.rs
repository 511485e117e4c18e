//! A cluster's record: what is known of its 512 slots without looking at their words, and the pointers to these words.
//!
//! Unsafe is needed here because readers without a lock follow the pointers to the tables, whose memory comes from a
//! `PageSource`.

use std::ptr::NonNull;
// The cluster's lock guards it, so the model checkers need not model it.
use std::sync::atomic::AtomicU16 as UnmodelledU16;

use super::place::Place;
use super::slot_groups::SlotGroups;
use super::tables::{ExtendTable, Table, memory};
use crate::base::lock_order;
use crate::base::pages::PageSource;
use crate::base::sync::{AtomicPtr, AtomicU16, AtomicU32, Lock, Ordering};
use crate::words::backing_word::BackingWord;
use crate::words::geometry::{NO_CLUSTER, SLOTS_PER_CLUSTER};
use crate::words::order::Order;
use crate::words::slot::Word;

/// What the cluster's lock guards besides the right to write the tables.
#[derive(Debug)]
pub(crate) struct ClusterState {
    /// Slots whose word is not null.
    pub(crate) used: u16,
    /// Slots whose word has the zero flag.
    pub(crate) zero: u16,
    /// Where the next search for a free slot starts.
    pub(crate) cursor: u16,
    /// Free runs of the cluster's order. Not counted in order 0, where each free slot is a run.
    pub(crate) runs: u16,
    /// Counts that do not fit their words. Exists only while there is such a count.
    pub(crate) extend: Option<Box<ExtendTable>>,
    /// The groups of the slots. Has a table only if some slot does not belong to the root group.
    pub(crate) groups: SlotGroups,
}

const _: () = assert!(SLOTS_PER_CLUSTER <= u16::MAX as usize);

/// A cluster's record.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Cluster {
    /// Guards [`ClusterState`], all writes to slot words, and the writes to backing words that `transition.rs` says it
    /// guards. Does not guard `prev` and `next` below, which belong to the area's lists.
    pub(super) state: Lock<ClusterState, { lock_order::CLUSTER }>,
    /// The swap table. Set once, under the lists' lock.
    pub(super) words: AtomicPtr<Table>,
    /// The backing table. A virtual cluster has it from the start, set before `words`. A physical cluster gets it with
    /// the first slot that is directly mapped.
    pub(super) backing: AtomicPtr<Table>,
    /// A [`Place`]. Writers hold both the cluster's lock and the lists' lock, so readers hold either.
    place: AtomicU16,
    /// The [`Order`] that the cluster got when it was last taken off the free list. Written and read as `place` is.
    pub(super) order: AtomicU32,
    /// Number of slots that page tables name: in a virtual cluster all that are in use, in a physical one those
    /// directly mapped. Written under the lock only.
    pub(super) mapped: UnmodelledU16,
    /// Neighbours on the area's list, guarded by the lists' lock.
    pub(crate) prev: AtomicU32,
    pub(crate) next: AtomicU32,
}

// One cache line each, so that neighbours do not disturb each other. The record costs 0.125 bytes a slot.
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
                groups: SlotGroups::default(),
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
    pub(super) fn words(&self) -> Option<&Table> {
        table(&self.words)
    }

    /// Reads a slot's word without a lock. The word is only a hint until the reader has claimed what it names and read
    /// it again.
    #[inline]
    pub(crate) fn word(&self, slot: usize) -> Word {
        // Acquire pairs with the Release in `ClusterGuard::set_word`: what the word names exists.
        self.words().map_or(Word::NULL, |words| {
            Word::from_raw(words[slot].load(Ordering::Acquire))
        })
    }

    /// Marks a physical slot whose page was read. The caller has the page pinned behind its virtual slot, so the slot
    /// stays in use. A directly mapped slot gets no mark.
    pub(crate) fn mark_read(&self, slot: usize) {
        // Look before writing, so that readers share the cache line while nothing changes.
        let word = self.word(slot);
        if let Some(words) = self
            .words()
            .filter(|_| word.owner().is_some() && !word.is_read())
        {
            // Relaxed: nothing is read through the mark.
            words[slot].fetch_or(Word::READ, Ordering::Relaxed);
        }
    }

    /// A slot's backing word. `None` in a physical cluster that never had a directly mapped slot.
    #[inline]
    pub(crate) fn backing(&self, slot: usize) -> Option<BackingWord<'_>> {
        table(&self.backing).map(|backing| BackingWord::new(&backing[slot]))
    }

    /// Makes the tables if the cluster never had any: the swap table, and also the backing table if `with_backing`.
    /// False if there is no memory for them. Callers hold the lists' lock, so only one thread does this at a time.
    pub(crate) fn ensure_tables(&self, with_backing: bool, source: &dyn PageSource) -> bool {
        (!with_backing || ensure(&self.backing, source)) && ensure(&self.words, source)
    }

    /// Makes the backing table of a physical cluster before one of its slots is directly mapped. False if there is no
    /// memory. The caller holds the cluster's lock.
    #[inline]
    pub(crate) fn ensure_backing(&self, source: &dyn PageSource) -> bool {
        ensure(&self.backing, source)
    }

    /// The cluster's place. The caller holds its lock or the lists' lock.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        let place = self.place.load(Ordering::Relaxed);
        Place::ALL
            .get(usize::from(place))
            .copied()
            .unwrap_or(Place::Free)
    }

    /// Moves the cluster to another place. The caller holds both its lock and the lists' lock.
    pub(crate) fn set_place(&self, place: Place) {
        self.place.store(place as u16, Ordering::Relaxed);
    }

    /// The order of the cluster's runs. The caller holds its lock or the lists' lock.
    #[inline]
    pub(crate) fn order(&self) -> Order {
        Order::from_raw(self.order.load(Ordering::Relaxed))
    }

    /// Whether runs of `order` may be taken from the cluster: it is some CPU's cluster, and has the right order. Single
    /// slots may come from any such cluster, longer runs only from one made for them. The caller holds its lock or the
    /// lists' lock.
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
                // SAFETY: The table came from `memory::alloc`, and by the caller's contract nobody uses it.
                unsafe { memory::free(table, source) };
            }
        }
    }
}

#[inline]
fn table(pointer: &AtomicPtr<Table>) -> Option<&Table> {
    // Acquire pairs with the Release in `ensure`.
    let table = pointer.load(Ordering::Acquire);
    // SAFETY: The pointer is null, or was set once to a table that lives until `free_tables`, when the area is dropped.
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
