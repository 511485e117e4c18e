//! Before the slot cache went: slots are taken from the allocator 64 at a time and kept for each processor until they
//! are used. What waits there is taken and holds nothing.

use std::sync::{Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use super::frames::Frames;
use super::slots::Slots;
use super::table::lookup_by_word;
use super::{FRAMES, SLOTS, Variant, Word};

/// Slots of one refill: the kernel's number.
const SLOT_CACHE: usize = 64;
/// The word of a slot that waits in a cache: taken, without frame and count.
const RESERVED: u64 = 1;

/// As the swap table, with slots in stock.
#[derive(Debug)]
pub(crate) struct SlotCache {
    slots: Slots,
    frames: Frames,
    /// Each taken before a cluster's lock.
    caches: Box<[CachePadded<Mutex<Vec<u64>>>]>,
}

impl SlotCache {
    pub(crate) fn new(cpus: usize) -> SlotCache {
        let cache = || CachePadded::new(Mutex::new(Vec::with_capacity(SLOT_CACHE)));
        SlotCache {
            slots: Slots::new(SLOTS, cpus),
            frames: Frames::new(FRAMES),
            caches: (0..cpus.max(1)).map(|_| cache()).collect(),
        }
    }

    fn take(&self, cpu: usize) -> Option<u64> {
        let cache = &self.caches[cpu % self.caches.len()];
        let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.is_empty() {
            self.slots
                .take_several(cpu, RESERVED, SLOT_CACHE, |slot| cache.push(slot));
            // The lowest first, so that pages that leave together lie together.
            cache.reverse();
        }
        cache.pop()
    }
}

impl Variant for SlotCache {
    fn alloc(&self, cpu: usize) -> Option<u64> {
        let frame = self.frames.pop()?;
        let Some(slot) = self.take(cpu) else {
            self.frames.release(frame);
            return None;
        };
        self.slots.publish(slot, Word::new(frame, 1).0);
        Some(slot)
    }

    fn lookup(&self, slot: u64) -> bool {
        lookup_by_word(&self.slots, &self.frames, slot)
    }

    fn dup(&self, slot: u64) {
        if let Some(locked) = self.slots.lock(slot) {
            locked.set_word(Word(locked.word()).counted(1).0);
        }
    }

    fn put(&self, slot: u64) {
        let Some(locked) = self.slots.lock(slot) else {
            return;
        };
        let word = Word(locked.word());
        if word.count() > 1 {
            locked.set_word(word.counted(-1).0);
            return;
        }
        self.slots.free(slot, locked);
        self.frames.release(word.frame());
    }

    fn table_bytes(&self) -> u64 {
        let caches = self.caches.len() * SLOT_CACHE * size_of::<u64>();
        self.slots.bytes() + self.frames.bytes() + caches as u64
    }

    #[cfg(test)]
    fn used(&self) -> (usize, usize) {
        let waits = |cache: &CachePadded<Mutex<Vec<u64>>>| cache.lock().unwrap().len();
        let waiting: usize = self.caches.iter().map(waits).sum();
        (self.slots.used() - waiting, self.frames.used())
    }
}
