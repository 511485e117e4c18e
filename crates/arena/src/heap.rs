//! Memory by its address: whoever frees it need not know its size. For interfaces to other languages.
//!
//! What is freed twice, or was never allocated, is refused. What is known of an allocation lies outside of the arena.
//! Locks of objects and of blocks are held for moments, and never while memory of the arena is touched.
//!
//! Unsafe is needed here because an address may be somebody else's memory.

use std::alloc::Layout;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, MutexGuard, PoisonError};

use crate::blocks::{Blocks, Kind};
use crate::error::ArenaError;
use crate::groups::GroupNumber;
use crate::owner::Owner;
use crate::region::Advice;
use crate::small::{class_bytes, class_of};
use crate::state::PAGE_BYTES;

/// Every allocation is aligned for all types of C, as that of malloc is.
const ALIGN_BYTES: usize = 16;

/// Allocates from an arena, and keeps it alive. Handles are cheap to clone, and share their allocations.
#[derive(Debug, Clone)]
pub struct Heap {
    owner: Arc<Owner>,
    group: GroupNumber,
}

/// What begins at an address.
enum Found {
    /// An object of a class.
    Small(usize),
    /// Whole pages.
    Block(Range<usize>),
}

impl Heap {
    pub(crate) fn new(owner: Arc<Owner>, group: GroupNumber) -> Heap {
        Heap { owner, group }
    }

    /// Is this the child of a fork, which does not have the memory? Then every call is refused.
    #[must_use]
    pub fn is_of_parent(&self) -> bool {
        self.owner.check_home().is_err()
    }

