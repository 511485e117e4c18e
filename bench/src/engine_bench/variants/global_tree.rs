//! The design before phase I: the swap cache is a tree beside the slots. Here there is one tree for all slots, under
//! one lock. The kernel had one for each 64 MiB of an area, and readers walked it without a lock. A readers-writer lock
//! is as close as a tree of the standard library comes.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use super::{SwapTable, Variant, Word};

/// Counts in the words, frames in a tree.
#[derive(Debug)]
pub(crate) struct GlobalTree {
    table: SwapTable,
    /// Taken after a cluster's lock.
    cache: RwLock<BTreeMap<u64, u32>>,
}

impl GlobalTree {
    pub(crate) fn new(cpus: usize) -> GlobalTree {
        GlobalTree {
            table: SwapTable::new(cpus),
            cache: RwLock::new(BTreeMap::new()),
        }
    }
}

impl Variant for GlobalTree {
    fn alloc(&self, cpu: usize) -> Option<u64> {
        self.table.alloc_with(|frame| {
            let slot = self.table.slots.take(cpu, Word::new(0, 1))?;
            let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
            cache.insert(slot, frame);
            Some(slot)
        })
    }

    fn lookup(&self, slot: u64) -> bool {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        let Some(&frame) = cache.get(&slot) else {
            return false;
        };
        let held = self.table.frames.try_get(frame);
        drop(cache);
        if held {
            self.table.frames.release(frame);
        }
        held
    }

    fn dup(&self, slot: u64) {
        self.table.dup(slot);
    }

    fn put(&self, slot: u64) {
        let Some(last) = self.table.slots.put(slot) else {
            return;
        };
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        let frame = cache.remove(&slot);
        drop(cache);
        if let Some(frame) = frame {
            self.table.free(slot, last, frame);
        }
    }

    fn table_bytes(&self) -> u64 {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        // A node of the tree has room for 11 pairs and is about three quarters full. Its own head is left out.
        let pairs = cache.len() as u64 * (size_of::<u64>() + size_of::<u32>()) as u64;
        self.table.table_bytes() + pairs * 4 / 3
    }

    #[cfg(test)]
    fn used(&self) -> (usize, usize) {
        self.table.used()
    }
}
