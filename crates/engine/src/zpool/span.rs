//! Spans: runs of 1 to 8 contiguous pages that hold the objects of one class.
//!
//! What is known of a span is in a separate table, not in its pages. Whoever has an object of the span pinned reads
//! `base` without a lock. All else is read and written under the lock of the class that owns the span. It is atomic
//! only so that it can be shared, and every access is relaxed.

use std::num::NonZeroU32;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::chunks::{Chunks, Zeroable};
use super::sizes::{SPAN_OBJECTS_MAX, SizeClass};

/// Spans per chunk: 64 KiB.
const CHUNK_SPANS: usize = if cfg!(miri) { 16 } else { 1024 };

/// The most chunks: 2^28 spans, 1 TiB even if each span had only one page.
const CHUNKS_MAX: usize = if cfg!(miri) { 64 } else { 1 << 18 };

const BITMAP_WORDS: usize = SPAN_OBJECTS_MAX / 64;

/// Number of a span in the table, from 1 up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpanId(NonZeroU32);

impl SpanId {
    /// The first number.
    pub(super) const FIRST: SpanId = SpanId(NonZeroU32::MIN);

    /// The next number, if there is one.
    pub(super) fn following(self) -> Option<SpanId> {
        self.0.checked_add(1).map(SpanId)
    }

    pub(super) const fn raw(self) -> u32 {
        self.0.get()
    }

    pub(super) const fn from_raw(raw: u32) -> Option<SpanId> {
        match NonZeroU32::new(raw) {
            Some(raw) => Some(SpanId(raw)),
            None => None,
        }
    }
}

/// What is known of a span: one cache line.
#[derive(Debug, Default)]
pub(super) struct Span {
    base: AtomicPtr<u8>,
    /// Bit per object: taken. Bits beyond the last object are set.
    taken: [AtomicU64; BITMAP_WORDS],
    /// Neighbours in the list of the span's fullness group. `next` also links free spans.
    prev: AtomicU32,
    next: AtomicU32,
    live: AtomicU16,
    group: AtomicU8,
    pages: AtomicU8,
}

// SAFETY: Zero is valid for all these atomics, and none is dropped.
unsafe impl Zeroable for Span {}
const _: () = assert!(size_of::<Span>() <= 64);

impl Span {
    /// First byte of the span's pages. Null while the span is free.
    #[inline]
    pub(super) fn base(&self) -> *mut u8 {
        self.base.load(Ordering::Relaxed)
    }

    pub(super) fn live(&self) -> u16 {
        self.live.load(Ordering::Relaxed)
    }

    pub(super) fn pages(&self) -> u8 {
        self.pages.load(Ordering::Relaxed)
    }

    pub(super) fn group(&self) -> u8 {
        self.group.load(Ordering::Relaxed)
    }

    pub(super) fn set_group(&self, group: u8) {
        self.group.store(group, Ordering::Relaxed);
    }

    pub(super) fn prev(&self) -> Option<SpanId> {
        SpanId::from_raw(self.prev.load(Ordering::Relaxed))
    }

    pub(super) fn next(&self) -> Option<SpanId> {
        SpanId::from_raw(self.next.load(Ordering::Relaxed))
    }

    pub(super) fn set_prev(&self, prev: Option<SpanId>) {
        self.prev
            .store(prev.map_or(0, SpanId::raw), Ordering::Relaxed);
    }

    pub(super) fn set_next(&self, next: Option<SpanId>) {
        self.next
            .store(next.map_or(0, SpanId::raw), Ordering::Relaxed);
    }

    /// Takes the first free object.
    pub(super) fn take_object(&self) -> Option<u8> {
        for (at, word) in (0_u32..).zip(&self.taken) {
            let bits = word.load(Ordering::Relaxed);
            if bits != u64::MAX {
                let bit = bits.trailing_ones();
                word.store(bits | 1 << bit, Ordering::Relaxed);
                self.live.store(self.live() + 1, Ordering::Relaxed);
                return u8::try_from(at * 64 + bit).ok();
            }
        }
        None
    }

    /// Gives an object back.
    pub(super) fn give_object(&self, object: u8) {
        let Some(word) = self.taken.get(usize::from(object) / 64) else {
            return;
        };
        let bits = word.load(Ordering::Relaxed);
        let bit = 1 << (object % 64);
        debug_assert!(bits & bit != 0, "object {object} is not taken");
        word.store(bits & !bit, Ordering::Relaxed);
        self.live.store(self.live() - 1, Ordering::Relaxed);
    }

