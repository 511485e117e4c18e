//! The limit: what the run uses, how much it may still take, and who has to give.
//!
//! Between two samples of the true figures an estimate is kept up by the fault path (`took_pages`) and the evictors
//! (`gave_pages`, `stored`). One thread samples, sets the estimate right and tells evictors how much to move out.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use vswap_engine::Stats;
use vswap_sys::procfs::Statm;

use crate::base::lock::{Mutex, Row};
use crate::base::page_run::PAGE_BYTES;
use crate::base::threads;
use crate::life::lifecycle;
use crate::run::core::Core;
use crate::run::pool_share::PoolShare;
use crate::run::usage::Usage;
use crate::space::Space;

/// Eviction begins when less than one part in this many of the limit is free, the low watermark, and frees a quarter
/// more: what is free beyond that is missing as resident memory, and long spells of eviction hold faults up.
const WATERMARK_PART: u64 = 16;
/// Watermark bounds: below 2 MiB a fresh mapping outgrows it before it is seen, above 16 MiB memory lies idle.
const WATERMARK_BYTES: (u64, u64) = (2 << 20, 16 << 20);
/// Registering begins when less than one part in this many of the limit is free, within bounds, and half as much again
/// for each further process that can grow at the same time: a program fills fresh, unwatched memory at 1 to 3 GB/s, so
/// 20 MiB are some 7 to 20 ms, the delay of a busy machine.
const ACTIVATE_PART: u64 = 5;
const ACTIVATE_BYTES: (u64, u64) = (20 << 20, 64 << 20);
/// The slow part of activation, the filter and the threads, is done when one part in this many of the limit is used.
const ARM_PART: u64 = 2;
/// The pool is compacted when one part in this many of its pages could be given back, so many pages at a time: about
/// a millisecond of copying.
const COMPACT_PART: u64 = 32;
const COMPACT_PAGES: usize = 256;
/// Fastest growth that sampling reckons with, bytes a millisecond (a program that fills huge pages).
const GROWTH_BYTES_PER_MS: u64 = 6 << 20;
/// Shortest and longest pause between samples.
const SAMPLE_MS: (u64, u64) = (1, 50);
/// A new look at a space's mappings when its memory has grown by one part in this many of the limit beyond what its
/// registered memory explains.
const RESCAN_PART: u64 = 64;
/// How often areas that begin to fail are looked for, and the run's slots in a shared store are counted.
const STORE_EVERY: Duration = Duration::from_millis(500);
/// While several processes are large, one part in this many of the limit is left free for what is not known of them.
const UNSURE_PART: u64 = 64;
/// How far over the limit a full run may go to make progress: one part in this many of it, a little less than the
/// twentieth that the limit may be passed by.
const OVERDRAFT_PART: u64 = 25;
/// A full pool is news when it stays full: near the limit it is full for moments.
const FULL_PATIENCE: Duration = Duration::from_secs(2);
/// A space smaller than this is not worth threads and a seccomp filter while larger ones can give.
const SMALL_SPACE_PART: u64 = 64;

/// Limits and estimates of a run.
#[derive(Debug)]
pub struct Governor {
    limit_bytes: u64,
    watermark_bytes: u64,
    activate_bytes: u64,
    /// Bytes that may still be taken before faults wait; negative when over.
    headroom: AtomicI64,
    /// What the headroom leaves out because the figures may be wrong by so much.
    unsure_bytes: AtomicU64,
    total_bytes: AtomicU64,
    peak_total_bytes: AtomicU64,
    resident_bytes: AtomicU64,
    own_bytes: AtomicU64,
    peak_needed_bytes: AtomicU64,
    strangers: AtomicU64,
    /// What the pool may take of the limit.
    pub pool: PoolShare,
    stalled: AtomicBool,
    /// It was the limits of a group that a page met last when nothing more could be stored.
    limited: AtomicBool,
    full_since: Mutex<Option<Instant>>,
    stop: AtomicBool,
    /// A process has begun, and nobody has looked at its memory yet.
    news: Mutex<bool>,
    has_news: Condvar,
}

/// One look at the true figures.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    resident_bytes: u64,
    own_bytes: u64,
    /// By how much these may be wrong.
    unsure_bytes: u64,
    strangers: u64,
}

