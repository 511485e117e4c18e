//! The pool: its parts, its limit and its figures. `store` and `read` do the work.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use super::class::ClassState;
use super::handle::Handle;
use super::row::{Retired, Row};
use super::rows::RowTable;
use super::sizes::{CLASS_COUNT, CLASSES};
use super::span::SpanTable;
use super::whole::WholePages;
use crate::base::lock_order::must_hold_nothing;
use crate::base::pages::{PAGE_BYTES, PageSource};

/// The payload was not stored. The pool is at its limit, the page source has no memory, or the payload is longer than a
/// page. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no room for {payload_bytes} bytes in the compressed pool ({span_bytes} bytes used, limit {limit_bytes}): \
     free or compact, or raise the limit"
)]
pub struct PoolFull {
    /// Length of the payload in bytes.
    pub payload_bytes: usize,
    /// Memory of all spans and whole pages, in bytes.
    pub span_bytes: u64,
    /// The limit in bytes.
    pub limit_bytes: u64,
}

/// Figures of a pool. Each is exact. Together they are exact only if nobody stores or frees meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Payloads stored.
    pub objects: usize,
    /// Their lengths together, in bytes.
    pub payload_bytes: usize,
    /// How many of them have a page of their own.
    pub whole_pages: usize,
    /// Memory of all spans and whole pages, in bytes: what the limit bounds.
    pub span_bytes: u64,
    /// Memory of the tables of rows, spans and whole pages, in bytes. Not bounded by the limit.
    pub table_bytes: usize,
    /// Pages that compaction could give back at best.
    pub compactable_pages: usize,
    /// Pages that compaction has given back.
    pub compacted_pages: u64,
    /// Stores refused with [`PoolFull`].
    pub rejected: u64,
    /// Frees of handles that named nothing, which is a fault of the caller.
    pub stale_frees: u64,
    /// Reads that found a wrong checksum.
    pub damaged: u64,
}

/// How full a pool is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolFill {
    /// The limit in bytes.
    pub limit_bytes: u64,
    /// Memory of all spans and whole pages, in bytes: what the limit bounds.
    pub span_bytes: u64,
    /// The same without the bytes that compaction could give back at best.
    pub needed_bytes: u64,
    /// Payloads stored.
    pub objects: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub compacted_pages: AtomicU64,
    pub rejected: AtomicU64,
    pub stale_frees: AtomicU64,
    pub damaged: AtomicU64,
}

/// A pool of payloads of up to a page each. The module says what may run at the same time.
pub struct Pool {
    pub(super) classes: [CachePadded<Mutex<ClassState>>; CLASS_COUNT],
    pub(super) rows: RowTable,
    pub(super) spans: SpanTable,
    pub(super) whole: WholePages,
    pub(super) counters: Counters,
    pub(super) pages: Arc<dyn PageSource>,
    pub(super) limit_bytes: AtomicU64,
    /// Changes with every span, so it has a cache line of its own.
    pub(super) span_bytes: CachePadded<AtomicU64>,
    pub(super) checksums: bool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// An empty pool that takes up to `limit_bytes` of span memory from `pages`, and verifies payloads when they are
    /// read.
    #[must_use]
    pub fn new(pages: Arc<dyn PageSource>, limit_bytes: u64) -> Pool {
        Pool {
            classes: std::array::from_fn(|_| CachePadded::new(Mutex::default())),
            rows: RowTable::new(),
            spans: SpanTable::new(),
            whole: WholePages::new(),
            counters: Counters::default(),
            pages,
            limit_bytes: AtomicU64::new(limit_bytes),
            span_bytes: CachePadded::new(AtomicU64::new(0)),
            checksums: true,
        }
    }

    /// The same pool, still empty, with checksums on or off.
    #[must_use]
    pub fn with_checksums(mut self, on: bool) -> Pool {
        self.checksums = on;
        self
    }