    /// The first taken object from `from` on, in a span of `objects`.
    pub(super) fn taken_from(&self, from: u16, objects: u16) -> Option<u8> {
        (from..objects)
            .filter_map(|object| u8::try_from(object).ok())
            .find(|object| {
                self.taken[usize::from(*object) / 64].load(Ordering::Relaxed) >> (object % 64) & 1
                    == 1
            })
    }

    /// Number of taken objects, of `objects`.
    pub(super) fn taken(&self, objects: u16) -> u16 {
        let mut from = 0;
        let taken = std::iter::from_fn(|| {
            let object = self.taken_from(from, objects)?;
            from = u16::from(object) + 1;
            Some(object)
        });
        taken.fold(0, |count, _| count + 1)
    }

    fn begin(&self, base: NonNull<u8>, class: SizeClass) {
        for (first, word) in (0_u32..).step_by(64).zip(&self.taken) {
            let objects = u32::from(class.objects).saturating_sub(first);
            let beyond = if objects >= 64 {
                0
            } else {
                u64::MAX << objects
            };
            word.store(beyond, Ordering::Relaxed);
        }
        self.live.store(0, Ordering::Relaxed);
        self.pages.store(class.pages, Ordering::Relaxed);
        self.base.store(base.as_ptr(), Ordering::Relaxed);
    }
}

/// All spans, and which numbers are free.
pub(super) struct SpanTable {
    spans: Chunks<Span, CHUNK_SPANS>,
    free: Mutex<FreeSpans>,
}

struct FreeSpans {
    head: Option<SpanId>,
    /// Spans from this number on were never used.
    fresh: SpanId,
}

impl SpanTable {
    pub(super) fn new() -> Self {
        SpanTable {
            spans: Chunks::new(CHUNKS_MAX),
            free: Mutex::new(FreeSpans {
                head: None,
                fresh: SpanId::FIRST,
            }),
        }
    }

    #[inline]
    pub(super) fn get(&self, id: SpanId) -> Option<&Span> {
        self.spans.get(id.raw())
    }

    pub(super) fn bytes(&self) -> usize {
        self.spans.bytes()
    }

    /// Enters the pages at `base` as an empty span of `class`. `None` when the table cannot grow.
    pub(super) fn add(&self, base: NonNull<u8>, class: SizeClass) -> Option<SpanId> {
        let id = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(id) = free.head {
                free.head = self.get(id)?.next();
                id
            } else {
                let id = free.fresh;
                if !self.spans.ensure(id.raw()) {
                    return None;
                }
                free.fresh = id.following()?;
                id
            }
        };
        self.get(id)?.begin(base, class);
        Some(id)
    }

    /// Takes out the pages of every remaining span, with their number.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (NonNull<u8>, usize)> + '_ {
        let end = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fresh
            .raw();
        (1..end).filter_map(SpanId::from_raw).filter_map(|id| {
            let span = self.get(id)?;
            let base = span.base.swap(ptr::null_mut(), Ordering::Relaxed);
            Some((NonNull::new(base)?, usize::from(span.pages())))
        })
    }

    /// Removes an empty span, which is on no list, from the table. Returns its pages.
    pub(super) fn remove(&self, id: SpanId) -> Option<NonNull<u8>> {
        let span = self.get(id)?;
        let base = span.base.swap(ptr::null_mut(), Ordering::Relaxed);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        span.set_next(free.head);
        free.head = Some(id);
        NonNull::new(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::sizes::CLASSES;

    #[test]
    fn a_span_gives_each_object_once() {
        let table = SpanTable::new();
        for class in [
            CLASSES[0],
            CLASSES[CLASSES.len() - 2],
            CLASSES[CLASSES.len() - 1],
        ] {
            let id = table.add(NonNull::dangling(), class).expect("room");
            let span = table.get(id).expect("added");
            for object in 0..class.objects {
                assert_eq!(span.taken_from(object, class.objects), None);
                assert_eq!(span.take_object().map(u16::from), Some(object));
                assert_eq!(
                    span.taken_from(object, class.objects).map(u16::from),
                    Some(object)
                );
            }
            assert_eq!(span.take_object(), None);
            let last = u8::try_from(class.objects - 1).expect("at most 256 objects");
            span.give_object(last);
            assert_eq!(
                (span.live(), span.take_object()),
                (class.objects - 1, Some(last))
            );
            assert_eq!(table.remove(id), Some(NonNull::dangling()));
            assert_eq!(
                table.add(NonNull::dangling(), class),
                Some(id),
                "numbers are used again"
            );
            table.remove(id);
        }
    }
}
