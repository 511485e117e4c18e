//! Storing payloads and giving their memory back.
//!
//! Bookkeeping is done under the lock of the class (or of the whole pages). Payloads are copied without that lock. Page
//! sources, which may be slow, are also called without it. What an earlier payload has left is wiped, because the new
//! one may be of another group.
//!
//! Unsafe is needed here because payloads are copied to raw pages that others read elsewhere, and because pages go back
//! to a `PageSource`, whose `free` is unsafe.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::checksum::checksum;
use super::class::{ClassState, Object, fill, set_checksum};
use super::handle::Handle;
use super::pool::{Pool, lock};
use super::row::{Location, Row};
use super::sizes::{CLASSES, SizeClass, class_of};
use super::span::SpanId;
use crate::base::pages::PAGE_BYTES;

impl Pool {
    /// `store` without the error's figures, and not counted as rejected. May take the pool `beyond_bytes` above its
    /// limit. `None` when there is no room, and while the pool is further above it than that: free places in its spans
    /// are for those who may take it there.
    #[inline]
    pub(crate) fn store_beyond(&self, payload: &[u8], beyond_bytes: u64) -> Option<Handle> {
        if payload.len() > PAGE_BYTES || self.excess_bytes() > beyond_bytes {
            return None;
        }
        let checksum = if self.checksums { checksum(payload) } else { 0 };
        let payload_bytes = u16::try_from(payload.len()).ok()?;
        let (index, row, span, object) = match class_of(payload.len()) {
            Some(class) => self.fill_object(class, payload, checksum, beyond_bytes)?,
            None => self.fill_page(payload, checksum, beyond_bytes)?,
        };
        row.publish(Location {
            span,
            object,
            payload_bytes,
        });
        Some(Handle::of_index(index))
    }

    /// Copies the payload into an object of class number `class`.
    fn fill_object(
        &self,
        class: usize,
        payload: &[u8],
        checksum: u32,
        beyond_bytes: u64,
    ) -> Option<(u32, &Row, SpanId, u8)> {
        let (class, state) = (CLASSES[class], &self.classes[class]);
        let (index, row, taken) = self.take(class, state, payload.len(), beyond_bytes)?;
        let span = self.spans.get(taken.span)?;
        // SAFETY: The object was taken for this call alone, and its stride has room for header and payload. Its row is
        // not live yet, so compaction leaves it alone. `payload` cannot overlap it, because nobody else knows the
        // object.
        unsafe { fill(span, taken.object, class, payload.as_ptr(), payload.len()) };
        set_checksum(span, taken.object, class, checksum);
        Some((index, row, taken.span, taken.object))
    }

    /// Copies the payload into a page of its own.
    fn fill_page(
        &self,
        payload: &[u8],
        checksum: u32,
        beyond_bytes: u64,
    ) -> Option<(u32, &Row, SpanId, u8)> {
        self.reserve(1, beyond_bytes)?;
        let Some(run) = self.pages.alloc(1) else {
            self.unreserve(1);
            return None;
        };
        // SAFETY: The source gave the page to this call alone, and a payload is at most a page.
        unsafe {
            run.as_ptr()
                .copy_from_nonoverlapping(payload.as_ptr(), payload.len());
            let rest = PAGE_BYTES - payload.len();
            run.as_ptr().add(payload.len()).write_bytes(0, rest);
        }
        let mut state = self.whole.lock();
        let row = self.rows.take(&mut state.rows);
        let id = row.and_then(|_| self.whole.add(&mut state, run, payload.len()));
        if let (Some((index, row)), Some(id)) = (row, id) {
            drop(state);
            self.whole.get(id)?.set_checksum(checksum);
            return Some((index, row, id, 0));
        }
        if let Some((index, _)) = row {
            self.rows.give(&mut state.rows, index);
        }
        drop(state);
        // SAFETY: The page came from `alloc(1)`, and no table knows it.
        unsafe { self.pages.free(run, 1) };
        self.unreserve(1);
        None
    }

