//! Pages, the unit of everything the engine keeps, and the source of memory for them.
//!
//! The engine makes no system call, so its caller gives it memory. A [`PageSource`] hands out runs of contiguous pages
//! and takes them back. The pager's source maps memory. [`HeapPages`] takes it from the allocator.
//!
//! Unsafe is needed here because no safe container holds a run of pages whose number is known only at run time, aligned
//! to a page, and because such a run is shared by threads and read while its source discards it.

use std::alloc::{Layout, alloc, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a page, and the unit in which the kernel reports faults: the base page of x86_64 and of most kernels for
/// aarch64. The header of a swap area is one page long as well, so it is no choice of ours.
pub const PAGE_BYTES: usize = 4096;

/// One page of content.
#[repr(C, align(4096))]
#[derive(Clone, PartialEq, Eq)]
pub struct Page(pub [u8; PAGE_BYTES]);

const _: () = assert!(size_of::<Page>() == PAGE_BYTES && align_of::<Page>() == PAGE_BYTES);

impl Page {
    /// A page of zeros.
    #[must_use]
    pub const fn zeroed() -> Self {
        Page([0; PAGE_BYTES])
    }

    /// Whether every byte is zero.
    ///
    /// Looks at both ends first. A nonzero page nearly always shows it there, so most calls touch two cache lines. The
    /// rest is read in blocks that the compiler turns into vector instructions.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        /// Bytes tested at once: few enough to stop early, enough to fill the vector units.
        const BLOCK_BYTES: usize = 256;
        let (ends, _) = self.0.as_chunks::<8>();
        if ends[ends.len() - 1] != [0; 8] || ends[0] != [0; 8] {
            return false;
        }
        let (blocks, _) = self.0.as_chunks::<BLOCK_BYTES>();
        blocks.iter().all(|block| {
            let (words, _) = block.as_chunks::<8>();
            words
                .iter()
                .fold(0, |any, word| any | u64::from_ne_bytes(*word))
                == 0
        })
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({:02x?}..)", &self.0[..16])
    }
}

/// Source of the memory of spans and frames.
///
/// # Safety
/// A run returned by `alloc(pages)` must satisfy the following until `free` gets it back. It is valid for reads and
/// writes of `pages * PAGE_BYTES` bytes, aligned to [`PAGE_BYTES`] and initialised (to zeros or anything else). Only
/// the caller uses it.
pub unsafe trait PageSource: Send + Sync {
    /// Hands out a run of `pages` contiguous pages (1 to 8 for spans, more for frames), or `None` when there is no
    /// memory.
    fn alloc(&self, pages: usize) -> Option<NonNull<u8>>;

    /// Takes a run back.
    ///
    /// # Safety
    /// `run` came from `alloc(pages)` of this source with the same `pages`, and nothing uses it any longer.
    unsafe fn free(&self, run: NonNull<u8>, pages: usize);

    /// Gives the memory of a run back but keeps its addresses. The run stays valid. From now on each byte is either
    /// what it was or zero. Other threads may be reading the bytes, atomically. A source that cannot do this does
    /// nothing.
    ///
    /// # Safety
    /// `run` lies in what `alloc` of this source has given out, all of its `pages`, and was not freed. Nobody writes to
    /// it during the call.
    unsafe fn discard(&self, run: NonNull<u8>, pages: usize) {
        let _ = (run, pages);
    }
}

impl fmt::Debug for dyn PageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PageSource")
    }
}

/// Pages from the global allocator. It counts them, so that a test sees which were not given back.
#[derive(Debug, Default)]
pub struct HeapPages {
    pages_out: AtomicUsize,
}

impl HeapPages {
    /// A source that has given out nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Pages given out and not yet taken back.
    #[must_use]
    pub fn pages_out(&self) -> usize {
        self.pages_out.load(Ordering::Relaxed)
    }

    fn layout(pages: usize) -> Option<Layout> {
        if pages == 0 {
            return None;
        }
        Layout::from_size_align(pages.checked_mul(PAGE_BYTES)?, PAGE_BYTES).ok()
    }
}

// SAFETY: The global allocator gives exclusive memory of the layout's size and alignment until `dealloc`;
// every byte of it is written before the run is handed out.
unsafe impl PageSource for HeapPages {
    fn alloc(&self, pages: usize) -> Option<NonNull<u8>> {
        let layout = Self::layout(pages)?;
        // SAFETY: The layout has a size above zero.
        let run = NonNull::new(unsafe { alloc(layout) })?;
        // SAFETY: The allocation has `layout.size()` bytes. It is filled with a pattern and not with zeros, so that
        // tests notice a caller that counts on zeros.
        unsafe { run.as_ptr().write_bytes(0xa5, layout.size()) };
        self.pages_out.fetch_add(pages, Ordering::Relaxed);
        Some(run)
    }

    unsafe fn free(&self, run: NonNull<u8>, pages: usize) {
        let Some(layout) = Self::layout(pages) else {
            return;
        };
        self.pages_out.fetch_sub(pages, Ordering::Relaxed);
        // SAFETY: By the caller's contract `run` came from `alloc`, which used this same layout.
        unsafe { dealloc(run.as_ptr(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_zero_only_if_every_byte_is() {
        let mut page = Box::new(Page::zeroed());
        assert!(page.is_zero());
        let step = if cfg!(miri) { 509 } else { 1 };
        for at in (0..PAGE_BYTES).step_by(step) {
            page.0[at] = 1;
            assert!(!page.is_zero(), "byte {at}");
            page.0[at] = 0;
        }
        assert!(page.is_zero());
    }

    #[test]
    fn heap_pages_are_aligned_and_counted() {
        let source = HeapPages::new();
        assert!(source.alloc(0).is_none());
        let run = source.alloc(3).expect("three pages");
        assert_eq!(run.as_ptr().addr() % PAGE_BYTES, 0);
        assert_eq!(source.pages_out(), 3);
        // SAFETY: The run came from `alloc(3)` just now and is not used again.
        unsafe { source.free(run, 3) };
        assert_eq!(source.pages_out(), 0);
    }
}
