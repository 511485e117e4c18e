//! Compaction: moves the objects of the emptiest spans into the fullest, and gives the emptied pages back.
//!
//! It works on one span at a time under the lock of the class, which means at most 32 KiB of copying, and releases the
//! lock in between. Objects that have readers, or that are being stored or freed, are skipped, never waited for.

use std::sync::atomic::Ordering;

use super::class::{ClassState, Object, checksum_of, fill, payload_start, row_of, set_checksum};
use super::pool::{Pool, lock};
use super::row::Location;
use super::sizes::{CLASSES, SizeClass};
use super::span::{Span, SpanId};

/// Result of trying to empty a span.
enum Emptied {
    /// The span is off the lists; its pages are still to be freed.
    Freed(SpanId),
    /// Some objects could not be moved.
    Stuck,
    /// The class has less free room than a whole span.
    Dense,
}

impl Pool {
    /// Moves objects together until `budget_pages` pages were given back or nothing more can be gained. Returns the
    /// number of pages given back, which may exceed the budget by one span less a page.
    ///
    /// Locks: one class lock at a time, for one span at a time.
    pub fn compact(&self, budget_pages: usize) -> usize {
        let mut freed_pages = 0;
        for (class, state) in CLASSES.iter().copied().zip(&self.classes) {
            while freed_pages < budget_pages {
                let emptied = self.empty_one(class, &mut lock(state));
                let Emptied::Freed(id) = emptied else { break };
                self.free_span(id, class);
                freed_pages += usize::from(class.pages);
            }
        }
        self.counters
            .compacted_pages
            .fetch_add(freed_pages as u64, Ordering::Relaxed);
        freed_pages
    }

    /// Moves all objects of the emptiest span elsewhere.
    fn empty_one(&self, class: SizeClass, state: &mut ClassState) -> Emptied {
        if state.room(class) < usize::from(class.objects) {
            return Emptied::Dense;
        }
        let Some(from) = state.lists.emptiest() else {
            return Emptied::Dense;
        };
        let Some(span) = self.spans.get(from) else {
            return Emptied::Dense;
        };
        let mut next = 0;
        while let Some(object) = span.taken_from(next, class.objects) {
            if self.move_object(from, span, object, class, state) {
                return Emptied::Freed(from);
            }
            next = u16::from(object) + 1;
        }
        // The span is empty at once if its last objects left while the lock was released. Under the lock it is never
        // empty.
        Emptied::Stuck
    }

    /// Moves one object to the fullest other span with room. True if its old span is now empty.
    fn move_object(
        &self,
        from: SpanId,
        span: &Span,
        object: u8,
        class: SizeClass,
        state: &mut ClassState,
    ) -> bool {
        let index = row_of(span, object, class);
        let Some(row) = self.rows.get(index) else {
            return false;
        };
        let Some(to) = state.lists.fullest_but(from, &self.spans) else {
            return false;
        };
        let Some(old) = row.try_lock() else {
            return false;
        };
        let target = self.spans.get(to);
        let taken = state.take_from(to, class, &self.spans, index);
        let (Some(target), Some(taken)) = (target, taken) else {
            row.publish(old);
            return false;
        };
        // SAFETY: Both objects are of `class`, so both have room for the payload, and they are different objects.
        // Locking the row and taking the object gave both to this thread alone. Raw pointers, because others read in
        // the same spans.
        unsafe {
            let payload = payload_start(span, object, class);
            let bytes = usize::from(old.payload_bytes);
            fill(target, taken.object, class, payload, bytes);
        }
        set_checksum(
            target,
            taken.object,
            class,
            checksum_of(span, object, class),
        );
        row.publish(Location {
            span: taken.span,
            object: taken.object,
            ..old
        });
        state.give(Object { span: from, object }, class, &self.spans)
    }
}
