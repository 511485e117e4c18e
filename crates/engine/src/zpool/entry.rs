//! Rows of the entry table: where an object lies, who owns it, and who is reading it.
//!
//! The word of a row:
//!
//! ```text
//!  63            32 31      24 23         11 10      3    2      1      0
//! +----------------+----------+-------------+---------+------+------+------+
//! | span           | object   | length      | readers | BUSY | DEAD | LIVE |   stored object
//! +----------------+----------+-------------+---------+------+------+------+
//! | next free row  |                        0                              |   free, or being stored
//! +----------------+-------------------------------------------------------+
//! ```
//!
//! LIVE: readers may count themselves in. BUSY: compaction is copying the object; everyone else waits, for at most one
//! copy. DEAD: freed while readers were in; no further reader gets in, and the last one to leave frees the object.
//! Whoever brings a word from LIVE to anything else does so by compare-and-exchange; a word without LIVE, or with
//! BUSY, is written only by the thread that made it so.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::Backoff;

use super::chunks::Zeroable;
use super::sizes::SPAN_OBJECTS_MAX;
use super::span::SpanId;
use crate::base::pages::PAGE_BYTES;

const LIVE: u64 = 1;
const DEAD: u64 = 1 << 1;
const BUSY: u64 = 1 << 2;

const READERS_SHIFT: u32 = 3;
const READERS_BITS: u32 = 8;
const READER: u64 = 1 << READERS_SHIFT;
const READERS_MASK: u64 = ((1 << READERS_BITS) - 1) << READERS_SHIFT;

const LENGTH_SHIFT: u32 = READERS_SHIFT + READERS_BITS;
const LENGTH_BITS: u32 = 13;
const OBJECT_SHIFT: u32 = LENGTH_SHIFT + LENGTH_BITS;
const OBJECT_BITS: u32 = 8;
const SPAN_SHIFT: u32 = OBJECT_SHIFT + OBJECT_BITS;

const _: () = assert!(PAGE_BYTES < 1 << LENGTH_BITS);
const _: () = assert!(SPAN_OBJECTS_MAX <= 1 << OBJECT_BITS);
const _: () = assert!(SPAN_SHIFT == 32);

/// Where an object lies, and how long its payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub span: SpanId,
    pub object: u8,
    pub payload_bytes: u16,
}

impl Place {
    const fn to_word(self) -> u64 {
        (self.span.raw() as u64) << SPAN_SHIFT
            | (self.object as u64) << OBJECT_SHIFT
            | (self.payload_bytes as u64) << LENGTH_SHIFT
    }

    const fn of_word(word: u64) -> Option<Place> {
        match SpanId::from_raw((word >> SPAN_SHIFT) as u32) {
            Some(span) => Some(Place {
                span,
                object: (word >> OBJECT_SHIFT & ((1 << OBJECT_BITS) - 1)) as u8,
                payload_bytes: (word >> LENGTH_SHIFT & ((1 << LENGTH_BITS) - 1)) as u16,
            }),
            None => None,
        }
    }
}

/// What became of an attempt to free an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Retired {
    /// The caller alone knows the object now and gives its memory back.
    Now(Place),
    /// Readers are in; the last one to leave gets the place, too, from [`Entry::unpin`].
    ByLastReader(Place),
    /// There is no object here.
    NotLive,
}

/// A row. All bytes zero is a free row.
#[derive(Debug, Default)]
pub(super) struct Entry {
    word: AtomicU64,
    owner: AtomicU64,
}

// SAFETY: Zero is valid for both atomics, and neither is dropped.
unsafe impl Zeroable for Entry {}

/// The pool's whole bookkeeping per object outside spans.
const _: () = assert!(size_of::<Entry>() == 16);

