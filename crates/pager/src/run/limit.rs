//! The limit: what the run uses, and how much it may still take.
//!
//! Between two samples of the true figures an estimate is kept up by the fault path (`took_pages`) and the evictors
//! (`gave_pages`, `stored`). The governor's thread samples, and sets the estimate right.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use crate::base::lock::{Mutex, Row};
use crate::base::page_run::PAGE_BYTES;
use crate::policy::follow::RamRange;
use crate::run::bounds::Bounds;
use crate::run::part::Usage;
use crate::run::pool_share::PoolShare;
use crate::space::Space;
use crate::store::config::PoolLimit;

/// While several processes are large, one part in this many of the limit is left free for what is not known of them.
const UNSURE_PART: u64 = 64;
/// How far over the limit a full run may go to make progress: one part in this many of it, a little less than the
/// twentieth that the limit may be passed by.
const OVERDRAFT_PART: u64 = 25;
/// A full pool is news when it stays full: near the limit it is full for moments.
const FULL_PATIENCE: Duration = Duration::from_secs(2);

/// Limits and estimates of a run.
#[derive(Debug)]
pub struct Limit {
    /// What the run may use.
    pub bounds: Bounds,
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
    short: AtomicBool,
    /// It was the limits of a group that a page met last when nothing more could be stored.
    limited: AtomicBool,
    full_since: Mutex<Option<Instant>>,
    stop: AtomicBool,
    /// A process has begun, and nobody has looked at its memory yet.
    news: Mutex<bool>,
    has_news: Condvar,
}

/// What people may want to know, as of the last sample.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// What the run may use.
    pub limit_bytes: u64,
    /// What it shall use at the most, if that is less.
    pub wanted_limit_bytes: u64,
    /// The most that it was ever allowed.
    pub highest_limit_bytes: u64,
    /// What it uses.
    pub total_bytes: u64,
    /// The most that it has used.
    pub peak_total_bytes: u64,
    /// Memory of its processes.
    pub resident_bytes: u64,
    /// Memory of vswap's own.
    pub own_bytes: u64,
    /// The most that its processes have had in memory and in swap together.
    pub peak_needed_bytes: u64,
    /// Processes without an agent.
    pub strangers: u64,
    /// Nothing more has been stored for a while.
    pub is_full: bool,
    /// The limits of a group are why.
    pub is_limited: bool,
}

/// One look at the true figures.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Memory of the run's processes that counts as theirs.
    pub resident_bytes: u64,
    /// Memory of vswap's own.
    pub own_bytes: u64,
    /// By how much these may be wrong.
    pub unsure_bytes: u64,
    /// Processes without an agent.
    pub strangers: u64,
}

impl Limit {
    /// The limit of a run that may use as much as `range` says, and perhaps so much of it for the pool.
    pub fn new(range: RamRange, pool: Option<PoolLimit>) -> Limit {
        let bounds = Bounds::new(range);
        Limit {
            headroom: AtomicI64::new(signed(range.most_bytes)),
            unsure_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            peak_total_bytes: AtomicU64::new(0),
            resident_bytes: AtomicU64::new(0),
            own_bytes: AtomicU64::new(0),
            peak_needed_bytes: AtomicU64::new(0),
            strangers: AtomicU64::new(0),
            pool: PoolShare::new(bounds.clone(), pool),
            bounds,
            stalled: AtomicBool::new(false),
            short: AtomicBool::new(false),
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
        let overdraft = self.limit_bytes() / OVERDRAFT_PART + self.watermark_bytes() / 4 * 3;
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
    pub fn sleep(&self, pause: Duration) {
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

    /// Current figures.
    pub fn figures(&self) -> Figures {
        let is_full = self.is_full_for_long();
        Figures {
            limit_bytes: self.limit_bytes(),
            wanted_limit_bytes: self.bounds.wanted_bytes(),
            highest_limit_bytes: self.bounds.highest_bytes(),
            total_bytes: self.total_bytes.load(Ordering::Relaxed),
            peak_total_bytes: self.peak_total_bytes.load(Ordering::Relaxed),
            resident_bytes: self.resident_bytes.load(Ordering::Relaxed),
            own_bytes: self.own_bytes.load(Ordering::Relaxed),
            peak_needed_bytes: self.peak_needed_bytes.load(Ordering::Relaxed),
            strangers: self.strangers.load(Ordering::Relaxed),
            is_full,
            is_limited: is_full && self.limited.load(Ordering::Relaxed),
        }
    }

    /// What the run may use.
    pub fn limit_bytes(&self) -> u64 {
        self.bounds.limit_bytes()
    }

    /// Eviction begins when less than this is free.
    pub fn watermark_bytes(&self) -> u64 {
        self.bounds.watermark_bytes()
    }

    /// Memory is short, or no longer. True if it has just become so.
    pub fn set_short(&self, short: bool) -> bool {
        let was = self.short.swap(short, Ordering::AcqRel);
        short && !was
    }

    /// Is memory short?
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    /// By how much the figures may be wrong. Those of several large processes are not of one moment, and what they
    /// share is measured now and then and reckoned in between.
    pub fn unsure_bytes(&self, residents: &[(u64, &Arc<Space>)]) -> u64 {
        let large = self.limit_bytes() / UNSURE_PART;
        if residents.iter().filter(|(bytes, _)| *bytes > large).count() > 1 {
            large
        } else {
            0
        }
    }

    /// Take a sample in: the estimate starts again from it. Returns the total that is to be reckoned with.
    pub fn settle(&self, sample: &Sample, usage: &Usage) -> u64 {
        let total = sample.resident_bytes + sample.own_bytes;
        let reckoned = total + sample.unsure_bytes;
        self.bounds.approach(reckoned);
        // Faults stop short of the limit: mappings that are not registered yet grow without asking.
        let ceiling = self.limit_bytes() - self.watermark_bytes() / 4 * 3;
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
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
