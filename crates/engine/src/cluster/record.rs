//! A cluster's record: what is known of 512 slots without looking at their words, and the way to these.

use std::ptr::NonNull;
// Guarded by the cluster's lock, so the model checkers need not model it.
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
    pub(crate) groups: SlotGroups,
}

const _: () = assert!(SLOTS_PER_CLUSTER <= u16::MAX as usize);

/// A cluster's record.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Cluster {
    /// Guards [`ClusterState`], all writes to slot words, and those to backing words where `transition.rs` says so.
    /// Does not guard the neighbours below, which belong to the area's lists.
    pub(super) state: Lock<ClusterState, { lock_order::CLUSTER }>,
    /// The swap table. Set once, under the lists' lock.
    pub(super) words: AtomicPtr<Table>,
    /// The backing table. A virtual cluster has it from the start, set before `words`; a physical one gets it with the
    /// first slot that is directly mapped.
    pub(super) backing: AtomicPtr<Table>,
    /// A [`Place`]. Written under the cluster's lock and the lists' lock both, so read under either.
    place: AtomicU16,
    /// The [`Order`] that it got when it was last taken off the free list. Written and read as `place` is.
    pub(super) order: AtomicU32,
    /// Slots that page tables name: all in use in a virtual cluster, the directly mapped ones in a physical one. Under
    /// the lock alone.
    pub(super) mapped: UnmodelledU16,
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