    /// Is this address one of the arena's? No lock is taken.
    #[must_use]
    pub fn has(&self, address: usize) -> bool {
        self.owner.offset(address).is_some()
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        let blocks = self.owner.blocks.lock();
        blocks.unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates. No bytes are as one.
    ///
    /// # Errors
    /// `NoAddresses`, `Full`, `Forked`.
    pub fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, ArenaError> {
        self.allocate_as(layout, self.group).map(|(place, _)| place)
    }

    /// As [`Heap::allocate`], with zeros.
    ///
    /// # Errors
    /// As [`Heap::allocate`].
    pub fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<u8>, ArenaError> {
        let (place, is_zero) = self.allocate_as(layout, self.group)?;
        if !is_zero {
            // SAFETY: the allocation is new, so it is nobody else's, and has at least so many bytes.
            unsafe { place.write_bytes(0, layout.size()) };
        }
        Ok(place)
    }

    /// Allocates, and says whether all is zero.
    fn allocate_as(
        &self,
        layout: Layout,
        group: GroupNumber,
    ) -> Result<(NonNull<u8>, bool), ArenaError> {
        self.owner.check_home()?;
        let bytes = layout.size();
        let layout = Layout::from_size_align(bytes.max(1), layout.align().max(ALIGN_BYTES))
            .map_err(|_| ArenaError::NoAddresses { bytes })?;
        if let Some(class) = class_of(layout) {
            let at = self.owner.take_small(class, group)?;
            return Ok((self.owner.place(at), false));
        }
        self.take_pages(layout, group, Kind::Block)
            .map(|place| (place, true))
    }

    fn take_pages(
        &self,
        layout: Layout,
        group: GroupNumber,
        kind: Kind,
    ) -> Result<NonNull<u8>, ArenaError> {
        let pages = self.owner.take_aligned(layout, group)?;
        self.blocks().set(&pages, kind);
        Ok(self.owner.place(pages.start * PAGE_BYTES))
    }

    /// Allocates whole pages for so many bytes, which are zero.
    ///
    /// # Errors
    /// `Empty`, `NoAddresses`, `Full`, `Forked`.
    pub fn map(&self, bytes: usize) -> Result<NonNull<u8>, ArenaError> {
        self.owner.check_home()?;
        if bytes == 0 {
            return Err(ArenaError::Empty);
        }
        let layout = Layout::from_size_align(bytes, PAGE_BYTES)
            .map_err(|_| ArenaError::NoAddresses { bytes })?;
        self.take_pages(layout, self.group, Kind::Mapping)
    }

    /// Gives back what [`Heap::map`] gave, as a whole.
    ///
    /// # Errors
    /// `NotOurs`, `NotAllocated` if no mapping of so many pages begins there, `Forked`. Then nothing has changed.
    ///
    /// # Safety
    /// Nobody uses the memory any more.
    pub unsafe fn unmap(&self, address: usize, bytes: usize) -> Result<(), ArenaError> {
        self.owner.check_home()?;
        let first = self.page_at(address)?;
        let mut blocks = self.blocks();
        let pages = blocks
            .at(first, Kind::Mapping)
            .filter(|pages| pages.len() == bytes.div_ceil(PAGE_BYTES))
            .ok_or(ArenaError::NotAllocated)?;
        blocks.remove(first, Kind::Mapping);
        drop(blocks);
        self.owner.free_pages(pages);
        Ok(())
    }

    /// The page that begins at an address.
    fn page_at(&self, address: usize) -> Result<usize, ArenaError> {
        let at = self.owner.offset(address).ok_or(ArenaError::NotOurs)?;
        if at.is_multiple_of(PAGE_BYTES) {
            Ok(at / PAGE_BYTES)
        } else {
            Err(ArenaError::NotAllocated)
        }
    }

    fn find(&self, address: usize) -> Result<Found, ArenaError> {
        let at = self.owner.offset(address).ok_or(ArenaError::NotOurs)?;
        let small = &self.owner.small;
        let class = small
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .class_at(at);
        if let Some(class) = class {
            return class
                .map(Found::Small)
                .map_err(|_| ArenaError::NotAllocated);
        }
        let first = self.page_at(address)?;
        let pages = self.blocks().at(first, Kind::Block);
        pages.map(Found::Block).ok_or(ArenaError::NotAllocated)
    }

    /// How many bytes can be used at an address, which are at least as many as were asked for.
    ///
    /// # Errors
    /// `NotOurs`, `NotAllocated`, `Forked`.
    pub fn usable_bytes(&self, address: usize) -> Result<usize, ArenaError> {
        self.owner.check_home()?;
        Ok(match self.find(address)? {
            Found::Small(class) => class_bytes(class),
            Found::Block(pages) => pages.len() * PAGE_BYTES,
        })
    }

    /// Gives an allocation back.
    ///
    /// # Errors
    /// `NotOurs`, `NotAllocated`, `Forked`. Then nothing has changed.
    ///
    /// # Safety
    /// Nobody uses the memory any more.
    pub unsafe fn free(&self, address: usize) -> Result<(), ArenaError> {
        self.owner.check_home()?;
        match self.find(address)? {
            Found::Small(_) => {
                let at = self.owner.offset(address).ok_or(ArenaError::NotOurs)?;
                self.owner
                    .give_small(at)
                    .map_err(|_| ArenaError::NotAllocated)
            }
            Found::Block(pages) => {
                // Another thread may have freed it since it was found.
                let pages = self.blocks().remove(pages.start, Kind::Block);
                self.owner
                    .free_pages(pages.ok_or(ArenaError::NotAllocated)?);
                Ok(())
            }
        }
    }

    /// Grows or shrinks an allocation, which moves if it must and stays in its group. No bytes are as one.
    ///
    /// # Errors
    /// As [`Heap::allocate`] and [`Heap::free`]. Then the allocation is as it was.
    ///
    /// # Safety
    /// Nobody else uses the memory meanwhile, and nobody the old one afterwards.
    pub unsafe fn reallocate(
        &self,
        address: usize,
        bytes: usize,
    ) -> Result<NonNull<u8>, ArenaError> {
        self.owner.check_home()?;
        let no_addresses = |_| ArenaError::NoAddresses { bytes };
        let new = Layout::from_size_align(bytes.max(1), ALIGN_BYTES).map_err(no_addresses)?;
        let (has, stays) = match self.find(address)? {
            Found::Small(class) => (class_bytes(class), class_of(new) == Some(class)),
            Found::Block(pages) => {
                let wanted = new.size().div_ceil(PAGE_BYTES);
                let stays = class_of(new).is_none() && self.resize(&pages, wanted);
                (pages.len() * PAGE_BYTES, stays)
            }
        };
        let at = self.owner.offset(address).ok_or(ArenaError::NotOurs)?;
        let old = self.owner.place(at);
        if stays {
            return Ok(old);
        }
        let (moved, _) = self.allocate_as(new, self.owner.core.groups.of(at / PAGE_BYTES))?;
        // SAFETY: both have so many bytes, a new allocation overlaps none, and the caller gives up the old one.
        unsafe {
            std::ptr::copy_nonoverlapping(old.as_ptr(), moved.as_ptr(), has.min(bytes));
            self.free(address)?;
        }
        Ok(moved)
    }

    /// Gives a block another number of pages where it is, if what follows is free.
    fn resize(&self, pages: &Range<usize>, wanted: usize) -> bool {
        if wanted > pages.len() && !self.owner.extend(pages.end, wanted - pages.len()) {
            return false;
        }
        let end = pages.start + wanted;
        self.blocks().set(&(pages.start..end), Kind::Block);
        if end < pages.end {
            self.owner.free_pages(end..pages.end);
        }
        true
    }

    /// The pages that have these bytes, which lie in one allocation or one slab.
    fn pages_of(&self, bytes: &Range<usize>) -> Result<Range<usize>, ArenaError> {
        let start = self.owner.offset(bytes.start).ok_or(ArenaError::NotOurs)?;
        let end = start.checked_add(bytes.len()).ok_or(ArenaError::NotOurs)?;
        let pages = start / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        let block = self.blocks().holding(pages.start);
        let held = block.or_else(|| {
            let small = self.owner.small.lock();
            let small = small.unwrap_or_else(PoisonError::into_inner);
            small.holding(pages.start)
        });
        match held {
            Some(held) if pages.end <= held.end => Ok(pages),
            _ => Err(ArenaError::NotOurs),
        }
    }

    /// Keeps the pages of these addresses in RAM until they are unpinned as often, or freed.
    ///
    /// # Errors
    /// `NotOurs` for what is not allocated, `TooMuchPinned`, `Full`, `Lost`, `Forked`. Then nothing is pinned.
    pub fn pin(&self, addresses: Range<usize>) -> Result<(), ArenaError> {
        self.owner.check_home()?;
        let pages = self.pages_of(&addresses)?;
        self.owner.core.pin_pages(&pages)
    }

    /// Ends one pin of each of the pages.
    ///
    /// # Errors
    /// `NotPinned` if some had none; the others are unpinned. `NotOurs`, `Forked`.
    pub fn unpin(&self, addresses: Range<usize>) -> Result<(), ArenaError> {
        self.owner.check_home()?;
        let pages = self.pages_of(&addresses)?;
        if self.owner.core.unpin_pages(&pages) {
            Ok(())
        } else {
            Err(ArenaError::NotPinned)
        }
    }

    /// Says something of the pages of these addresses.
    ///
    /// # Errors
    /// As [`Heap::pin`].
    pub fn advise(&self, addresses: Range<usize>, advice: Advice) -> Result<(), ArenaError> {
        self.owner.check_home()?;
        let pages = self.pages_of(&addresses)?;
        self.owner.core.advise(pages, advice)
    }

    /// Drops the content of all pages that lie in these addresses as a whole. They read as zeros.
    ///
    /// # Errors
    /// `Pinned` if some are pinned, `NotOurs`, `Forked`.
    ///
    /// # Safety
    /// Nobody counts on the content.
    pub unsafe fn drop_content(&self, addresses: Range<usize>) -> Result<(), ArenaError> {
        self.owner.check_home()?;
        let outer = self.pages_of(&addresses)?;
        let is_cut = |address: usize| usize::from(!address.is_multiple_of(PAGE_BYTES));
        let first = outer.start + is_cut(addresses.start);
        let end = outer.end - is_cut(addresses.end);
        if first >= end || self.owner.core.discard(first..end, true) {
            Ok(())
        } else {
            Err(ArenaError::Pinned)
        }
    }
}
