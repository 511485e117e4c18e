//! Payloads that get a page of their own: raw pages, and the few that hardly compress.
//!
//! Such a page has no header and no neighbours, so it needs no class and no lists, and compaction has nothing to gain
//! from it. One row of 16 bytes says where the page is. `base` and `checksum` are set before the row is published, and
//! whoever has it pinned reads them. The rest is guarded by the one lock here.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::chunks::{Chunks, Zeroable};
use super::rows::RowCache;
use super::span::SpanId;
use crate::base::lock_order::must_hold_nothing;

/// Pages per chunk: 64 KiB of rows.
const CHUNK_PAGES: usize = if cfg!(miri) { 16 } else { 4096 };

/// The most chunks: 2^28 pages, 1 TiB.
const CHUNKS_MAX: usize = if cfg!(miri) { 64 } else { 1 << 16 };

/// Where a page is.
#[derive(Debug, Default)]
pub(super) struct WholePage {
    base: AtomicPtr<u8>,
    checksum: AtomicU32,
    /// Links free rows.
    next: AtomicU32,
}

// SAFETY: Zero is valid for all these atomics, and none is dropped.
unsafe impl Zeroable for WholePage {}
const _: () = assert!(size_of::<WholePage>() == 16);

impl WholePage {
    /// First byte of the page. Null while the row is free.
    pub(super) fn base(&self) -> *mut u8 {
        self.base.load(Ordering::Relaxed)
    }

    pub(super) fn checksum(&self) -> u32 {
        self.checksum.load(Ordering::Relaxed)
    }

    pub(super) fn set_checksum(&self, checksum: u32) {
        self.checksum.store(checksum, Ordering::Relaxed);
    }
}

/// All pages that hold one payload each.
pub(super) struct WholePages {
    table: Chunks<WholePage, CHUNK_PAGES>,
    state: Mutex<WholeState>,
}

/// What the lock guards.
#[derive(Debug)]
pub(super) struct WholeState {
    /// Free rows at hand.
    pub rows: RowCache,
    pub live: usize,
    pub payload_bytes: usize,
    free: Option<SpanId>,
    /// Numbers from this one on were never used.
    fresh: SpanId,
}

impl WholePages {
    pub(super) fn new() -> Self {
        let state = WholeState {
            rows: RowCache::default(),
            live: 0,
            payload_bytes: 0,
            free: None,
            fresh: SpanId::FIRST,
        };
        WholePages {
            table: Chunks::new(CHUNKS_MAX),
            state: Mutex::new(state),
        }
    }

    #[inline]
    pub(super) fn get(&self, id: SpanId) -> Option<&WholePage> {
        self.table.get(id.raw())
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.bytes()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, WholeState> {
        must_hold_nothing("the pool");
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the page at `base`. `None` when the table cannot grow.
    pub(super) fn add(
        &self,
        state: &mut WholeState,
        base: NonNull<u8>,
        payload_bytes: usize,
    ) -> Option<SpanId> {
        let id = if let Some(id) = state.free {
            state.free = SpanId::from_raw(self.get(id)?.next.load(Ordering::Relaxed));
            id
        } else {
            let id = state.fresh;
            if !self.table.ensure(id.raw()) {
                return None;
            }
            state.fresh = id.following()?;
            id
        };
        self.get(id)?.base.store(base.as_ptr(), Ordering::Relaxed);
        state.live += 1;
        state.payload_bytes += payload_bytes;
        Some(id)
    }

    /// Removes a page that no row names any more, and returns it.
    pub(super) fn remove(
        &self,
        state: &mut WholeState,
        id: SpanId,
        payload_bytes: usize,
    ) -> Option<NonNull<u8>> {
        let page = self.get(id)?;
        let base = NonNull::new(page.base.swap(ptr::null_mut(), Ordering::Relaxed))?;
        page.next
            .store(state.free.map_or(0, SpanId::raw), Ordering::Relaxed);
        state.free = Some(id);
        state.live -= 1;
        state.payload_bytes -= payload_bytes;
        Some(base)
    }

    /// Takes out every remaining page.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = NonNull<u8>> + '_ {
        let end = self.lock().fresh.raw();
        (1..end).filter_map(SpanId::from_raw).filter_map(|id| {
            NonNull::new(self.get(id)?.base.swap(ptr::null_mut(), Ordering::Relaxed))
        })
    }
}