    /// Takes a free row and an object for it. Makes a new span if there is no room.
    fn take<'p>(
        &'p self,
        class: SizeClass,
        state: &Mutex<ClassState>,
        payload_bytes: usize,
        beyond_bytes: u64,
    ) -> Option<(u32, &'p Row, Object)> {
        let mut state_now = lock(state);
        let (index, row) = self.rows.take(&mut state_now.rows)?;
        loop {
            let mut taken = state_now.take(class, &self.spans, index);
            if taken.is_none() {
                drop(state_now);
                let added = self.new_span(class, beyond_bytes);
                state_now = lock(state);
                if let Some(id) = added {
                    state_now.add_span(id, class, &self.spans);
                    // From this span, even if another has room by now. Otherwise an empty span would stay on the lists.
                    taken = state_now.take_from(id, class, &self.spans, index);
                } else if !state_now.has_room() {
                    self.rows.give(&mut state_now.rows, index);
                    return None;
                }
            }
            if let Some(taken) = taken {
                state_now.payload_bytes += payload_bytes;
                return Some((index, row, taken));
            }
        }
    }

    /// Makes a new span of `class`, if that is not too far beyond the limit. It is on no list yet.
    #[cold]
    fn new_span(&self, class: SizeClass, beyond_bytes: u64) -> Option<SpanId> {
        let pages = usize::from(class.pages);
        self.reserve(pages, beyond_bytes)?;
        let run = self.pages.alloc(pages);
        let id = run.and_then(|run| self.spans.add(run, class));
        if id.is_none() {
            if let Some(run) = run {
                // SAFETY: The run came from `alloc(pages)` just now, and no table knows it.
                unsafe { self.pages.free(run, pages) };
            }
            self.unreserve(pages);
        }
        id
    }

    /// Gives the pages of an empty span back. The span is on no list.
    pub(super) fn free_span(&self, id: SpanId, class: SizeClass) {
        let pages = usize::from(class.pages);
        if let Some(run) = self.spans.remove(id) {
            // SAFETY: The run came from `alloc` with the class's number of pages. The span had no objects and is on no
            // list, so nobody can reach its pages, and `remove` gave the run to this caller alone.
            unsafe { self.pages.free(run, pages) };
        }
        self.unreserve(pages);
    }

    /// Gives back the memory of a retired object, and its row.
    pub(super) fn give_back(&self, index: u32, location: Location) {
        let payload_bytes = usize::from(location.payload_bytes);
        let Some(class) = class_of(payload_bytes) else {
            return self.give_page_back(index, location.span, payload_bytes);
        };
        let (class, state) = (CLASSES[class], &self.classes[class]);
        let mut state = lock(state);
        state.payload_bytes -= payload_bytes;
        let taken = Object {
            span: location.span,
            object: location.object,
        };
        let emptied = state.give(taken, class, &self.spans);
        // Only now may the row serve another object. As long as the object counts as taken, it names this row.
        self.rows.give(&mut state.rows, index);
        drop(state);
        if emptied {
            self.free_span(location.span, class);
        }
    }

    fn give_page_back(&self, index: u32, id: SpanId, payload_bytes: usize) {
        let mut state = self.whole.lock();
        let run = self.whole.remove(&mut state, id, payload_bytes);
        self.rows.give(&mut state.rows, index);
        drop(state);
        if let Some(run) = run {
            // SAFETY: The page came from `alloc(1)`. Its row was retired and has no readers, and `remove` gave the page
            // to this caller alone.
            unsafe { self.pages.free(run, 1) };
        }
        self.unreserve(1);
    }

    /// Counts `pages` as used, if that is not too far beyond the limit.
    fn reserve(&self, pages: usize, beyond_bytes: u64) -> Option<()> {
        let bytes = (pages * PAGE_BYTES) as u64;
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        let limit = limit.saturating_add(beyond_bytes);
        self.span_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&total| total <= limit)
            })
            .ok()
            .map(|_| ())
    }

    fn unreserve(&self, pages: usize) {
        self.span_bytes
            .fetch_sub((pages * PAGE_BYTES) as u64, Ordering::Relaxed);
    }
}
