//! The engine's memory: runs of pages from one reservation, in no core dump.
//!
//! Unsafe is needed here because the engine takes its memory as raw pointers.

use std::ptr::NonNull;

use vswap_engine::PageSource;
use vswap_sys::memory::{HugePages, MemoryError, PageArena};

/// Addresses that are reserved for pool, frames and tables: so many times the arena's RAM. Runs of pages leave gaps.
const RESERVED_TIMES: u64 = 4;
/// And at least so many bytes.
const RESERVED_LEAST_BYTES: u64 = 1 << 32;

/// A page source on mapped memory.
#[derive(Debug)]
pub struct MappedPages(PageArena);

impl MappedPages {
    /// Reserves addresses for an arena that may take so much RAM.
    ///
    /// # Errors
    /// The addresses may not be reserved.
    pub fn new(ram_bytes: u64) -> Result<MappedPages, MemoryError> {
        let bytes = ram_bytes
            .saturating_mul(RESERVED_TIMES)
            .max(RESERVED_LEAST_BYTES);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(MappedPages(PageArena::new(bytes, HugePages::Never)?))
    }

    /// The most of it that can be resident.
    pub fn resident_bytes(&self) -> u64 {
        self.0.bytes().resident_max()
    }
}

// SAFETY: runs of the page arena are mapped, page aligned and initialised by the kernel, and each has one user at a
// time.
unsafe impl PageSource for MappedPages {
    fn alloc(&self, pages: usize) -> Option<NonNull<u8>> {
        self.0.alloc(pages)
    }

    unsafe fn free(&self, run: NonNull<u8>, pages: usize) {
        // SAFETY: the caller gives back what `alloc` returned and does not use it any more.
        unsafe { self.0.free(run, pages) }
    }

    unsafe fn discard(&self, run: NonNull<u8>, pages: usize) {
        // SAFETY: the caller makes the promise that `clear` demands.
        unsafe { self.0.clear(run, pages) }
    }
}