impl Governor {
    /// A governor of a run that may use `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Governor {
        let watermark_bytes =
            (limit_bytes / WATERMARK_PART).clamp(WATERMARK_BYTES.0, WATERMARK_BYTES.1);
        Governor {
            limit_bytes,
            watermark_bytes,
            activate_bytes: (limit_bytes / ACTIVATE_PART).clamp(ACTIVATE_BYTES.0, ACTIVATE_BYTES.1),
            headroom: AtomicI64::new(signed(limit_bytes)),
            unsure_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            peak_total_bytes: AtomicU64::new(0),
            resident_bytes: AtomicU64::new(0),
            own_bytes: AtomicU64::new(0),
            peak_needed_bytes: AtomicU64::new(0),
            strangers: AtomicU64::new(0),
            pool: PoolShare::new(limit_bytes, watermark_bytes),
            stalled: AtomicBool::new(false),
            limited: AtomicBool::new(false),
            full_since: Mutex::new(Row::Innermost, "full since", None),
            stop: AtomicBool::new(false),
            news: Mutex::new(Row::Innermost, "news of a process", false),
            has_news: Condvar::new(),
        }
    }

    /// May a fault take memory now?
    pub fn has_headroom(&self) -> bool {
        self.headroom.load(Ordering::Relaxed) > 0
    }

    /// Is there room for `bytes` more?
    pub fn has_room(&self, bytes: u64) -> bool {
        self.headroom.load(Ordering::Relaxed) > signed(bytes)
    }

    /// May a swap-in take memory that there is not, because nothing can be moved out to make room? The page frees its
    /// place in the pool, but one that compressed well takes more than it frees. Goes by the figures as they are: a
    /// process that waits because they may be wrong would wait for ever, and one that ends frees more than it took.
    pub fn may_overdraw(&self) -> bool {
        let overdraft = self.limit_bytes / OVERDRAFT_PART + self.watermark_bytes / 4 * 3;
        let unsure = self.unsure_bytes.load(Ordering::Relaxed);
        self.headroom.load(Ordering::Relaxed) > -signed(overdraft + unsure)
    }

    /// Pages were given to the program.
    pub fn took_pages(&self, pages: u64) {
        self.headroom
            .fetch_sub(signed(pages * PAGE_BYTES), Ordering::Relaxed);
    }

    /// Pages of the program were freed.
    pub fn gave_pages(&self, pages: u64) {
        self.headroom
            .fetch_add(signed(pages * PAGE_BYTES), Ordering::Relaxed);
    }

    /// The pool took `bytes` of payload.
    pub fn stored(&self, bytes: u64) {
        self.headroom.fetch_sub(signed(bytes), Ordering::Relaxed);
    }

    /// Pages of the run's processes that are in memory, as of the last sample.
    pub fn resident_pages(&self) -> u64 {
        self.resident_bytes.load(Ordering::Relaxed) / PAGE_BYTES
    }

    /// A page found no place to go to (or all did), perhaps because of its group's limits.
    pub fn note_full(&self, full: bool, limited: bool) {
        self.stalled.store(full, Ordering::Relaxed);
        self.limited.store(limited, Ordering::Relaxed);
        let mut since = self.full_since.lock();
        *since = if full {
            since.or_else(|| Some(Instant::now()))
        } else {
            None
        };
    }

    /// Has the pool been full for so long that the user should know?
    fn is_full_for_long(&self) -> bool {
        let since = *self.full_since.lock();
        since.is_some_and(|since| since.elapsed() > FULL_PATIENCE)
    }

    /// Is nothing more to be stored?
    pub fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// A process has begun: it may have grown while its agent said hello.
    pub fn look_now(&self) {
        *self.news.lock() = true;
        self.has_news.notify_one();
    }

    /// Sleep until the next sample is due.
    fn sleep(&self, pause: Duration) {
        let news = self.news.lock();
        *news.wait_timeout_while(&self.has_news, pause, |news| !*news) = false;
    }

    /// Have the threads that watch memory to end?
    pub fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// End the sampling thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Current figures: limit, total, peak, resident, own, peak needed, strangers.
    pub fn fill(&self, status: &mut crate::life::status::Status) {
        status.limit_bytes = self.limit_bytes;
        status.total_bytes = self.total_bytes.load(Ordering::Relaxed);
        status.peak_total_bytes = self.peak_total_bytes.load(Ordering::Relaxed);
        status.resident_bytes = self.resident_bytes.load(Ordering::Relaxed);
        status.own_bytes = self.own_bytes.load(Ordering::Relaxed);
        status.peak_needed_bytes = self.peak_needed_bytes.load(Ordering::Relaxed);
        status.processes_unmanaged = self.strangers.load(Ordering::Relaxed);
        status.stalled = self.is_full_for_long();
        status.stalled_by_group = status.stalled && self.limited.load(Ordering::Relaxed);
    }

    /// By how much the figures may be wrong. Those of several large processes are not of one moment, and what they
    /// share is measured now and then and reckoned in between.
    fn unsure_bytes(&self, residents: &[(u64, &Arc<Space>)]) -> u64 {
        let large = self.limit_bytes / UNSURE_PART;
        if residents.iter().filter(|(bytes, _)| *bytes > large).count() > 1 {
            large
        } else {
            0
        }
    }

    /// Take a sample in: the estimate starts again from it. Returns the total that is to be reckoned with.
    fn settle(&self, sample: &Sample, usage: &Usage) -> u64 {
        let total = sample.resident_bytes + sample.own_bytes;
        // Faults stop short of the limit: mappings that are not registered yet grow without asking.
        let ceiling = self.limit_bytes - self.watermark_bytes / 4 * 3;
        let reckoned = total + sample.unsure_bytes;
        self.headroom
            .store(signed(ceiling) - signed(reckoned), Ordering::Relaxed);
        self.unsure_bytes
            .store(sample.unsure_bytes, Ordering::Relaxed);
        self.total_bytes.store(total, Ordering::Relaxed);
        self.peak_total_bytes.fetch_max(total, Ordering::Relaxed);
        self.resident_bytes
            .store(sample.resident_bytes, Ordering::Relaxed);
        self.own_bytes.store(sample.own_bytes, Ordering::Relaxed);
        self.strangers.store(sample.strangers, Ordering::Relaxed);
        let swapped = usage.swapped_pages * PAGE_BYTES;
        self.peak_needed_bytes
            .fetch_max(sample.resident_bytes + swapped, Ordering::Relaxed);
        reckoned
    }

    /// Registering begins when less than this is free and `growing` processes may grow at the same time.
    fn activate_bytes(&self, growing: u64) -> u64 {
        let further = self.activate_bytes / 2 * growing.saturating_sub(1);
        (self.activate_bytes + further).min(self.limit_bytes / 2)
    }

    /// Pause until the next sample: what the fastest growth of `growing` processes needs to use up half of what is
    /// free.
    fn pause(&self, total: u64, growing: u64) -> Duration {
        let reserve = self.activate_bytes(growing);
        let free = self.limit_bytes.saturating_sub(total + reserve);
        let growth = GROWTH_BYTES_PER_MS * growing.max(1);
        let ms = (free / 2 / growth).clamp(SAMPLE_MS.0, SAMPLE_MS.1);
        Duration::from_millis(ms)
    }
}

