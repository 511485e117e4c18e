//! Pages that a thread works with, in the engine's own memory: content of programs lies nowhere else for longer than a
//! function takes. For one thread at a time.
//!
//! Unsafe is needed here because the memory of a `PageSource` is raw.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::pages::{HeapPages, Page, PageSource};

/// Pages out of a [`PageSource`], wiped before they are used and when they are given back.
pub struct PageBuffer {
    pages: NonNull<Page>,
    count: usize,
    source: Arc<dyn PageSource>,
}

// SAFETY: Only the buffer owns the memory behind the pointer, and a source can be used by every thread.
unsafe impl Send for PageBuffer {}
// SAFETY: As for Send. A shared buffer is only read.
unsafe impl Sync for PageBuffer {}

impl PageBuffer {
    /// A buffer without pages, to be grown.
    #[must_use]
    pub fn empty(source: &Arc<dyn PageSource>) -> PageBuffer {
        PageBuffer {
            pages: NonNull::dangling(),
            count: 0,
            source: Arc::clone(source),
        }
    }

    /// A buffer of `count` pages of zeros. If the source has no more memory, it comes from the allocator.
    #[must_use]
    pub fn new(source: &Arc<dyn PageSource>, count: usize) -> PageBuffer {
        if count == 0 {
            return PageBuffer::empty(source);
        }
        let of = |source: Arc<dyn PageSource>| {
            let pages = source.alloc(count)?.cast();
            Some(PageBuffer {
                pages,
                count,
                source,
            })
        };
        let mut buffer = of(Arc::clone(source))
            .or_else(|| of(Arc::new(HeapPages::new())))
            .unwrap_or_else(|| handle_alloc_error(Layout::new::<Page>()));
        buffer.wipe();
        buffer
    }

    fn wipe(&mut self) {
        self.iter_mut().for_each(|page| page.0.fill(0));
    }

    /// Where it takes pages from.
    pub(crate) fn source(&self) -> &Arc<dyn PageSource> {
        &self.source
    }

    /// Has at least `count` pages afterwards. What they held is gone if there were fewer.
    pub fn grow(&mut self, count: usize) {
        if self.count < count {
            *self = PageBuffer::new(&self.source, count);
        }
    }
}

impl Deref for PageBuffer {
    type Target = [Page];

    fn deref(&self) -> &[Page] {
        // SAFETY: The source gave so many initialised pages to this buffer alone. Of none, any aligned pointer will do.
        unsafe { slice::from_raw_parts(self.pages.as_ptr(), self.count) }
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [Page] {
        // SAFETY: As above, and `&mut self` makes this the only borrow.
        unsafe { slice::from_raw_parts_mut(self.pages.as_ptr(), self.count) }
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        if self.count > 0 {
            self.wipe();
            // SAFETY: The run came from `alloc` of this source with this length, and nobody uses it any longer.
            unsafe { self.source.free(self.pages.cast(), self.count) };
        }
    }
}

impl fmt::Debug for PageBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBuffer")
            .field("pages", &self.count)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn buffers_grow_and_give_their_memory_back() {
        let heap = Arc::new(HeapPages::new());
        let source: Arc<dyn PageSource> = heap.clone();
        let mut buffer = PageBuffer::empty(&source);
        assert!(buffer.is_empty() && heap.pages_out() == 0);
        buffer.grow(3);
        assert!(buffer.iter().all(Page::is_zero));
        buffer.iter_mut().for_each(|page| page.0.fill(7));
        buffer.grow(2);
        assert!(buffer.len() == 3 && buffer[2] == Page([7; 4096]));
        buffer.grow(5);
        assert_eq!((buffer.len(), heap.pages_out()), (5, 5));
        drop(buffer);
        assert_eq!(heap.pages_out(), 0);
    }

    #[test]
    fn a_source_without_memory_is_no_end() {
        /// Has nothing.
        struct Nothing;
        // SAFETY: It hands out no memory.
        unsafe impl PageSource for Nothing {
            fn alloc(&self, _: usize) -> Option<NonNull<u8>> {
                None
            }
            unsafe fn free(&self, _: NonNull<u8>, _: usize) {}
        }
        let source: Arc<dyn PageSource> = Arc::new(Nothing);
        let mut buffer = PageBuffer::new(&source, 2);
        buffer[1].0.fill(9);
        assert_eq!(buffer[1].0[4095], 9);
    }
}
