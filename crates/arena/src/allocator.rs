//! An allocator for collections: what is smaller than a page comes from slabs, all else is whole pages.
//!
//! Not a `GlobalAlloc`: the arena allocates its tables, and the threads that read areas allocate while a program waits
//! for them. Both must find an allocator that does not need the arena.
//!
//! Unsafe is needed here because the trait of allocators promises what the compiler cannot check.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use allocator_api2::alloc::{AllocError, Allocator};
use vswap_sys::sigbus;

use crate::error::ArenaError;
use crate::groups::GroupNumber;
use crate::owner::Owner;
use crate::small::class_of;
use crate::state::PAGE_BYTES;

/// Allocates from an arena, and keeps it alive.
#[derive(Debug, Clone)]
pub struct ArenaAllocator {
    owner: Arc<Owner>,
    group: GroupNumber,
}

impl ArenaAllocator {
    pub(crate) fn new(owner: Arc<Owner>, group: GroupNumber) -> ArenaAllocator {
        ArenaAllocator { owner, group }
    }

    /// The first byte of a new allocation, in bytes of the arena.
    fn take(&self, layout: Layout) -> Result<usize, ArenaError> {
        self.owner.check_home()?;
        match class_of(layout) {
            Some(class) => self.owner.take_small(class, self.group),
            None => Ok(self.owner.take_aligned(layout, self.group)?.start * PAGE_BYTES),
        }
    }

    fn give(&self, at: usize, layout: Layout) {
        if class_of(layout).is_none() {
            let first = at / PAGE_BYTES;
            let pages = first..first + layout.size().div_ceil(PAGE_BYTES);
            self.owner.free_pages(pages);
        } else if self.owner.give_small(at).is_err() {
            // Whoever frees an object twice has perhaps freed another one's.
            sigbus::say("vswap-arena: an object was given back that is not in use\n");
            std::process::abort();
        }
    }

    /// Whether an allocation of one layout can serve as one of the other where it is.
    fn is_alike(old: Layout, new: Layout) -> bool {
        match (class_of(old), class_of(new)) {
            (Some(old), Some(new)) => old == new,
            (None, None) => {
                new.align() <= old.align().max(PAGE_BYTES)
                    && old.size().div_ceil(PAGE_BYTES) == new.size().div_ceil(PAGE_BYTES)
            }
            _ => false,
        }
    }
}

fn slice(place: NonNull<u8>, bytes: usize) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(place, bytes)
}

fn dangling(layout: Layout) -> NonNull<u8> {
    let address =
        std::num::NonZeroUsize::new(layout.align()).unwrap_or(std::num::NonZeroUsize::MIN);
    NonNull::without_provenance(address)
}

// SAFETY: an allocation is a slab's object or pages that nobody else has until it is given back. Its memory is mapped
// as long as a clone of this lives, and its content is what was written to it, wherever the page is meanwhile. Clones
// share one arena.
unsafe impl Allocator for ArenaAllocator {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(slice(dangling(layout), 0));
        }
        let at = self.take(layout).map_err(|_| AllocError)?;
        Ok(slice(self.owner.place(at), layout.size()))
    }

    unsafe fn deallocate(&self, place: NonNull<u8>, layout: Layout) {
        // In the child of a fork the memory is not there. To give it back is the parent's business.
        if layout.size() == 0 || self.owner.check_home().is_err() {
            return;
        }
        if let Some(at) = self.owner.offset(place.addr().get()) {
            self.give(at, layout);
        }
    }

    unsafe fn grow(
        &self,
        place: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promises are the same.
        unsafe { self.resize(place, old, new) }
    }

    unsafe fn shrink(
        &self,
        place: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promises are the same.
        unsafe { self.resize(place, old, new) }
    }
}

impl ArenaAllocator {
    /// Grows or shrinks an allocation.
    ///
    /// # Safety
    /// `place` is an allocation of this arena with the layout `old`.
    unsafe fn resize(
        &self,
        place: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() > 0 && new.size() > 0 && ArenaAllocator::is_alike(old, new) {
            return Ok(slice(place, new.size()));
        }
        let larger = self.allocate(new)?;
        let bytes = old.size().min(new.size());
        // SAFETY: both allocations have so many bytes, and a new one overlaps none. The caller gives up the old one,
        // which has this layout.
        unsafe {
            std::ptr::copy_nonoverlapping(place.as_ptr(), larger.cast().as_ptr(), bytes);
            self.deallocate(place, old);
        }
        Ok(larger)
    }
}
