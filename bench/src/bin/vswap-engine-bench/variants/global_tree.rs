//! Before phase I: the swap cache is a tree beside the slots, here one for all of them under one lock. The kernel had
//! one for each 64 MiB of an area, which readers walked without a lock; a lock for readers and writers is as near as a
//! tree of the standard library comes.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use super::frames::Frames;
use super::slots::Slots;
use super::{FRAMES, SLOTS, Variant, Word};

/// Counts in the words, frames in a tree.
#[derive(Debug)]
pub(crate) struct GlobalTree {
    slots: Slots,
    frames: Frames,
    /// Taken after a cluster's lock.
    cache: RwLock<BTreeMap<u64, u32>>,
}

impl GlobalTree {
    pub(crate) fn new(cpus: usize) -> GlobalTree {
        GlobalTree {
            slots: Slots::new(SLOTS, cpus),
            frames: Frames::new(FRAMES),
            cache: RwLock::new(BTreeMap::new()),
        }
    }
}

impl Variant for GlobalTree {
    fn alloc(&self, cpu: usize) -> Option<u64> {
        let frame = self.frames.pop()?;
        let Some(slot) = self.slots.take(cpu, Word::new(0, 1).0) else {
            self.frames.release(frame);
            return None;
        };
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        cache.insert(slot, frame);
        Some(slot)
    }

    fn lookup(&self, slot: u64) -> bool {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        let Some(&frame) = cache.get(&slot) else {
            return false;
        };
        let held = self.frames.try_get(frame);
        drop(cache);
        if held {
            self.frames.release(frame);
        }
        held
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
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        let frame = cache.remove(&slot);
        drop(cache);
        self.slots.free(slot, locked);
        if let Some(frame) = frame {
            self.frames.release(frame);
        }
    }

    fn table_bytes(&self) -> u64 {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        // A node of the tree has room for 11 pairs and is about three quarters full; its own head is left out.
        let pairs = cache.len() as u64 * (size_of::<u64>() + size_of::<u32>()) as u64;
        self.slots.bytes() + self.frames.bytes() + pairs * 4 / 3
    }

    #[cfg(test)]
    fn used(&self) -> (usize, usize) {
        (self.slots.used(), self.frames.used())
    }
}
