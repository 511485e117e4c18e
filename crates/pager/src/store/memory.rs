//! The engine's memory: runs of pages from one reservation.

use std::ptr::NonNull;

use vswap_engine::PageSource;
use vswap_sys::memory::{HugePages, MemoryError, PageArena};

/// Address space reserved for pool and frames. Only used pages take memory.
const RESERVATION_BYTES: usize = 1 << 40;

/// A page source on mapped memory.
#[derive(Debug)]
pub struct MappedPages(PageArena);

impl MappedPages {
    /// Reserve the address space.
    ///
    /// # Errors
    /// `MemoryError` when the address space may not be reserved (RLIMIT_AS).
    pub fn new() -> Result<MappedPages, MemoryError> {
        Ok(MappedPages(PageArena::new(
            RESERVATION_BYTES,
            HugePages::Never,
        )?))
    }
}

// SAFETY: runs of the arena are mapped, page aligned and initialised by the kernel, and each has one user at a time.
// Unsafe is needed because the engine takes its memory as raw pointers, and the trait demands these promises.
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