impl Entry {
    /// Counts the caller in as a reader; the object neither moves nor goes until [`Entry::unpin`].
    /// None if there is no live object.
    #[inline]
    pub(super) fn pin(&self) -> Option<Place> {
        let backoff = Backoff::new();
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & LIVE == 0 || word & DEAD != 0 {
                return None;
            }
            if word & BUSY != 0 || word & READERS_MASK == READERS_MASK {
                backoff.snooze();
                word = self.word.load(Ordering::Relaxed);
                continue;
            }
            // Acquire: pairs with `publish`, so that the object's bytes are seen.
            match self.word.compare_exchange_weak(
                word,
                word + READER,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Place::of_word(word),
                Err(now) => word = now,
            }
        }
    }

    /// Ends a [`Entry::pin`]. If the object was freed meanwhile and this was its last reader, returns the place, and
    /// the caller must give it back.
    #[inline]
    pub(super) fn unpin(&self) -> Option<Place> {
        // Release: the reads are over before anyone overwrites the object. Acquire: the last reader frees it and must
        // see that of all others.
        let before = self.word.fetch_sub(READER, Ordering::AcqRel);
        if before & DEAD != 0 && before & READERS_MASK == READER {
            // No one gets in past DEAD, so the word is this thread's alone.
            self.word.store(0, Ordering::Relaxed);
            return Place::of_word(before);
        }
        None
    }

    /// Ends the object's life: at once, or when its last reader leaves.
    pub(super) fn retire(&self) -> Retired {
        let backoff = Backoff::new();
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & LIVE == 0 || word & DEAD != 0 {
                return Retired::NotLive;
            }
            if word & BUSY != 0 {
                backoff.snooze();
                word = self.word.load(Ordering::Relaxed);
                continue;
            }
            let readers = word & READERS_MASK != 0;
            let next = if readers { word | DEAD } else { 0 };
            let retired = if readers {
                Retired::ByLastReader
            } else {
                Retired::Now
            };
            match self
                .word
                .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Place::of_word(word).map_or(Retired::NotLive, retired),
                Err(now) => word = now,
            }
        }
    }

    /// Takes the object for moving it; never waits. None if it has readers, is being stored or freed.
    /// Ended by [`Entry::publish`], with the old place or the new one.
    pub(super) fn try_lock(&self) -> Option<Place> {
        let word = self.word.load(Ordering::Relaxed);
        if word & (LIVE | DEAD | BUSY | READERS_MASK) != LIVE {
            return None;
        }
        // Acquire: the bytes that were stored are seen, and the reads of former readers are over.
        self.word
            .compare_exchange(word, word | BUSY, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .and_then(Place::of_word)
    }

    /// Makes the object at `place` readable. The caller holds the row: it was taken off the free rows or locked.
    #[inline]
    pub(super) fn publish(&self, place: Place) {
        // Release: bytes, checksum and owner come before the word that leads to them.
        self.word.store(place.to_word() | LIVE, Ordering::Release);
    }

    /// Sets the back pointer, before [`Entry::publish`].
    #[inline]
    pub(super) fn set_owner(&self, owner: u64) {
        self.owner.store(owner, Ordering::Relaxed);
    }

    /// The back pointer; meaningful between `pin` and `unpin`.
    pub(super) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Link of the free list, for a row that is not live.
    pub(super) fn next_free(&self) -> u32 {
        (self.word.load(Ordering::Relaxed) >> SPAN_SHIFT) as u32
    }

    /// Sets the link of the free list; the row must not be live.
    pub(super) fn set_next_free(&self, next: u32) {
        self.word
            .store(u64::from(next) << SPAN_SHIFT, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(span: u32, object: u8, payload_bytes: u16) -> Place {
        Place {
            span: SpanId::from_raw(span).expect("not zero"),
            object,
            payload_bytes,
        }
    }

    #[test]
    fn extreme_places_survive_the_round_trip() {
        for at in [
            place(1, 0, 0),
            place(u32::MAX, 255, 4096),
            place(1 << 31, 1, 1),
        ] {
            assert_eq!(Place::of_word(at.to_word() | LIVE | READERS_MASK), Some(at));
            let entry = Entry::default();
            entry.publish(at);
            assert_eq!(entry.pin(), Some(at));
            assert_eq!(entry.unpin(), None);
            assert_eq!(entry.retire(), Retired::Now(at));
        }
    }

    #[test]
    fn a_row_that_is_not_live_gives_nothing() {
        let entry = Entry::default();
        entry.set_next_free(u32::MAX);
        assert_eq!(entry.next_free(), u32::MAX);
        assert_eq!(entry.pin(), None);
        assert_eq!(entry.try_lock(), None);
        assert_eq!(entry.retire(), Retired::NotLive);
    }

    #[test]
    fn the_last_reader_frees_what_was_freed_under_it() {
        let (entry, at) = (Entry::default(), place(3, 4, 5));
        entry.publish(at);
        assert_eq!((entry.pin(), entry.pin()), (Some(at), Some(at)));
        assert_eq!(entry.try_lock(), None, "readers keep the object in place");
        assert_eq!(entry.retire(), Retired::ByLastReader(at));
        assert_eq!(entry.retire(), Retired::NotLive);
        assert_eq!(entry.pin(), None);
        assert_eq!(entry.unpin(), None);
        assert_eq!(entry.unpin(), Some(at));
        assert_eq!(entry.next_free(), 0);
    }

    #[test]
    fn a_locked_object_is_published_at_its_new_place() {
        let (entry, from, to) = (Entry::default(), place(1, 2, 3), place(4, 5, 3));
        entry.publish(from);
        assert_eq!(entry.try_lock(), Some(from));
        assert_eq!(entry.try_lock(), None);
        entry.publish(to);
        assert_eq!(entry.pin(), Some(to));
    }

    /// While compaction copies an object, readers and freers wait and then get the new place, never the old one.
    #[test]
    fn whoever_comes_during_a_move_waits_for_the_new_place() {
        let (from, to) = (place(1, 2, 3), place(4, 5, 3));
        let (read, freed) = (Entry::default(), Entry::default());
        let passed = AtomicU64::new(0);
        for entry in [&read, &freed] {
            entry.publish(from);
            assert_eq!(entry.try_lock(), Some(from));
        }
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let pinned = read.pin();
                passed.fetch_add(1, Ordering::Relaxed);
                pinned
            });
            let freer = scope.spawn(|| {
                let retired = freed.retire();
                passed.fetch_add(1, Ordering::Relaxed);
                retired
            });
            // Long enough for both to start; a test that is too short passes, it never fails.
            std::thread::sleep(std::time::Duration::from_millis(50));
            let early = passed.load(Ordering::Relaxed);
            read.publish(to);
            freed.publish(to);
            assert_eq!(early, 0, "both wait");
            assert_eq!(reader.join().ok(), Some(Some(to)));
            assert_eq!(freer.join().ok(), Some(Retired::Now(to)));
        });
        assert_eq!(read.unpin(), None);
    }
}
