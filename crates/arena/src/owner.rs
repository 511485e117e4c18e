//! What the handles of an arena have in common: its threads, its faults, its free addresses.
//!
//! For any number of threads. Locks that the evictor takes too are taken with signals blocked.
//!
//! Unsafe is needed here because an allocation is an address.

use std::alloc::Layout;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use vswap_sys::sigbus::Masked;

use crate::blocks::Blocks;
use crate::error::ArenaError;
use crate::groups::GroupNumber;
use crate::registry::{Registered, bounds};
use crate::small::{NotInUse, SLAB_PAGES, Small};
use crate::space::Space;
use crate::state::{Core, PAGE_BYTES};
use crate::threads::Threads;

/// What all handles of an arena share. With the last one it ends.
#[derive(Debug)]
pub struct Owner {
    // Dropped in this order: nobody works on the arena when its faults are no longer served.
    #[expect(dead_code, reason = "it is there to be dropped")]
    threads: Threads,
    #[expect(dead_code, reason = "it is there to be dropped")]
    registered: Registered,
    pub small: Mutex<Small>,
    pub blocks: Mutex<Blocks>,
    pub core: Arc<Core>,
}

impl Owner {
    /// Has an arena served, and starts its threads.
    ///
    /// # Errors
    /// [`ArenaError`].
    pub fn new(core: Arc<Core>) -> Result<Owner, ArenaError> {
        // In the reverse order of what is dropped.
        let registered = Registered::new(&core)?;
        Ok(Owner {
            threads: Threads::start(&core)?,
            registered,
            small: Mutex::new(Small::default()),
            blocks: Mutex::new(Blocks::default()),
            core,
        })
    }

    /// # Errors
    /// `Forked` in a child, which has neither the memory nor the threads.
    pub fn check_home(&self) -> Result<(), ArenaError> {
        if self.core.is_at_home() {
            Ok(())
        } else {
            Err(ArenaError::Forked)
        }
    }

    /// The address of a byte of the arena, which lies in it.
    pub fn place(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.core.memory.pages() * PAGE_BYTES);
        // SAFETY: callers have the offset from an allocation, so it lies in the mapping.
        unsafe { self.core.memory.pointer().add(offset) }
    }

    /// The place of an address that lies in the arena.
    pub fn offset(&self, address: usize) -> Option<usize> {
        let bounds = bounds(&self.core);
        bounds.contains(&address).then(|| address - bounds.start)
    }

    /// Takes pages.
    fn take_pages(&self, pages: usize, align: usize) -> Result<Range<usize>, ArenaError> {
        self.check_home()?;
        if self.core.room.is_full() {
            return Err(ArenaError::Full);
        }
        let bytes = pages.saturating_mul(PAGE_BYTES);
        self.in_space(|space| space.take(pages, align))
            .ok_or(ArenaError::NoAddresses { bytes })
    }

    /// Does something with the free addresses. The evictor takes their lock too, so no handler may come in between.
    fn in_space<T>(&self, work: impl FnOnce(&mut Space) -> T) -> T {
        let _masked = Masked::new();
        let space = self.core.space.lock();
        work(&mut space.unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes whole pages for a layout, for a group.
    pub fn take_aligned(
        &self,
        layout: Layout,
        group: GroupNumber,
    ) -> Result<Range<usize>, ArenaError> {
        let pages = self.take_for(layout)?;
        self.core.groups.set(pages.clone(), group);
        Ok(pages)
    }

    fn take_for(&self, layout: Layout) -> Result<Range<usize>, ArenaError> {
        let pages = layout.size().div_ceil(PAGE_BYTES);
        let align = layout.align().div_ceil(PAGE_BYTES);
        let start = self.place(0).addr().get();
        if align == 1 || start.is_multiple_of(layout.align()) {
            return self.take_pages(pages, align);
        }
        // The arena begins anywhere: more are taken than are needed, and the ends go back.
        let taken = self.take_pages(pages.saturating_add(align), 1)?;
        let address = start + taken.start * PAGE_BYTES;
        let skipped = (address.next_multiple_of(layout.align()) - address) / PAGE_BYTES;
        let first = taken.start + skipped;
        for rest in [taken.start..first, first + pages..taken.end] {
            if !rest.is_empty() {
                self.free_pages(rest);
            }
        }
        Ok(first..first + pages)
    }

    /// Takes pages behind some that were taken, so that both are one run, of their group. Returns whether they were
    /// free.
    pub fn extend(&self, end: usize, pages: usize) -> bool {
        if self.core.room.is_full() || !self.in_space(|space| space.take_at(end, pages)) {
            return false;
        }
        let groups = &self.core.groups;
        groups.set(end..end + pages, groups.of(end - 1));
        true
    }

    /// Takes an object of a class, for a group. Returns its first byte, in bytes of the arena.
    pub fn take_small(&self, class: usize, group: GroupNumber) -> Result<usize, ArenaError> {
        let mut small = self.small.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = small.take(class, group) {
            return Ok(at);
        }
        let slab = self.take_pages(SLAB_PAGES, SLAB_PAGES)?;
        self.core.groups.set(slab.clone(), group);
        small.add(class, group, slab.start);
        let bytes = SLAB_PAGES * PAGE_BYTES;
        small
            .take(class, group)
            .ok_or(ArenaError::NoAddresses { bytes })
    }

    /// Gives an object back.
    pub fn give_small(&self, at: usize) -> Result<(), NotInUse> {
        let mut small = self.small.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = small.give(at)?;
        drop(small);
        if let Some(pages) = gone {
            self.free_pages(pages);
        }
        Ok(())
    }

    /// Gives pages back that were taken, and what is behind them.
    pub fn free_pages(&self, pages: Range<usize>) {
        if !self.core.is_at_home() {
            return;
        }
        // Pins that are left end with that.
        let _ = self.core.discard(pages.clone(), false);
        self.core.groups.set(pages.clone(), GroupNumber::ROOT);
        self.in_space(|space| space.give(pages));
    }
}
