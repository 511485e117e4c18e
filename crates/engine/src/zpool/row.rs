//! A row: where an object lies, and who is reading it.
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
//! copy. DEAD: the object was freed while it had readers; no further reader gets in, and the last one to leave frees
//! the object. A thread takes a word out of LIVE only by compare-and-exchange. A word without LIVE or with BUSY is
//! written only by the thread that made it so.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::Backoff;

use super::chunks::Zeroable;
use super::sizes::{SPAN_OBJECTS_MAX, class_of};
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

/// The place of an object, and the length of its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    pub span: SpanId,
    pub object: u8,
    pub payload_bytes: u16,
}

impl Location {
    /// Whether the payload has a page of its own.
    pub(super) fn is_whole(self) -> bool {
        class_of(usize::from(self.payload_bytes)).is_none()
    }

    const fn to_word(self) -> u64 {
        (self.span.raw() as u64) << SPAN_SHIFT
            | (self.object as u64) << OBJECT_SHIFT
            | (self.payload_bytes as u64) << LENGTH_SHIFT
    }

    const fn of_word(word: u64) -> Option<Location> {
        match SpanId::from_raw((word >> SPAN_SHIFT) as u32) {
            Some(span) => Some(Location {
                span,
                object: (word >> OBJECT_SHIFT & ((1 << OBJECT_BITS) - 1)) as u8,
                payload_bytes: (word >> LENGTH_SHIFT & ((1 << LENGTH_BITS) - 1)) as u16,
            }),
            None => None,
        }
    }
}

/// Result of trying to free an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Retired {
    /// Only the caller knows the object now, and must give its memory back.
    Now(Location),
    /// The object has readers. The last one to leave also gets the location, from [`Row::unpin`].
    ByLastReader(Location),
    /// There is no object here.
    NotLive,
}

/// A row. All bytes zero is a free row.
#[derive(Debug, Default)]
pub(super) struct Row {
    word: AtomicU64,
}

// SAFETY: Zero is valid for the atomic, which is not dropped.
unsafe impl Zeroable for Row {}

/// All the bookkeeping that the pool has per object outside spans.
const _: () = assert!(size_of::<Row>() == 8);

impl Row {
    /// Counts the caller in as a reader. The object is neither moved nor freed until [`Row::unpin`]. `None` if there is
    /// no live object.
    #[inline]
    pub(super) fn pin(&self) -> Option<Location> {
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
            // Acquire pairs with `publish`, so that the object's bytes are visible.
            match self.word.compare_exchange_weak(
                word,
                word + READER,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Location::of_word(word),
                Err(now) => word = now,
            }
        }
    }

    /// Ends a [`Row::pin`]. If the object was freed meanwhile and this was its last reader, returns its location, and
    /// the caller must give it back.
    #[inline]
    pub(super) fn unpin(&self) -> Option<Location> {
        // Release: the reads end before anyone overwrites the object. Acquire: the last reader frees the object, and
        // must see that all other reads have ended.
        let before = self.word.fetch_sub(READER, Ordering::AcqRel);
        if before & DEAD != 0 && before & READERS_MASK == READER {
            // DEAD lets no further reader in, so only this thread has the word.
            self.word.store(0, Ordering::Relaxed);
            return Location::of_word(before);
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
                Ok(_) => return Location::of_word(word).map_or(Retired::NotLive, retired),
                Err(now) => word = now,
            }
        }
    }

    /// Takes the object to move it. Never waits. `None` if it has readers, or is being stored or freed.
    /// [`Row::publish`] with the old or the new location ends this.
    pub(super) fn try_lock(&self) -> Option<Location> {
        let word = self.word.load(Ordering::Relaxed);
        if word & (LIVE | DEAD | BUSY | READERS_MASK) != LIVE {
            return None;
        }
        // Acquire: the stored bytes are visible, and the reads of former readers have ended.
        self.word
            .compare_exchange(word, word | BUSY, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .and_then(Location::of_word)
    }

    /// Makes the object at `location` readable. The caller owns the row: it took the row from the free ones, or locked
    /// it.
    #[inline]
    pub(super) fn publish(&self, location: Location) {
        // Release: payload and checksum are in place before the word that leads to them.
        self.word
            .store(location.to_word() | LIVE, Ordering::Release);
    }

    /// The object's location, if the row has an object that nobody is freeing. Looks without a pin.
    pub(super) fn location(&self) -> Option<Location> {
        let word = self.word.load(Ordering::Relaxed);
        (word & (LIVE | DEAD) == LIVE).then(|| Location::of_word(word))?
    }

    /// The link of the free list, in a row that is not live.
    pub(super) fn next_free(&self) -> u32 {
        (self.word.load(Ordering::Relaxed) >> SPAN_SHIFT) as u32
    }

    /// Sets the link of the free list. The row must not be live.
    pub(super) fn set_next_free(&self, next: u32) {
        self.word
            .store(u64::from(next) << SPAN_SHIFT, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(span: u32, object: u8, payload_bytes: u16) -> Location {
        Location {
            span: SpanId::from_raw(span).expect("not zero"),
            object,
            payload_bytes,
        }
    }

    #[test]
    fn extreme_places_survive_the_round_trip() {
        for at in [
            location(1, 0, 0),
            location(u32::MAX, 255, 4096),
            location(1 << 31, 1, 1),
        ] {
            assert_eq!(
                Location::of_word(at.to_word() | LIVE | READERS_MASK),
                Some(at)
            );
            let row = Row::default();
            row.publish(at);
            assert_eq!(row.pin(), Some(at));
            assert_eq!(row.unpin(), None);
            assert_eq!(row.retire(), Retired::Now(at));
        }
    }

    #[test]
    fn a_row_that_is_not_live_gives_nothing() {
        let row = Row::default();
        row.set_next_free(u32::MAX);
        assert_eq!(row.next_free(), u32::MAX);
        assert_eq!(row.pin(), None);
        assert_eq!(row.try_lock(), None);
        assert_eq!(row.retire(), Retired::NotLive);
    }

    #[test]
    fn the_last_reader_frees_what_was_freed_under_it() {
        let (row, at) = (Row::default(), location(3, 4, 5));
        row.publish(at);
        assert_eq!((row.pin(), row.pin()), (Some(at), Some(at)));
        assert_eq!(row.try_lock(), None, "readers keep the object in place");
        assert_eq!(row.retire(), Retired::ByLastReader(at));
        assert_eq!(row.retire(), Retired::NotLive);
        assert_eq!(row.pin(), None);
        assert_eq!(row.unpin(), None);
        assert_eq!(row.unpin(), Some(at));
        assert_eq!(row.next_free(), 0);
    }

    #[test]
    fn a_locked_object_is_published_at_its_new_place() {
        let (row, from, to) = (Row::default(), location(1, 2, 3), location(4, 5, 3));
        row.publish(from);
        assert_eq!(row.try_lock(), Some(from));
        assert_eq!(row.try_lock(), None);
        row.publish(to);
        assert_eq!(row.pin(), Some(to));
    }

    /// While compaction copies an object, readers and freers wait. Then they get the new location, never the old one.
    #[test]
    fn whoever_comes_during_a_move_waits_for_the_new_place() {
        let (from, to) = (location(1, 2, 3), location(4, 5, 3));
        let (read, freed) = (Row::default(), Row::default());
        let passed = AtomicU64::new(0);
        for row in [&read, &freed] {
            row.publish(from);
            assert_eq!(row.try_lock(), Some(from));
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
            // Long enough for both to start. If it is too short the test passes; it never fails for that.
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
