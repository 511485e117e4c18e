//! What a run tells of itself: plain data for `status`, the summary line and the JSON summary.

use serde::{Deserialize, Serialize};

use crate::base::page_run::PAGE_BYTES;
use crate::life::pressure_watch;
use crate::life::process_status::{Living, ProcessStatus};
use crate::life::run::Run;
use crate::run::pressure::Lost;
use crate::run::stats::{LatencyBucket, LatencySummary};
use crate::store::areas::AreaStatus;
use crate::store::groups::GroupStatus;
use crate::store::tiers::TierStatus;

/// Figures of a store at one moment, for all its runs together.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StoreStatus {
    /// Memory of the compressed pool.
    pub pool_bytes: u64,
    /// Bytes that the compressed pages take, without the pool's own waste.
    pub payload_bytes: u64,
    /// Pages in swap now: slots of the virtual area in use.
    pub swapped_pages: u64,
    /// Of these, pages that are all zeros and take no storage.
    pub zero_pages: u64,
    /// Of these, pages that are compressed.
    pub compressed_pages: u64,
    /// Of these, pages kept as they are because they do not compress.
    pub raw_pages: u64,
    /// Of these, pages that lie in physical areas.
    pub physical_pages: u64,
    /// Memory of the swap tables.
    pub metadata_bytes: u64,
    /// Physical areas in use.
    pub areas: Vec<AreaStatus>,
    /// The tiers of these areas, the highest priority first.
    pub tiers: Vec<TierStatus>,
    /// Groups of pages, the root first.
    pub groups: Vec<GroupStatus>,
}

