//! Figures on the pages in the pool and on those that come back from areas, for the shrinker and for swap-ins.
//!
//! Pages that come back from areas too early slow the shrinker down, and keep no slot in a low tier. The refault
//! distance tells which they are (`working_set.rs`): a pool of twice the size would have kept the page. The lock is
//! innermost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vswap_engine::{Engine, Entry, PoolFill, Shadow};

use crate::base::work::Work;
use crate::policy::repack::GENERATIONS_IN_POOL;
use crate::policy::working_set::WorkingSet;
use crate::run::limit::Limit;
use crate::run::stats::Stats;

/// But no fewer than this, because the pages of one eviction window have the same age.
const GENERATION_PAGES_LEAST: u64 = 64;

/// The shrinker of a run.
#[derive(Debug)]
pub struct Shrinker {
    /// There is something to do.
    wanted: Work<bool>,
    started: AtomicBool,
    /// Last time no area had room, or the run's group may not have more in areas.
    no_room: AtomicBool,
    /// Pages that came back from an area too early and have not yet spared another.
    refaults: AtomicU64,
    /// Pages in the pool when it was last checked.
    pool_pages: AtomicU64,
    /// The clock of the working set when the youngest generation began.
    generation_began: AtomicU64,
}

impl Default for Shrinker {
    fn default() -> Shrinker {
        Shrinker {
            wanted: Work::new("what the shrinker has to do"),
            started: AtomicBool::new(false),
            no_room: AtomicBool::new(false),
            refaults: AtomicU64::new(0),
            pool_pages: AtomicU64::new(0),
            generation_began: AtomicU64::new(0),
        }
    }
}

impl Shrinker {
    /// May a page that comes back from an area keep its entry there? The slot takes no memory, but the page would go
    /// there again. A page that came back too early had better be in a higher tier, or in the pool if it `packs`.
    pub fn may_keep(
        &self,
        engine: &Engine,
        entry: Entry,
        is_early: bool,
        packs: impl FnOnce() -> bool,
    ) -> bool {
        let has_pool = self.pool_pages.load(Ordering::Relaxed) > 0;
        let has_better = || engine.lies_low(entry) || (has_pool && packs());
        !(is_early && has_better())
    }

    /// Would a page that comes back from an area have stayed in a pool of twice the size?
    pub fn is_early(&self, limit: &Limit, working_set: &WorkingSet, shadow: Shadow) -> bool {
        let held = limit.resident_pages() + self.pool_pages.load(Ordering::Relaxed);
        working_set.come_back(shadow, held).is_early()
    }

    /// A page comes back from an area.
    pub fn came_from_area(&self, stats: &Stats, is_early: bool) {
        stats.pages_in_areas.add(1);
        if is_early {
            stats.pages_in_areas_early.add(1);
            self.refaults.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Pages that came back too early since the last call.
    pub fn take_refaults(&self) -> u64 {
        self.refaults.swap(0, Ordering::Relaxed)
    }

    /// Take in how full the pool is. True if a new generation of its pages is due. Only one caller gets true.
    pub fn note_fill(&self, fill: &PoolFill, working_set: &WorkingSet) -> bool {
        self.pool_pages.store(fill.objects, Ordering::Relaxed);
        let now = working_set.pages_gone();
        let began = self.generation_began.load(Ordering::Relaxed);
        let length = (fill.objects / GENERATIONS_IN_POOL).max(GENERATION_PAGES_LEAST);
        let relaxed = Ordering::Relaxed;
        let is_due = now.saturating_sub(began) >= length;
        // One of several callers wins.
        let begins = || {
            self.generation_began
                .compare_exchange(began, now, relaxed, relaxed)
        };
        is_due && begins().is_ok()
    }

    /// Which generation of the pool's pages is the youngest. The number says no more than that.
    pub fn generation(&self) -> u64 {
        self.generation_began.load(Ordering::Relaxed)
    }

    /// Did no area have room last time?
    pub fn has_no_room(&self) -> bool {
        self.no_room.load(Ordering::Relaxed)
    }

    /// No area had room, or an area may have room again.
    pub fn set_no_room(&self, no_room: bool) {
        self.no_room.store(no_room, Ordering::Relaxed);
    }

    /// Called before the thread is started. False if it was started before.
    pub fn begin(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    /// End the thread.
    pub fn stop(&self) {
        self.wanted.end();
    }

    /// There is something to do.
    pub fn wake(&self) {
        *self.wanted.lock() = true;
        self.wanted.wake_one();
    }

    /// Wait until there is something to do. False at the end.
    pub fn wait(&self) -> bool {
        *self.wanted.wait_while(|wanted| !wanted) = false;
        !self.wanted.has_ended()
    }
}
