//! The engine's own design, built from the variants' parts: frame and count in one word. The ablations are compared
//! with this one, so that each differs from it in one thing.

use super::frames::Frames;
use super::slots::{Locked, Slots};
use super::{FRAMES, SLOTS, Variant, Word};

/// Everything is in the slot's word. Each ablation contains one of these and does one thing differently.
#[derive(Debug)]
pub(crate) struct SwapTable {
    pub(super) slots: Slots,
    pub(super) frames: Frames,
}

impl SwapTable {
    pub(crate) fn new(cpus: usize) -> SwapTable {
        SwapTable {
            slots: Slots::new(SLOTS, cpus),
            frames: Frames::new(FRAMES),
        }
    }

    /// Takes a frame, and the slot that `take` finds for it. Without a slot the frame is freed again.
    #[inline]
    pub(super) fn alloc_with(&self, take: impl FnOnce(u32) -> Option<u64>) -> Option<u64> {
        let frame = self.frames.pop()?;
        let slot = take(frame);
        if slot.is_none() {
            self.frames.release(frame);
        }
        slot
    }

    /// Frees a slot and then its frame.
    #[inline]
    pub(super) fn free(&self, slot: u64, locked: Locked<'_>, frame: u32) {
        self.slots.free(slot, locked);
        self.frames.release(frame);
    }
}

impl Variant for SwapTable {
    fn alloc(&self, cpu: usize) -> Option<u64> {
        self.alloc_with(|frame| self.slots.take(cpu, Word::new(frame, 1)))
    }

    /// Holds the frame of the slot's word for a moment, without a lock: takes a reference, then looks at the word
    /// again.
    fn lookup(&self, slot: u64) -> bool {
        let mut word = self.slots.word(slot);
        while word.is_cached() {
            let frame = word.frame();
            let held = self.frames.try_get(frame);
            let again = self.slots.word(slot);
            if held {
                self.frames.release(frame);
                if again.is_cached() && again.frame() == frame {
                    return true;
                }
            }
            word = again;
        }
        false
    }

    fn dup(&self, slot: u64) {
        self.slots.dup(slot);
    }

    fn put(&self, slot: u64) {
        if let Some(last) = self.slots.put(slot) {
            let frame = last.word().frame();
            self.free(slot, last, frame);
        }
    }

    fn table_bytes(&self) -> u64 {
        self.slots.bytes() + self.frames.bytes()
    }

    #[cfg(test)]
    fn used(&self) -> (usize, usize) {
        (self.slots.used(), self.frames.used())
    }
}
