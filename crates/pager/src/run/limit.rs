//! The limit: what the run uses, and how much more it may take.
//!
//! The governor's thread samples the true figures. Between two samples the fault path (`took_pages`) and the evictors
//! (`gave_pages`, `stored`) keep an estimate. Each sample corrects the estimate.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar};
use std::time::Duration;

use crate::base::lock::{Mutex, Row};
use crate::base::page_run::PAGE_BYTES;
use crate::policy::follow::RamRange;
use crate::run::bounds::Bounds;
use crate::run::part::Usage;
use crate::run::pool_share::PoolShare;
use crate::run::stall::Stall;
use crate::space::Space;
use crate::store::config::PoolLimit;

/// With several large processes, one part in this many of the limit stays free, because their figures are uncertain.
const UNSURE_PART: u64 = 64;
/// How far a full run may exceed the limit to make progress: one part in this many of it. That is a little less than
/// the twentieth by which the limit may be exceeded.
const OVERDRAFT_PART: u64 = 25;
/// What a program that is told to end may take beyond the limit so that it can: one part in this many of it, within
/// bounds. A handler that writes a file or a traceback takes less.
const LAST_PART: u64 = 16;
const LAST_BYTES: (u64, u64) = (4 << 20, 64 << 20);
/// While a lower limit is approached, faults may take one part in this many of what moves out.
const APPROACH_PART: u64 = 2;
/// Pause between samples while a full run waits: nothing grows, and what is freed wakes the governor.
const STALL_MS: u64 = 20;

/// Limits and estimates of a run.
#[derive(Debug)]
pub struct Limit {
    /// What the run may use.
    pub bounds: Bounds,
    /// Bytes that may still be taken before faults wait. Negative above the limit.
    headroom: AtomicI64,
    /// Pages that were freed since the last sample.
    given_pages: AtomicU64,
    /// Left out of the headroom, because the figures may be wrong by so much.
    unsure_bytes: AtomicU64,
    total_bytes: AtomicU64,
    peak_total_bytes: AtomicU64,
    resident_bytes: AtomicU64,
    own_bytes: AtomicU64,
    peak_needed_bytes: AtomicU64,
    strangers: AtomicU64,
    /// Samples so far.
    samples: AtomicU64,
    /// What the pool may take of the limit.
    pub pool: PoolShare,
    /// Nothing more can be stored.
    pub stall: Stall,
    short: AtomicBool,
    /// What may be taken beyond the limit because the program has been told to end.
    last_bytes: AtomicU64,
    stop: AtomicBool,
    /// A process has begun, and nobody has looked at its memory yet.
    news: Mutex<bool>,
    has_news: Condvar,
}

/// Figures for people, as of the last sample.
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
    /// The most that the run has used.
    pub peak_total_bytes: u64,
    /// Memory of the run's processes.
    pub resident_bytes: u64,
    /// Memory of vswap itself.
    pub own_bytes: u64,
    /// The most that the run's processes have had in memory and in swap together.
    pub peak_needed_bytes: u64,
    /// Processes without an agent.
    pub strangers: u64,
    /// Somebody has waited for a while because nothing more can be stored.
    pub is_full: bool,
    /// The reason is the limit of a group.
    pub is_limited: bool,
    /// How long somebody has waited so, in all.
    pub waited: Duration,
}

