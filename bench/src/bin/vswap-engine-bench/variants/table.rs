//! The engine's own design in the variants' parts: frame and count in one word. What the ablations are held against,
//! so that they differ from it in one thing each.

use super::frames::Frames;
use super::slots::Slots;
use super::{FRAMES, SLOTS, Variant, Word};

/// Everything in the slot's word.
#[derive(Debug)]
pub(crate) struct SwapTable {
    slots: Slots,
    frames: Frames,
}

impl SwapTable {
    pub(crate) fn new(cpus: usize) -> SwapTable {
        SwapTable {
            slots: Slots::new(SLOTS, cpus),
            frames: Frames::new(FRAMES),
        }
    }
}

impl Variant for SwapTable {
    fn alloc(&self, cpu: usize) -> Option<u64> {
        let frame = self.frames.pop()?;
        let slot = self.slots.take(cpu, Word::new(frame, 1).0);
        if slot.is_none() {
            self.frames.release(frame);
        }
        slot
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
        self.slots.bytes() + self.frames.bytes()
    }

    #[cfg(test)]
    fn used(&self) -> (usize, usize) {
        (self.slots.used(), self.frames.used())
    }
}

/// Holds the frame that a slot's word names for a moment, without a lock: take a reference, then look again.
#[inline]
pub(super) fn lookup_by_word(slots: &Slots, frames: &Frames, slot: u64) -> bool {
    let mut word = slots.word(slot);
    while Word(word).is_cached() {
        let frame = Word(word).frame();
        let held = frames.try_get(frame);
        let again = slots.word(slot);
        if held {
            frames.release(frame);
            if Word(again).is_cached() && Word(again).frame() == frame {
                return true;
            }
        }
        word = again;
    }
    false
}
