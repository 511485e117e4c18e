//! One size class at work: which objects are taken, by which row, and which spans have room.
//!
//! [`ClassState`] and the row numbers of objects are used only under the class lock. Payloads and checksums are written
//! without it before the row is published, and read without it while the object is pinned. Only compaction copies them
//! under the lock. A taken object belongs to the thread that took it until its row is published.
//!
//! Unsafe is needed here because objects lie in raw pages at computed offsets, and others read them while the class
//! goes on working in the same span.

use super::fullness::FullnessLists;
use super::rows::RowCache;
use super::sizes::{HEADER_BYTES, SizeClass};
use super::span::{Span, SpanId, SpanTable};

/// What a class's mutex guards.
#[derive(Debug, Default)]
pub(super) struct ClassState {
    pub lists: FullnessLists,
    /// Free rows at hand.
    pub rows: RowCache,
    pub spans: usize,
    pub live: usize,
    /// Bytes of the live payloads, without headers.
    pub payload_bytes: usize,
}

/// A taken object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object {
    pub span: SpanId,
    pub object: u8,
}

impl ClassState {
    /// Takes an object from the fullest span with room, for the row at `index`. `None` if no span has room.
    pub(super) fn take(
        &mut self,
        class: SizeClass,
        spans: &SpanTable,
        index: u32,
    ) -> Option<Object> {
        let id = self.lists.fullest()?;
        self.take_from(id, class, spans, index)
    }

    /// Like `take`, from a given span with room.
    pub(super) fn take_from(
        &mut self,
        id: SpanId,
        class: SizeClass,
        spans: &SpanTable,
        index: u32,
    ) -> Option<Object> {
        let span = spans.get(id)?;
        let object = span.take_object()?;
        self.lists.update(id, span, spans, class.objects);
        self.live += 1;
        // Done under the lock, so that compaction finds the right row for every taken object.
        set_row(span, object, class, index);
        debug_assert_eq!(self.are_counters_valid(class), Ok(()));
        Some(Object { span: id, object })
    }

    /// Adds a new, empty span.
    pub(super) fn add_span(&mut self, id: SpanId, class: SizeClass, spans: &SpanTable) {
        let Some(span) = spans.get(id) else { return };
        self.lists.insert(id, span, spans, class.objects);
        self.spans += 1;
    }

    /// Gives an object back. True if its span is now empty and was taken off the lists. The caller then removes the
    /// span from the table and frees its pages, without the lock.
    #[must_use]
    pub(super) fn give(&mut self, taken: Object, class: SizeClass, spans: &SpanTable) -> bool {
        let Some(span) = spans.get(taken.span) else {
            return false;
        };
        span.give_object(taken.object);
        self.live -= 1;
        self.lists.update(taken.span, span, spans, class.objects);
        if span.live() > 0 {
            return false;
        }
        self.lists.remove(taken.span, span, spans);
        self.spans -= 1;
        debug_assert_eq!(self.are_counters_valid(class), Ok(()));
        true
    }

    /// Whether an object can be taken.
    pub(super) fn has_room(&self) -> bool {
        self.lists.fullest().is_some()
    }

    /// Number of objects that could be stored without a new span.
    pub(super) fn room(&self, class: SizeClass) -> usize {
        self.spans * usize::from(class.objects) - self.live
    }

    /// Pages that compaction could give back at best.
    pub(super) fn spare_pages(&self, class: SizeClass) -> usize {
        self.room(class) / usize::from(class.objects) * usize::from(class.pages)
    }
}

/// First byte of an object, which is its header. `span` must be of class `class`.
#[inline]
fn header(span: &Span, object: u8, class: SizeClass) -> *mut u32 {
    let offset = usize::from(object) * usize::from(class.stride_bytes);
    span.base().wrapping_add(offset).cast()
}

/// First byte of an object's payload.
#[inline]
pub(super) fn payload_start(span: &Span, object: u8, class: SizeClass) -> *mut u8 {
    header(span, object, class)
        .cast::<u8>()
        .wrapping_add(HEADER_BYTES)
}

/// Writes a payload to an object, and zeros behind it up to the object's end: what lay there may be of another group.
///
/// # Safety
/// The caller has the object for itself. `payload` has `bytes` bytes, no more than the class has room for, and lies
/// elsewhere.
#[inline]
pub(super) unsafe fn fill(
    span: &Span,
    object: u8,
    class: SizeClass,
    payload: *const u8,
    bytes: usize,
) {
    let start = payload_start(span, object, class);
    let room = usize::from(class.stride_bytes) - HEADER_BYTES;
    // SAFETY: The object's stride has room for header and payload, so all of this lies within it.
    unsafe {
        start.copy_from_nonoverlapping(payload, bytes);
        start.add(bytes).write_bytes(0, room - bytes);
    }
}

/// The row to which a taken object belongs.
pub(super) fn row_of(span: &Span, object: u8, class: SizeClass) -> u32 {
    // SAFETY: A span's pages hold `class.objects` strides of memory, strides are multiples of 16, and the base is page
    // aligned. The row is read and written only under the class lock, which the caller holds.
    unsafe { header(span, object, class).read() }
}

fn set_row(span: &Span, object: u8, class: SizeClass, index: u32) {
    // SAFETY: As in `row_of`.
    unsafe { header(span, object, class).write(index) };
}

/// Checksum of an object's payload. The caller has the object pinned or locked.
#[inline]
pub(super) fn checksum_of(span: &Span, object: u8, class: SizeClass) -> u32 {
    // SAFETY: This is the second half of the header: inside the object, and aligned as in `row_of`. It was written
    // before the row was published. Nobody writes it while the object is pinned or locked.
    unsafe { header(span, object, class).add(1).read() }
}

/// Sets the checksum of an object that the caller has taken and not yet published.
#[inline]
pub(super) fn set_checksum(span: &Span, object: u8, class: SizeClass, checksum: u32) {
    // SAFETY: As in `checksum_of`. Until it is published, only the caller has the object.
    unsafe { header(span, object, class).add(1).write(checksum) };
}