/// One sample of the true figures.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Memory that counts as that of the run's processes.
    pub resident_bytes: u64,
    /// Memory of vswap itself.
    pub own_bytes: u64,
    /// How wrong these may be.
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
            given_pages: AtomicU64::new(0),
            unsure_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            peak_total_bytes: AtomicU64::new(0),
            resident_bytes: AtomicU64::new(0),
            own_bytes: AtomicU64::new(0),
            peak_needed_bytes: AtomicU64::new(0),
            strangers: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            pool: PoolShare::new(bounds.clone(), pool),
            bounds,
            stall: Stall::default(),
            short: AtomicBool::new(false),
            last_bytes: AtomicU64::new(0),
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

    /// May a swap-in take memory that is not there, because nothing can be moved out to make room? The page frees its
    /// place in the pool, but a page that compressed well takes more than it frees. This uses the figures as they are,
    /// without `unsure_bytes`. A process that waited because the figures may be wrong would wait for ever, and a
    /// process that ends frees more than it took.
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

    /// Pages of the program were freed. Faults may take as much, or a part of it on the way to a lower limit.
    pub fn gave_pages(&self, pages: u64) {
        self.given_pages.fetch_add(pages, Ordering::Relaxed);
        let part = match self.bounds.is_approaching() {
            true => APPROACH_PART,
            false => 1,
        };
        self.headroom
            .fetch_add(signed(pages * PAGE_BYTES / part), Ordering::Relaxed);
    }

    /// The pool took `bytes` of payload.
    pub fn stored(&self, bytes: u64) {
        self.headroom.fetch_sub(signed(bytes), Ordering::Relaxed);
    }

    /// Pages of the run's processes that are in memory, as of the last sample.
    pub fn resident_pages(&self) -> u64 {
        self.resident_bytes.load(Ordering::Relaxed) / PAGE_BYTES
    }

    /// A page found no place to go (`full`), perhaps because of its group's limits. Or all pages found one.
    pub fn note_full(&self, full: bool, limited: bool) {
        if self.stall.note_full(full, limited) {
            self.look_now();
        }
    }

    /// Something of the run was freed, or it got an area. Who waits because everything was full looks again.
    pub fn has_more_room(&self) {
        if self.is_stalled() {
            self.stall.try_again();
            self.look_now();
        }
    }

    /// The program is told to end: if it waits because everything is full, let it have some more for that, once,
    /// wherever it is by now.
    pub fn allow_last(&self) {
        if !self.is_stalled() {
            return;
        }
        let bytes = (self.limit_bytes() / LAST_PART).clamp(LAST_BYTES.0, LAST_BYTES.1);
        let headroom = self.headroom.load(Ordering::Relaxed);
        let bytes = bytes + (-headroom).max(0).cast_unsigned();
        let relaxed = Ordering::Relaxed;
        let was = self.last_bytes.compare_exchange(0, bytes, relaxed, relaxed);
        if was.is_ok() {
            self.headroom.fetch_add(signed(bytes), relaxed);
            self.look_now();
        }
    }

    /// Is nothing more to be stored?
    pub fn is_stalled(&self) -> bool {
        self.stall.is_full()
    }

    /// A process has begun. It may have grown while its agent said hello.
    pub fn look_now(&self) {
        *self.news.lock() = true;
        self.has_news.notify_one();
    }

    /// Sleep until the next sample is due.
    pub fn sleep(&self, pause: Duration) {
        let news = self.news.lock();
        *news.wait_timeout_while(&self.has_news, pause, |news| !*news) = false;
    }

    /// Shall the threads that watch memory end?
    pub fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// End the sampling thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Current figures.
    pub fn figures(&self) -> Figures {
        let is_full = self.stall.is_long();
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
            is_limited: is_full && self.stall.is_limited(),
            waited: self.stall.waited(),
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

    /// Say whether memory is short. True if it has just become so.
    pub fn set_short(&self, short: bool) -> bool {
        let was = self.short.swap(short, Ordering::AcqRel);
        short && !was
    }

    /// Is memory short?
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    /// How wrong the figures may be. Those of several large processes are not taken at the same moment. What they share
    /// is measured now and then and estimated in between.
    pub fn unsure_bytes(&self, residents: &[(u64, &Arc<Space>)]) -> u64 {
        let large = self.limit_bytes() / UNSURE_PART;
        if residents.iter().filter(|(bytes, _)| *bytes > large).count() > 1 {
            large
        } else {
            0
        }
    }

    /// Take a sample in and restart the estimate from it. Returns the total to reckon with.
    pub fn settle(&self, sample: &Sample, usage: &Usage) -> u64 {
        let total = sample.resident_bytes + sample.own_bytes;
        let reckoned = total + sample.unsure_bytes;
        self.bounds.approach(reckoned);
        // Faults stop short of the limit, because mappings that are not registered yet grow without asking.
        let ceiling = self.limit_bytes() - self.watermark_bytes() / 4 * 3;
        let mut free = signed(ceiling) - signed(reckoned);
        let given_pages = self.given_pages.swap(0, Ordering::Relaxed);
        if self.bounds.is_approaching() && given_pages > 0 {
            // It gets nearer. Where nothing moves out, it is as near as it gets, and the program goes on with this.
            free = free.min(0);
        }
        if free > 0 && !self.is_stalled() {
            // It was not needed, or is not any more.
            self.last_bytes.store(0, Ordering::Relaxed);
        }
        let last = signed(self.last_bytes.load(Ordering::Relaxed));
        self.headroom.store(free + last, Ordering::Relaxed);
        self.unsure_bytes
            .store(sample.unsure_bytes, Ordering::Relaxed);
        self.total_bytes.store(total, Ordering::Relaxed);
        self.peak_total_bytes.fetch_max(total, Ordering::Relaxed);
        self.resident_bytes
            .store(sample.resident_bytes, Ordering::Relaxed);
        self.own_bytes.store(sample.own_bytes, Ordering::Relaxed);
        self.strangers.store(sample.strangers, Ordering::Relaxed);
        let swapped = usage.swapped_pages * PAGE_BYTES;
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.peak_needed_bytes
            .fetch_max(sample.resident_bytes + swapped, Ordering::Relaxed);
        reckoned
    }

    /// How many samples were taken.
    pub fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Pause until the next sample of a run that is full and has not changed.
    pub fn stall_pause() -> Duration {
        Duration::from_millis(STALL_MS)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A run of 512 MiB that uses `used` of them and shall come down to 64.
    fn on_the_way_down(used: u64) -> Limit {
        let limit = Limit::new(RamRange::fixed(512 * MIB), None);
        limit.bounds.set(RamRange::fixed(64 * MIB));
        settle(&limit, used);
        limit
    }

    fn settle(limit: &Limit, used: u64) {
        let sample = Sample {
            resident_bytes: used,
            ..Sample::default()
        };
        limit.settle(&sample, &Usage::default());
    }

    #[test]
    fn on_the_way_down_faults_take_half_of_what_moves_out() {
        let mut used = 400 * MIB;
        let limit = on_the_way_down(used);
        let mut samples = 0;
        while limit.bounds.is_approaching() {
            // The evictor moves out a MiB, and a busy program takes all that it can get.
            limit.gave_pages(256);
            used -= MIB;
            while limit.has_headroom() {
                limit.took_pages(1);
                used += PAGE_BYTES;
            }
            settle(&limit, used);
            samples += 1;
            assert!(samples < 1000, "{} MiB are used still", used / MIB);
        }
        assert!(samples > 600, "faults got less than half");
        limit.gave_pages(256);
        let all = limit.headroom.load(Ordering::Relaxed);
        limit.gave_pages(256);
        let more = limit.headroom.load(Ordering::Relaxed) - all;
        assert_eq!(more, signed(MIB), "it has arrived");
    }

    #[test]
    fn a_run_that_comes_no_nearer_goes_on() {
        let limit = on_the_way_down(400 * MIB);
        assert!(limit.has_headroom(), "nothing has moved out yet");
        limit.gave_pages(1);
        settle(&limit, 400 * MIB);
        assert!(!limit.has_headroom());
        settle(&limit, 400 * MIB);
        assert!(limit.has_headroom(), "nothing moves out any more");
    }
}