/// Figures of one run at one moment, in bytes unless the name says otherwise. For a run in a shared store they are its
/// part of it (`run/part.rs`). Figures that nobody divides by run are 0.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// What the run may use: what `--ram` came to, or what it was set to since.
    pub limit_bytes: u64,
    /// What it shall use at the most: less than that while a lower limit is approached.
    pub wanted_limit_bytes: u64,
    /// The most that it was ever allowed.
    pub highest_limit_bytes: u64,
    /// Current total: resident anonymous memory of all processes + pool + metadata + vswap's own memory.
    pub total_bytes: u64,
    /// Highest total seen so far.
    pub peak_total_bytes: u64,
    /// Current resident anonymous memory of the run's processes.
    pub resident_bytes: u64,
    /// Highest sum of what the program had in memory and in swap: what it would have needed.
    pub peak_needed_bytes: u64,
    /// Memory of the compressed pool.
    pub pool_bytes: u64,
    /// What that may be at the most.
    pub pool_limit_bytes: u64,
    /// Memory of the pool, of tables, of frames and of vswap itself.
    pub own_bytes: u64,
    /// Living processes that vswap manages.
    pub processes_managed: u64,
    /// Living processes without an agent. vswap only counts them.
    pub processes_unmanaged: u64,
    /// The largest of these processes.
    pub processes: Vec<ProcessStatus>,
    /// Other runs have the same store. Figures that nobody divides by run are 0 then.
    pub shared: bool,
    /// Living processes that are known to have vswap's seccomp filter, those included that have started another program
    /// since.
    pub filtered: Vec<u32>,
    /// Pages in swap now: slots of the virtual area in use.
    pub swapped_pages: u64,
    /// How often the virtual area had no slot for a page, since the start.
    pub alloc_reject: u64,
    /// Of the pages in swap, those that are all zeros and take no storage.
    pub zero_pages: u64,
    /// Of the pages in swap, those that are compressed.
    pub compressed_pages: u64,
    /// Of the pages in swap, those kept as they are because they do not compress.
    pub raw_pages: u64,
    /// Slots of physical areas in use: for pages that lie there, and for all that are directly mapped.
    pub physical_pages: u64,
    /// Slots of physical areas that are directly mapped (`--no-virtual`), wherever their pages lie.
    pub direct_pages: u64,
    /// Of the pages brought back since the start, those that came from areas.
    pub pages_in_areas: u64,
    /// Of these, pages that came back so soon that a pool of twice the size would have kept them.
    pub pages_in_areas_early: u64,
    /// Pages moved from the pool to areas since the start because nobody had touched them for long.
    pub pages_written_back: u64,
    /// Pages moved from an area to one of lower priority since the start because nobody had touched them for long.
    pub pages_demoted: u64,
    /// Pages of the pool that were packed again, more densely.
    pub pages_repacked: u64,
    /// Bytes that this has freed.
    pub repack_saved_bytes: u64,
    /// How often either failed, because an area could not be written or read, or the page was damaged. The page stays
    /// where it was.
    pub write_back_failures: u64,
    /// Pages that the pool refused since the start because it was at its limit.
    pub pool_limit_hits: u64,
    /// Pages that could not be read back from their area.
    pub pages_lost: u64,
    /// Physical areas in use. None for a run in a shared store, because the areas belong to the store.
    #[serde(skip_deserializing)]
    pub areas: Vec<AreaStatus>,
    /// The tiers of these areas, the highest priority first.
    #[serde(skip_deserializing)]
    pub tiers: Vec<TierStatus>,
    /// Groups of pages, the root first. In a shared store those that the run is in.
    pub groups: Vec<GroupStatus>,
    /// Bytes that the compressed pages take, without the pool's own waste.
    pub payload_bytes: u64,
    /// Pages moved out of the program since the start.
    pub pages_out: u64,
    /// Pages brought back since the start.
    pub pages_in: u64,
    /// Of these, pages that came back so soon that they had gone too early (refault distance).
    pub pages_early: u64,
    /// Pages that a sweep has passed over because they had come back early again and again.
    pub pages_spared: u64,
    /// Pages read from an area into the swap cache along with a wanted one.
    pub pages_read_ahead: u64,
    /// Of these, pages that were wanted afterwards.
    pub read_ahead_hits: u64,
    /// Pages moved out without compression because their entry was still kept.
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
    /// How often a page could not be moved because it was shared or pinned.
    pub pages_busy: u64,
    /// Pages that had moved although the kernel said otherwise (rule P8).
    pub moved_unsaid: u64,
    /// How often the kernel refused an answer because a layout event was unread.
    pub retries: u64,
    /// Memory of the swap tables.
    pub metadata_bytes: u64,
    /// Time from reading a fault on a swapped page until the page is there, in microseconds.
    pub fault_us_p50: f64,
    /// See `fault_us_p50`.
    pub fault_us_p99: f64,
    /// See `fault_us_p50`.
    pub fault_us_max: f64,
    /// The same times in all, in seconds.
    pub fault_seconds: f64,
    /// How many of them were so long, from one bound to the next.
    pub fault_buckets: Vec<LatencyBucket>,
    /// True since the first memory was registered.
    pub active: bool,
    /// Nothing more can be stored, and faults that need memory have waited for a while.
    pub stalled: bool,
    /// The reason is the limit of a group, not the memory allowed.
    pub stalled_by_group: bool,
    /// How long faults have waited so since the start, in all.
    pub stalled_seconds: f64,
    /// How the run gets on.
    pub state: State,
    /// Shares of the time that it lost to paging.
    pub pressure: Lost,
}

/// How a run gets on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should.
    #[default]
    Running,
    /// It spends more time paging than working.
    Thrashing,
    /// Nothing more can be stored: faults that need memory wait.
    Full,
    /// All its processes are stopped.
    Stopped,
    /// It is parked: stopped by vswap, with all its memory moved out.
    Parked,
}

impl State {
    fn of(is_parked: bool, living: &Living, is_full: bool, lost: &Lost) -> State {
        if is_parked {
            State::Parked
        } else if living.are_stopped() {
            State::Stopped
        } else if is_full {
            State::Full
        } else if lost.is_thrashing() {
            State::Thrashing
        } else {
            State::Running
        }
    }
}

