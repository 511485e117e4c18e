//! The design before phase III: counts in a static map beside the table, with a byte for every slot of the area, used
//! or not. Each change of a slot is two changes.

use std::sync::atomic::{AtomicU8, Ordering};

use super::{SLOTS, SwapTable, Variant, Word};

/// Frames in the words, counts in a map.
#[derive(Debug)]
pub(crate) struct CountMap {
    table: SwapTable,
    /// Written under the lock of the slot's cluster.
    counts: Box<[AtomicU8]>,
}

impl CountMap {
    pub(crate) fn new(cpus: usize) -> CountMap {
        CountMap {
            table: SwapTable::new(cpus),
            counts: (0..SLOTS).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    fn count(&self, slot: u64) -> Option<&AtomicU8> {
        self.counts.get(usize::try_from(slot).ok()?)
    }
}

impl Variant for CountMap {
    fn alloc(&self, cpu: usize) -> Option<u64> {
        self.table.alloc_with(|frame| {
            let slot = self.table.slots.take(cpu, Word::new(frame, 0))?;
            // This is outside the cluster's lock, which favours this variant. It is sound because nobody else knows the
            // slot yet.
            self.count(slot)?.store(1, Ordering::Release);
            Some(slot)
        })
    }

    fn lookup(&self, slot: u64) -> bool {
        self.table.lookup(slot)
    }

    fn dup(&self, slot: u64) {
        if let (Some(_locked), Some(count)) = (self.table.slots.lock(slot), self.count(slot)) {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    fn put(&self, slot: u64) {
        let (Some(locked), Some(count)) = (self.table.slots.lock(slot), self.count(slot)) else {
            return;
        };
        let left = count.load(Ordering::Relaxed).saturating_sub(1);
        count.store(left, Ordering::Relaxed);
        if left > 0 {
            return;
        }
        let frame = locked.word().frame();
        self.table.free(slot, locked, frame);
    }

    fn table_bytes(&self) -> u64 {
        self.table.table_bytes() + self.counts.len() as u64
    }

    #[cfg(test)]
    fn used(&self) -> (usize, usize) {
        self.table.used()
    }
}
