//! The tables of a cluster: the memory of its words, and the types of its other tables.
//!
//! Unsafe is needed here because the memory comes from a `PageSource` as raw pages, and is given back while readers
//! without a lock may look at it.

use std::ptr::NonNull;

use crate::base::pages::{PAGE_BYTES, PageSource};
use crate::base::sync::AtomicU64;
use crate::words::geometry::SLOTS_PER_CLUSTER;

/// One page of words: a cluster's swap table or its backing table. In an empty cluster all words are zero.
pub(crate) type Table = [AtomicU64; SLOTS_PER_CLUSTER];

/// Number of pages in a table.
pub(crate) const TABLE_PAGES: usize = size_of::<Table>().div_ceil(PAGE_BYTES);

#[cfg(not(any(loom, shuttle)))]
pub(super) mod memory {
    use super::{NonNull, PAGE_BYTES, PageSource, TABLE_PAGES, Table};

    pub fn alloc(source: &dyn PageSource) -> Option<NonNull<Table>> {
        const _: () = assert!(align_of::<Table>() <= PAGE_BYTES);
        let run = source.alloc(TABLE_PAGES)?;
        // SAFETY: The run is ours and TABLE_PAGES long. Zeroing it makes valid atomics, as every bit pattern is valid.
        unsafe { run.as_ptr().write_bytes(0, TABLE_PAGES * PAGE_BYTES) };
        Some(run.cast())
    }

    /// # Safety
    /// `table` came from `alloc` with this source and nobody uses it any longer.
    pub unsafe fn free(table: NonNull<Table>, source: &dyn PageSource) {
        // SAFETY: By the caller's contract the run came from `alloc`, TABLE_PAGES long, and nobody uses it.
        unsafe { source.free(table.cast(), TABLE_PAGES) };
    }

    /// Gives the memory back and keeps the addresses. Every word is zero before and after.
    ///
    /// # Safety
    /// `table` came from `alloc` with this source, was not freed, and nobody writes to it meanwhile.
    pub unsafe fn discard(table: NonNull<Table>, source: &dyn PageSource) {
        // SAFETY: The run is TABLE_PAGES long and stays ours. Readers may look at it; they see zeros before and after.
        unsafe { source.discard(table.cast(), TABLE_PAGES) };
    }
}

// The model checkers' atomics are bigger than a word and must be constructed, so their tables are boxes.
#[cfg(any(loom, shuttle))]
pub(super) mod memory {
    use super::{AtomicU64, NonNull, PageSource, Table};

    pub fn alloc(_source: &dyn PageSource) -> Option<NonNull<Table>> {
        let zeros: Table = std::array::from_fn(|_| AtomicU64::new(0));
        NonNull::new(Box::into_raw(Box::new(zeros)))
    }

    /// # Safety
    /// `table` came from `alloc` and nobody uses it any longer.
    pub unsafe fn free(table: NonNull<Table>, _source: &dyn PageSource) {
        // SAFETY: By the caller's contract the pointer came from `Box::into_raw` in `alloc`, and nobody uses it.
        drop(unsafe { Box::from_raw(table.as_ptr()) });
    }

    /// Boxes have nothing to give back.
    ///
    /// # Safety
    /// None needed.
    pub unsafe fn discard(_table: NonNull<Table>, _source: &dyn PageSource) {}
}

/// Counts of the slots whose word says "overflow". 0 for all other slots.
pub(crate) type ExtendTable = [u32; SLOTS_PER_CLUSTER];
