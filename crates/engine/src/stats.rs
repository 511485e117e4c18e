//! The engine's figures, gathered from the state that they describe.

use crate::area::AreaStats;
use crate::frames::Frames;
use crate::zpool::PoolStats;

/// Current figures of an engine. Units are bytes or pages where the name says so; the rest are counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Slots in use.
    pub slots_used: u64,
    /// Of these, pages of zeros, stored as a flag.
    pub zero: u64,
    /// Compressed pages in the pool.
    pub compressed: u64,
    /// Raw pages in the pool.
    pub raw: u64,
    /// Slots of physical areas in use. Each holds a page, except that the page of a directly mapped slot may be
    /// elsewhere.
    pub physical: u64,
    /// Of these, slots that are directly mapped.
    pub direct: u64,
    /// Bytes of payload in the pool.
    pub payload_bytes: u64,
    /// Bytes of memory that the pool's spans take.
    pub pool_bytes: u64,
    /// Frames in use.
    pub frames_used: u64,
    /// Clusters that hold slots or are some CPU's current one.
    pub clusters: u64,
    /// Bytes of metadata: swap tables, backing tables, cluster records, frame states, the pool's tables.
    pub table_bytes: u64,
    /// Failed allocations of a slot since the start.
    pub alloc_reject: u64,
    /// Pages that the pool refused at its limit, since the start.
    pub pool_reject: u64,
    /// Stored payloads found damaged since the start.
    pub damaged: u64,
    /// Pages that compaction could give back now.
    pub compactable_pages: u64,
}

impl Stats {
    /// `slots` are the figures of the virtual area, and `physical` those of all others together.
    pub(crate) fn gather(
        slots: &AreaStats,
        physical: &AreaStats,
        frames: &Frames,
        pool: &PoolStats,
    ) -> Stats {
        Stats {
            slots_used: slots.slots_used + physical.mapped,
            zero: slots.zero + physical.zero,
            compressed: pool.objects.saturating_sub(pool.whole_pages) as u64,
            raw: pool.whole_pages as u64,
            physical: physical.slots_used,
            direct: physical.mapped,
            payload_bytes: pool.payload_bytes as u64,
            pool_bytes: pool.span_bytes,
            frames_used: frames.used() as u64,
            clusters: slots.clusters,
            table_bytes: slots.table_bytes
                + physical.table_bytes
                + (frames.table_bytes() + pool.table_bytes) as u64,
            alloc_reject: slots.rejected,
            pool_reject: pool.rejected,
            damaged: pool.damaged,
            compactable_pages: pool.compactable_pages as u64,
        }
    }
}
