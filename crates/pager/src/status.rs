//! What a run says of itself: plain data for `status`, the summary line and the JSON summary.

use serde::Serialize;

use crate::areas::AreaStatus;

/// Figures of one run at one moment. Bytes unless the name says otherwise.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Status {
    /// What `--ram` came to.
    pub limit_bytes: u64,
    /// Current total: resident anonymous memory of all processes + pool + metadata + vswap's own memory.
    pub total_bytes: u64,
    /// Highest total seen so far.
    pub peak_total_bytes: u64,
    /// Current resident anonymous memory of the run's processes.
    pub resident_bytes: u64,
    /// Highest sum of what the program had in memory and in swap together: what it would have needed.
    pub peak_needed_bytes: u64,
    /// Memory of the compressed pool.
    pub pool_bytes: u64,
    /// Memory of tables, frames and of vswap itself.
    pub own_bytes: u64,
    /// Processes alive that vswap manages, and those it only counts (static programs and the like).
    pub processes_managed: u64,
    /// Processes alive without an agent.
    pub processes_unmanaged: u64,
    /// Pages in swap now.
    pub swapped_pages: u64,
    /// Of these, pages that are all zeros and take no storage.
    pub zero_pages: u64,
    /// Of these, pages that are compressed.
    pub compressed_pages: u64,
    /// Of these, pages kept as they are because they do not compress.
    pub raw_pages: u64,
    /// Of these, pages that lie in physical areas.
    pub physical_pages: u64,
    /// Pages that could not be read back from their area.
    pub pages_lost: u64,
    /// Physical areas in use.
    pub areas: Vec<AreaStatus>,
    /// Bytes that the compressed pages take, without the pool's own waste.
    pub payload_bytes: u64,
    /// Pages moved out of the program since the start.
    pub pages_out: u64,
    /// Pages brought back since the start.
    pub pages_in: u64,
    /// Of these, pages that came back so soon that they had gone too early (refault distance).
    pub pages_early: u64,
    /// Pages that a sweep has passed over because they came back early again and again.
    pub pages_spared: u64,
    /// Pages dropped again without compression because their copy was still kept.
    pub pages_dropped_clean: u64,
    /// Pages that went out as zeros since the start.
    pub pages_out_zero: u64,
    /// Bytes that went into the compressor, and came out, since the start.
    pub compressed_in_bytes: u64,
    /// See `compressed_in_bytes`.
    pub compressed_out_bytes: u64,
    /// Faults served on memory that vswap manages.
    pub faults: u64,
    /// Of these, first touches of a page.
    pub faults_first_touch: u64,
    /// Faults that waited for memory to become free.
    pub faults_deferred: u64,
    /// First writes to pages whose compressed copy had been kept.
    pub faults_unprotect: u64,
    /// Times that a page could not be moved because it was shared or pinned.
    pub pages_busy: u64,
    /// Pages that had moved though the kernel said that they had not (rule P8).
    pub moved_unsaid: u64,
    /// Times that the kernel put an answer off because a layout event was unread.
    pub retries: u64,
    /// Memory of the swap tables.
    pub metadata_bytes: u64,
    /// Time from reading a fault of a swapped page to its page being there, in microseconds.
    pub fault_us_p50: f64,
    /// See `fault_us_p50`.
    pub fault_us_p99: f64,
    /// See `fault_us_p50`.
    pub fault_us_max: f64,
    /// True from the moment the first memory was registered.
    pub active: bool,
    /// Nothing more can be stored: faults that need memory wait.
    pub stalled: bool,
}