/// The sampling thread.
pub fn run(core: &Arc<Core>) {
    let governor = &core.governor;
    let own = match Statm::open(std::process::id()) {
        Ok(own) => own,
        Err(error) => {
            eprintln!("vswap: cannot read /proc/self/statm: {error}; the limit cannot be held");
            return;
        }
    };
    threads::hurry_most();
    let mut store_seen = Instant::now();
    while !governor.has_stopped() {
        let spaces = core.spaces();
        lifecycle::reap(core, &spaces);
        core.watch.retry();
        let residents: Vec<(u64, &Arc<Space>)> = spaces
            .iter()
            .map(|space| (space.resident_bytes(), space))
            .collect();
        let strangers = core.shares.strangers(&spaces);
        let own_bytes =
            |(resident, space): &(u64, &Arc<Space>)| core.shares.own_bytes(space, *resident);
        let engine = core.engine.stats();
        let usage = Usage::of(core, &engine);
        let sample = Sample {
            resident_bytes: residents.iter().map(own_bytes).sum::<u64>() + strangers.bytes,
            own_bytes: match core.own_group {
                None => own.sizes().map_or(0, |m| m.resident_bytes),
                Some(_) => usage.own_bytes(core),
            },
            unsure_bytes: governor.unsure_bytes(&residents),
            strangers: strangers.count,
        };
        let total = governor.settle(&sample, &usage);
        core.part.settle(&usage);
        governor
            .pool
            .look(core, sample.own_bytes.saturating_sub(usage.pool_bytes));
        core.limit_pool();
        let growing = spaces.len().min(core.cpus.len()) as u64;
        steer(core, &residents, total, growing);
        compact(core, &engine);
        if store_seen.elapsed() > STORE_EVERY {
            core.areas.report(&core.engine);
            if core.own_group.is_some() {
                core.part.count_slots(core);
            }
            store_seen = Instant::now();
        }
        governor.sleep(governor.pause(total, growing));
    }
}

/// Give back what the pool holds in half-empty spans.
fn compact(core: &Core, pool: &Stats) {
    if pool.compactable_pages * COMPACT_PART > pool.pool_bytes / PAGE_BYTES {
        core.engine.compact(COMPACT_PAGES);
    }
}

/// Tell the spaces what to do: start watching, look again, move out, serve who waits.
fn steer(core: &Arc<Core>, residents: &[(u64, &Arc<Space>)], total: u64, growing: u64) {
    let governor = &core.governor;
    let free = governor.limit_bytes.saturating_sub(total);
    let all_the_time = core.config.evict_all_every.is_some();
    if all_the_time || total > governor.limit_bytes / ARM_PART {
        let small = governor.limit_bytes / SMALL_SPACE_PART;
        for (bytes, space) in residents {
            if all_the_time || *bytes >= small {
                lifecycle::start_evictor(core, space);
            }
        }
    }
    core.set_short(all_the_time || free < governor.activate_bytes(growing));
    let resident: u64 = residents
        .iter()
        .filter(|(_, s)| s.is_active())
        .map(|(b, _)| b)
        .sum();
    let missing = (governor.watermark_bytes / 4 * 5).saturating_sub(free);
    let wanted_pages = if free < governor.watermark_bytes {
        missing / PAGE_BYTES
    } else {
        0
    };
    for (bytes, space) in residents.iter().filter(|(_, space)| space.is_active()) {
        let share = wanted_pages * bytes / resident.max(1);
        let rescan = space.grew_beyond(*bytes, governor.limit_bytes / RESCAN_PART);
        let deferred = governor.has_headroom() || governor.is_stalled();
        if share > 0 || rescan || (deferred && space.has_deferred()) {
            space.mailbox.ask(|wanted| {
                wanted.pages = share;
                wanted.rescan |= rescan;
                wanted.deferred |= deferred;
            });
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