impl Status {
    /// Figures of a run, without areas and groups.
    pub(crate) fn of(run: &Run) -> Status {
        let stats = &run.serving.stats;
        let engine = run.serving.engine.stats();
        run.part.count_slots();
        let usage = run.part.usage(&engine);
        let spaces = run.listening.spaces.all();
        let mut status = Status {
            pool_bytes: usage.pool_bytes,
            pool_limit_bytes: run.serving.limit.pool.bytes(),
            processes_managed: spaces.iter().filter(|space| space.pid().is_some()).count() as u64,
            swapped_pages: usage.swapped_pages,
            compressed_pages: usage.pool_pages,
            payload_bytes: usage.payload_bytes,
            physical_pages: usage.physical_pages,
            metadata_bytes: usage.table_bytes,
            pages_out: stats.pages_out.get(),
            pages_in: stats.pages_in.get(),
            pages_early: stats.pages_early.get(),
            pages_spared: stats.pages_spared.get(),
            pages_read_ahead: stats.pages_read_ahead.get(),
            read_ahead_hits: stats.read_ahead_hits.get(),
            pages_dropped_clean: stats.pages_dropped_clean.get(),
            pages_out_zero: stats.pages_out_zero.get(),
            compressed_in_bytes: stats.compressed_pages.get() * PAGE_BYTES,
            compressed_out_bytes: stats.compressed_out_bytes.get(),
            faults: stats.faults.get(),
            faults_first_touch: stats.faults_first_touch.get(),
            faults_deferred: stats.faults_deferred.get(),
            faults_unprotect: stats.faults_unprotect.get(),
            pages_busy: stats.pages_busy.get(),
            moved_unsaid: stats.moved_unsaid.get(),
            retries: stats.retries.get(),
            pages_lost: stats.pages_lost.get(),
            pages_in_areas: stats.pages_in_areas.get(),
            pages_in_areas_early: stats.pages_in_areas_early.get(),
            pages_written_back: stats.pages_written_back.get(),
            pages_demoted: stats.pages_demoted.get(),
            pages_repacked: stats.pages_repacked.get(),
            repack_saved_bytes: stats.repack_saved_bytes.get(),
            write_back_failures: stats.write_back_failures.get(),
            active: stats.was_active(),
            ..Status::default()
        };
        status.shared = !run.part.is_all();
        if run.part.is_all() {
            status.zero_pages = engine.zero;
            status.compressed_pages = engine.compressed;
            status.raw_pages = engine.raw;
            status.alloc_reject = engine.alloc_reject;
            status.direct_pages = engine.direct;
            status.pool_limit_hits = engine.pool_reject;
        }
        status.set_latency(stats.latency());
        let figures = run.serving.limit.figures();
        status.limit_bytes = figures.limit_bytes;
        status.wanted_limit_bytes = figures.wanted_limit_bytes;
        status.highest_limit_bytes = figures.highest_limit_bytes;
        status.total_bytes = figures.total_bytes;
        status.peak_total_bytes = figures.peak_total_bytes;
        status.resident_bytes = figures.resident_bytes;
        status.own_bytes = figures.own_bytes;
        status.peak_needed_bytes = figures.peak_needed_bytes;
        status.processes_unmanaged = figures.strangers;
        status.filtered = run.filters.processes();
        status.stalled = figures.is_full;
        status.stalled_by_group = figures.is_limited;
        status.stalled_seconds = figures.waited.as_secs_f64();
        status.set_state(run, figures.is_full);
        status
    }

    fn set_state(&mut self, run: &Run, is_full: bool) {
        let is_parked = run.serving.parking.is_parked();
        if !is_parked {
            pressure_watch::look(run);
        }
        self.pressure = run.serving.pressure.lost();
        let living = Living::of(run);
        self.state = State::of(is_parked, &living, is_full, &self.pressure);
        self.processes = living.largest();
    }

    fn set_latency(&mut self, latency: LatencySummary) {
        self.fault_us_p50 = latency.p50_us;
        self.fault_us_p99 = latency.p99_us;
        self.fault_us_max = latency.max_us;
        self.fault_seconds = latency.sum_seconds;
        self.fault_buckets = latency.buckets;
    }
}
