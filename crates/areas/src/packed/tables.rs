//! What is known of slots and blocks, in memory: a word for each, which [`place`](super::place) explains, and which
//! blocks are free.
//!
//! That is 8 bytes for each slot and for each block that was ever in use, and an eighth of a byte for each block. What
//! was never used takes address space only.
//!
//! A word of a slot changes by one atomic step, and whoever makes the step gives up the place that it named. So each
//! place is given up once. A block with nothing live in it is free. Whoever reads a payload looks at the slot's word
//! before and afterwards, and holds nothing.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vswap_sys::memory::{MemoryError, Words};

use super::map::Map;
use super::place::{Place, Share};

/// The tables of an area.
#[derive(Debug)]
pub(super) struct Tables {
    slots: Words,
    blocks: Words,
    /// Innermost: held for bits and numbers only.
    map: Mutex<Map>,
    /// Bytes of blocks that live payloads take up.
    live_bytes: AtomicU64,
    /// Bytes that were given up so far.
    freed_bytes: AtomicU64,
}

impl Tables {
    pub(super) fn new(slots: usize, blocks: usize) -> Result<Tables, MemoryError> {
        Ok(Tables {
            slots: Words::new(slots)?,
            blocks: Words::new(blocks)?,
            map: Mutex::new(Map::new(blocks)?),
            live_bytes: AtomicU64::new(0),
            freed_bytes: AtomicU64::new(0),
        })
    }

    pub(super) fn slots(&self) -> u64 {
        self.slots.len() as u64
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Which blocks are free. No other lock is taken while it is held.
    pub(super) fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, slot: u64) -> Option<&AtomicU64> {
        self.slots.get(usize::try_from(slot).ok()?)
    }

    /// Where the payload of a slot lies. None if the slot holds nothing.
    pub(super) fn place(&self, slot: u64) -> Option<Place> {
        // Acquire pairs with the Release in `enter` and `replace`: what the place names is written.
        Place::from_word(self.slot(slot)?.load(Acquire))
    }

    /// Says what lies in a block that was filled and written. From now on payloads of it may be given up.
    pub(super) fn begin(&self, block: u32, share: Share) {
        self.live_bytes.fetch_add(share.bytes(), Relaxed);
        self.blocks[block as usize].store(share.word(), Release);
    }

    /// The payload of a slot lies here from now on. What the slot had before is given up.
    pub(super) fn enter(&self, slot: u64, place: Place) {
        if let Some(word) = self.slot(slot) {
            self.give_up_word(word.swap(place.word(), AcqRel));
        }
    }

    /// The slot holds nothing any more.
    pub(super) fn clear(&self, slot: u64) {
        // Most that are cleared hold nothing, and a table that was only looked at takes no memory.
        if let Some(word) = self.slot(slot).filter(|word| word.load(Relaxed) != 0) {
            self.give_up_word(word.swap(0, AcqRel));
        }
    }

    /// A payload was moved. If its slot has another by now, the new place is given up instead of the old one.
    pub(super) fn replace(&self, slot: u64, old: Place, new: Place) {
        let new = old.moved(new);
        let word = self.slot(slot);
        let replaced = word.is_some_and(|word| {
            let (old, new) = (old.word(), new.word());
            word.compare_exchange(old, new, AcqRel, Relaxed).is_ok()
        });
        self.give_up(if replaced { old } else { new });
    }

    fn give_up_word(&self, word: u64) {
        if let Some(place) = Place::from_word(word) {
            self.give_up(place);
        }
    }

    fn give_up(&self, place: Place) {
        let share = place.share();
        self.live_bytes.fetch_sub(share.bytes(), Relaxed);
        self.freed_bytes.fetch_add(share.bytes(), Relaxed);
        self.take_away(place.block, share);
    }

    /// Takes something away from what a block counts. With the last of it the block is free.
    fn take_away(&self, block: u32, share: Share) {
        // Whoever takes away the last makes the block free, after all others are done with it.
        let before = self.blocks[block as usize].fetch_sub(share.word(), AcqRel);
        if Share::from_word(before).without(share).is_nothing() {
            self.map().give(block);
        }
    }

    /// Holds a block, so that it does not get free while payloads are moved out of it. False if there is nothing in it,
    /// or if it is held.
    pub(super) fn hold(&self, block: u32) -> bool {
        let word = &self.blocks[block as usize];
        let held = |word| {
            let share = Share::from_word(word);
            share.can_be_held().then(|| share.and(Share::HELD).word())
        };
        word.fetch_update(AcqRel, Acquire, held).is_ok()
    }

    /// Lets go of a held block. It is free if nothing was left in it.
    pub(super) fn let_go(&self, block: u32) {
        self.take_away(block, Share::HELD);
    }

    /// What live payloads take up in a block. None in one that is free, being filled or held.
    pub(super) fn live_in(&self, block: usize) -> Option<u64> {
        let share = Share::from_word(self.blocks[block].load(Relaxed));
        share.can_be_held().then(|| share.bytes())
    }

    /// What live payloads still take up in a block that is held.
    pub(super) fn left_in(&self, block: u32) -> u64 {
        Share::from_word(self.blocks[block as usize].load(Acquire)).bytes()
    }

    /// Bytes of blocks that live payloads take up.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Relaxed)
    }

    /// Bytes that were given up so far.
    pub(super) fn freed_bytes(&self) -> u64 {
        self.freed_bytes.load(Relaxed)
    }
}
