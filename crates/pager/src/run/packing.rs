//! How densely the run's pages are packed at this moment, and what that is decided by (`policy/density.rs`).
//!
//! Whoever brings pages back counts; the governor decides; writers ask. Atomics, and a lock of the governor's that is
//! innermost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vswap_engine::PoolFill;

use crate::base::lock::{Mutex, Row};
use crate::base::page_run::PAGE_BYTES;
use crate::policy::density::{DECIDE_EVERY, Decider, Density, Seen};
use crate::policy::pressure::Spell;
use crate::policy::repack::is_nearly_full;
use crate::space::wait::Waits;

/// Zstd makes of a payload of lz4 three quarters: 0.69 on real heaps, and pages that came back early stay as they are.
const SAVED_PART: u64 = 4;

/// How pages are packed.
#[derive(Debug)]
pub struct Packing {
    /// Nobody has named a codec that all pages are packed with.
    is_free: AtomicBool,
    is_dense: AtomicBool,
    /// The pool is nearly full, and there is no area.
    is_short: AtomicBool,
    /// Only pages from areas can be within reach.
    has_areas: AtomicBool,
    /// The largest refault distance of a page that would have stayed, if what is in the pool were packed with zstd.
    reach_pages: AtomicU64,
    returns: AtomicU64,
    near: AtomicU64,
    last: Mutex<Last>,
}

/// As of the last decision.
#[derive(Debug)]
struct Last {
    at: Instant,
    clock: u64,
    returns: u64,
    near: u64,
    packed: u64,
    decider: Decider,
}

impl Default for Packing {
    fn default() -> Packing {
        let last = Last {
            at: Instant::now(),
            clock: 0,
            returns: 0,
            near: 0,
            packed: 0,
            decider: Decider::default(),
        };
        Packing {
            is_free: AtomicBool::new(false),
            is_dense: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            has_areas: AtomicBool::new(false),
            reach_pages: AtomicU64::new(0),
            returns: AtomicU64::new(0),
            near: AtomicU64::new(0),
            last: Mutex::new(Row::Innermost, "returns within reach", last),
        }
    }
}

impl Packing {
    /// From now on it is decided here.
    pub fn begin(&self) {
        self.is_free.store(true, Ordering::Relaxed);
    }

    /// A page came back that somebody wanted, with this refault distance, if it is known, and perhaps from an area.
    pub fn came_back(&self, distance: Option<u64>, is_from_area: bool) {
        self.returns.fetch_add(1, Ordering::Relaxed);
        let reach = self.reach_pages.load(Ordering::Relaxed);
        let counts = is_from_area || !self.has_areas.load(Ordering::Relaxed);
        if counts && distance.is_some_and(|distance| distance <= reach) {
            self.near.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Take in how full the pool is, whether there are areas behind it, and how many pages were packed so far. Decide
    /// if it is time.
    pub fn look(&self, fill: &PoolFill, has_areas: bool, packed: u64, waits: &Waits) {
        let relaxed = Ordering::Relaxed;
        if !self.is_free.load(relaxed) {
            return;
        }
        let is_short = !has_areas && is_nearly_full(fill);
        self.is_short.store(is_short, relaxed);
        self.has_areas.store(has_areas, relaxed);
        let was = self.is_dense.load(relaxed);
        // The same difference, seen from either side.
        let part = if was { SAVED_PART - 1 } else { SAVED_PART };
        let reach_pages = if has_areas {
            fill.objects + fill.objects / (SAVED_PART - 1)
        } else {
            fill.needed_bytes / part / PAGE_BYTES
        };
        self.reach_pages.store(reach_pages, relaxed);
        let mut last = self.last.lock();
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(last.at);
        if elapsed < DECIDE_EVERY {
            return;
        }
        let (returns, near, clock) = (
            self.returns.load(relaxed),
            self.near.load(relaxed),
            waits.clock(now),
        );
        let spell = Spell {
            elapsed,
            waited: Waits::between(last.clock, clock),
            faults: returns - last.returns,
            worked: Duration::ZERO,
        };
        let seen = Seen {
            elapsed,
            lost: spell.lost().0,
            returns: spell.faults,
            near: near - last.near,
            packed: packed.saturating_sub(last.packed),
        };
        (last.at, last.clock) = (now, clock);
        (last.returns, last.near, last.packed) = (returns, near, packed);
        let is_dense = last.decider.decide(&seen);
        self.is_dense.store(is_dense, relaxed);
        if is_dense != was {
            let how = if is_dense { "densely" } else { "fast" };
            tracing::debug!("{seen:?}, reach {reach_pages} pages: cold pages are packed {how}");
        }
    }

    /// How pages are packed that go out now. None if that is not decided here.
    pub fn density(&self) -> Option<Density> {
        let is_so = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let density = if is_so(&self.is_short) {
            Density::Dense
        } else if is_so(&self.is_dense) {
            Density::ColdDense
        } else {
            Density::Fast
        };
        is_so(&self.is_free).then_some(density)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(needed_bytes: u64) -> PoolFill {
        PoolFill {
            limit_bytes: 1 << 30,
            span_bytes: needed_bytes,
            needed_bytes,
            objects: needed_bytes >> 10,
        }
    }

    #[test]
    fn returns_within_reach_make_it_dense_and_a_full_pool_does_at_once() {
        let packing = Packing::default();
        assert_eq!(packing.density(), None);
        packing.begin();
        let waits = Waits::default();
        let half = fill(1 << 29);
        packing.look(&half, false, 0, &waits);
        assert_eq!(packing.density(), Some(Density::Fast));
        // A quarter of 512 MiB are 32768 pages.
        for _ in 0..3 {
            for distance in 32_000..33_000 {
                packing.came_back(Some(distance), false);
            }
            packing.came_back(None, false);
            packing.last.lock().at -= Duration::from_secs(1);
            packing.look(&half, false, 0, &waits);
        }
        assert_eq!(packing.near.load(Ordering::Relaxed), 3 * 769);
        assert_eq!(packing.returns.load(Ordering::Relaxed), 3 * 1001);
        assert_eq!(packing.density(), Some(Density::ColdDense));
        packing.look(&fill(1 << 30), false, 0, &waits);
        assert_eq!(packing.density(), Some(Density::Dense));
        packing.look(&fill(1 << 30), true, 0, &waits);
        assert_eq!(
            packing.density(),
            Some(Density::ColdDense),
            "there are areas"
        );
    }

    #[test]
    fn where_there_are_areas_only_what_comes_from_them_counts() {
        let packing = Packing::default();
        packing.begin();
        // 524288 pages are in the pool, a third more would be.
        packing.look(&fill(1 << 29), true, 0, &Waits::default());
        for (distance, is_from_area) in [(1, false), (699_050, true), (699_051, true)] {
            packing.came_back(Some(distance), is_from_area);
        }
        assert_eq!(packing.near.load(Ordering::Relaxed), 1);
    }
}
