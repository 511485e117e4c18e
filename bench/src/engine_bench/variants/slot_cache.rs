//! The design with the slot cache that the kernel has given up: slots are taken from the allocator 64 at a time and
//! kept for each processor until they are used. A slot in the cache is taken but holds nothing.

use std::sync::{Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use super::{SwapTable, Variant, Word};

/// Slots of one refill: the kernel's number.
const SLOT_CACHE: usize = 64;
/// The word of a slot in a cache: taken, without frame and count.
const RESERVED: Word = Word(1);

/// Like the swap table, with slots in stock.
#[derive(Debug)]
pub(crate) struct SlotCache {
    table: SwapTable,
    /// Each of these locks is taken before a cluster's lock.
    caches: Box<[CachePadded<Mutex<Vec<u64>>>]>,
}

impl SlotCache {
    pub(crate) fn new(cpus: usize) -> SlotCache {
        let cache = || CachePadded::new(Mutex::new(Vec::with_capacity(SLOT_CACHE)));
        SlotCache {
            table: SwapTable::new(cpus),
            caches: (0..cpus.max(1)).map(|_| cache()).collect(),
        }
    }

    fn take(&self, cpu: usize) -> Option<u64> {
        let cache = &self.caches[cpu % self.caches.len()];
        let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.is_empty() {
            let slots = &self.table.slots;
            slots.take_several(cpu, RESERVED, SLOT_CACHE, |slot| cache.push(slot));
            // The lowest slots come first, so that pages that leave together lie together.
            cache.reverse();
        }
        cache.pop()
    }
}

impl Variant for SlotCache {
    fn alloc(&self, cpu: usize) -> Option<u64> {
        self.table.alloc_with(|frame| {
            let slot = self.take(cpu)?;
            self.table.slots.publish(slot, Word::new(frame, 1));
            Some(slot)
        })
    }

    fn lookup(&self, slot: u64) -> bool {
        self.table.lookup(slot)
    }

    fn dup(&self, slot: u64) {
        self.table.dup(slot);
    }

    fn put(&self, slot: u64) {
        self.table.put(slot);
    }

    fn table_bytes(&self) -> u64 {
        let caches = self.caches.len() * SLOT_CACHE * size_of::<u64>();
        self.table.table_bytes() + caches as u64
    }

    #[cfg(test)]
    fn used(&self) -> (usize, usize) {
        let waits = |cache: &CachePadded<Mutex<Vec<u64>>>| cache.lock().unwrap().len();
        let waiting: usize = self.caches.iter().map(waits).sum();
        let (slots, frames) = self.table.used();
        (slots - waiting, frames)
    }
}