    /// Sets the limit of span memory in bytes. Stored payloads stay, even above the limit, and until it is kept again
    /// new ones are refused.
    pub fn set_limit(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The limit of span memory in bytes.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// How far the pool is above its limit, in bytes.
    #[inline]
    pub(crate) fn excess_bytes(&self) -> u64 {
        let used = self.span_bytes.load(Ordering::Relaxed);
        used.saturating_sub(self.limit_bytes())
    }

    /// Whether the limit permits nothing at all.
    pub fn is_off(&self) -> bool {
        self.limit_bytes() == 0
    }

    /// Stores a copy of `payload`, which is at most a page.
    ///
    /// Locks: the class's, only for bookkeeping. May call the page source.
    ///
    /// # Errors
    /// [`PoolFull`] if this needs a span beyond the limit, or the pool is above it already, or there is no memory for
    /// it.
    pub fn store(&self, payload: &[u8]) -> Result<Handle, PoolFull> {
        self.store_beyond(payload, 0).ok_or_else(|| {
            self.counters.rejected.fetch_add(1, Ordering::Relaxed);
            PoolFull {
                payload_bytes: payload.len(),
                span_bytes: self.span_bytes.load(Ordering::Relaxed),
                limit_bytes: self.limit_bytes.load(Ordering::Relaxed),
            }
        })
    }

    /// Frees a payload. Frees its span's pages too if it was the last there. If the payload is being read, its last
    /// reader does this. Returns the payload's length in bytes, or 0 if the handle named none.
    ///
    /// Locks: the class's, only for bookkeeping. May call the page source.
    pub fn free(&self, handle: Handle) -> usize {
        let retired = self.row(handle).map(|(index, row)| (index, row.retire()));
        let location = match retired {
            Some((index, Retired::Now(location))) => {
                self.give_back(index, location);
                location
            }
            Some((_, Retired::ByLastReader(location))) => location,
            Some((_, Retired::NotLive)) | None => {
                self.counters.stale_frees.fetch_add(1, Ordering::Relaxed);
                return 0;
            }
        };
        usize::from(location.payload_bytes)
    }

    /// Current figures. Takes each class lock, one after the other.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let (whole_pages, whole_bytes) = {
            let whole = self.whole.lock();
            (whole.live, whole.payload_bytes)
        };
        let mut stats = PoolStats {
            objects: whole_pages,
            payload_bytes: whole_bytes,
            whole_pages,
            span_bytes: self.span_bytes.load(Ordering::Relaxed),
            table_bytes: self.rows.bytes() + self.spans.bytes() + self.whole.bytes(),
            compactable_pages: 0,
            compacted_pages: self.counters.compacted_pages.load(Ordering::Relaxed),
            rejected: self.counters.rejected.load(Ordering::Relaxed),
            stale_frees: self.counters.stale_frees.load(Ordering::Relaxed),
            damaged: self.counters.damaged.load(Ordering::Relaxed),
        };
        for (class, state) in CLASSES.iter().zip(&self.classes) {
            let state = lock(state);
            stats.objects += state.live;
            stats.payload_bytes += state.payload_bytes;
            stats.compactable_pages += state.spare_pages(*class);
        }
        stats
    }

    /// How full the pool is. Takes each class lock, one after the other.
    pub fn fill(&self) -> PoolFill {
        let span_bytes = self.span_bytes.load(Ordering::Relaxed);
        let (mut spare_pages, mut objects) = (0, self.whole.lock().live);
        for (class, state) in CLASSES.iter().zip(&self.classes) {
            let state = lock(state);
            objects += state.live;
            spare_pages += state.spare_pages(*class);
        }
        PoolFill {
            limit_bytes: self.limit_bytes.load(Ordering::Relaxed),
            span_bytes,
            needed_bytes: span_bytes.saturating_sub((spare_pages * PAGE_BYTES) as u64),
            objects: objects as u64,
        }
    }

    /// The row that a handle names, live or not, and its number.
    #[inline]
    pub(super) fn row(&self, handle: Handle) -> Option<(u32, &Row)> {
        let index = handle.index()?;
        Some((index, self.rows.get(index)?))
    }
}

/// Locks a class's state, even if another holder has panicked. No code that can panic runs between changes that belong
/// together.
#[inline]
pub(super) fn lock(state: &Mutex<ClassState>) -> MutexGuard<'_, ClassState> {
    must_hold_nothing("the pool");
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Pool {
    fn drop(&mut self) {
        let Pool {
            spans,
            whole,
            pages,
            ..
        } = self;
        let spans = spans.drain();
        for (run, count) in whole.drain().map(|run| (run, 1)).chain(spans) {
            // SAFETY: The run came from `alloc(count)`, and nobody else has the pool any more.
            unsafe { pages.free(run, count) };
        }
    }
}
