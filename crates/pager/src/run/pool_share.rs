//! How much of the limit the pool may take, and how much it leaves to the program.
//!
//! Without areas the pool holds every page that is out, so it may take all but the program's floor. With areas it takes
//! half of what vswap's tables leave. But pages that nobody misses had better lie in an area than in the pool. So while
//! pages come back to the program too early, and next to none of them from areas, the pool gives way step by step. It
//! takes that back when areas are read too often. The signals are refault distances (`working_set`), as in the kernel,
//! whose zswap shrinker spares pages that come back from its device.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::base::lock::{Mutex, Row};
use crate::run::bounds::Bounds;
use crate::run::part::Part;
use crate::run::stats::Stats;
use crate::store::areas::Areas;
use crate::store::config::PoolLimit;

/// The floor: the pool must leave one part in this many of the limit to the program's resident pages.
const FLOOR_PART: u64 = 12;
const FLOOR_BYTES_LEAST: u64 = 2 << 20;
/// With physical areas the pool takes one part in this many of what tables leave, unless the user asks otherwise.
const PART_WITH_AREAS: u64 = 2;
/// The pool gives way in steps of one part in this many of the limit, and keeps one part in `LEAST_PART`.
const STEP_PART: u64 = 32;
const LEAST_PART: u64 = 8;
/// How often the balance is checked.
const BALANCE_EVERY: Duration = Duration::from_millis(250);
/// Fewer early pages than this between two checks say nothing.
const EARLY_LEAST: u64 = 256;
/// The pool gives way while fewer than one early page in this many came from areas. Reading an area costs as much as
/// ten reads from the pool ...
const SPARED_PART: u64 = 128;
/// ... and takes back when more than one early page in this many did.
const MISSED_PART: u64 = 32;

/// What the pool may take.
#[derive(Debug)]
pub struct PoolShare {
    bounds: Bounds,
    /// What the user said.
    asked: Mutex<Option<PoolLimit>>,
    /// As of the last look.
    bytes: AtomicU64,
    /// Memory of vswap besides the pool.
    beside_bytes: AtomicU64,
    /// How much the pool has given way.
    given_bytes: AtomicU64,
    /// The run is parked, or about to be.
    is_parked: AtomicBool,
    seen: Mutex<Seen>,
}

/// Early returns at the last check.
#[derive(Debug)]
struct Seen {
    at: Instant,
    early: u64,
    from_areas: u64,
}

impl PoolShare {
    /// Of a run with these bounds, and perhaps a pool that was `asked` for.
    pub fn new(bounds: Bounds, asked: Option<PoolLimit>) -> PoolShare {
        let seen = Seen {
            at: Instant::now(),
            early: 0,
            from_areas: 0,
        };
        PoolShare {
            bytes: AtomicU64::new(bounds.limit_bytes()),
            bounds,
            asked: Mutex::new(Row::Innermost, "what the pool may take", asked),
            beside_bytes: AtomicU64::new(0),
            given_bytes: AtomicU64::new(0),
            is_parked: AtomicBool::new(false),
            seen: Mutex::new(Row::Innermost, "early returns", seen),
        }
    }

    /// The most that the pool may take, as of the last look.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The pool may take this from now on.
    pub fn ask(&self, asked: PoolLimit) {
        *self.asked.lock() = Some(asked);
    }

    /// The run is parked from the next look on, or is not any more. A parked run has no need of a pool where there are
    /// areas, and leaves nothing to the program where there are none.
    pub fn set_parked(&self, is_parked: bool) {
        self.is_parked.store(is_parked, Ordering::Relaxed);
    }

    /// Memory of vswap's beside the pool, as of the last look.
    pub fn beside_bytes(&self) -> u64 {
        self.beside_bytes.load(Ordering::Relaxed)
    }

    /// Take in what vswap uses besides the pool, and what came back early since the last time.
    pub fn look(&self, stats: &Stats, beside_bytes: u64) {
        self.beside_bytes.store(beside_bytes, Ordering::Relaxed);
        let mut seen = self.seen.lock();
        if seen.at.elapsed() < BALANCE_EVERY {
            return;
        }
        let (early, from_areas) = (stats.pages_early.get(), stats.pages_in_areas_early.get());
        let given = self.given_bytes.load(Ordering::Relaxed);
        let given = self.balance(given, early - seen.early, from_areas - seen.from_areas);
        self.given_bytes.store(given, Ordering::Relaxed);
        *seen = Seen {
            at: Instant::now(),
            early,
            from_areas,
        };
    }

    /// How much the pool gives way, after `early` pages came back early, `from_areas` of them from areas.
    fn balance(&self, given: u64, early: u64, from_areas: u64) -> u64 {
        let step = self.bounds.limit_bytes() / STEP_PART;
        if early < EARLY_LEAST {
            given
        } else if from_areas * SPARED_PART < early {
            (given + step).min(self.bounds.limit_bytes() / PART_WITH_AREAS)
        } else if from_areas * MISSED_PART > early {
            given.saturating_sub(step)
        } else {
            given
        }
    }

    /// Compute how much the pool may take, and limit the run's part to that.
    pub fn renew(&self, part: &Part, areas: &Areas) {
        let bytes = self.bytes_for(part, areas);
        self.bytes.store(bytes, Ordering::Relaxed);
        part.limit_pool(bytes);
    }

    /// The size that the user asked for, if the program keeps its floor. Areas do not count if the run's group may not
    /// have more in them.
    fn bytes_for(&self, part: &Part, areas: &Areas) -> u64 {
        let limit_bytes = self.bounds.limit_bytes();
        let has_areas = areas.any_stays() && part.has_swap_room();
        let beside = self.taken_beside(part.own_fixed_bytes(), has_areas);
        let beside = beside + self.bounds.watermark_bytes();
        let is_parked = self.is_parked.load(Ordering::Relaxed);
        let floor = if is_parked {
            0
        } else {
            floor_bytes(limit_bytes)
        };
        let most = limit_bytes.saturating_sub(floor + beside);
        let asked = *self.asked.lock();
        let wanted = match asked {
            _ if is_parked && has_areas => 0,
            Some(asked) => asked.of(limit_bytes),
            None if has_areas => self.beside_areas(),
            None => most,
        };
        wanted.min(most)
    }

    /// Memory that neither the pool nor the program can have. With areas that is what vswap was seen to use, so that
    /// the program has its floor in any case: the pool's pages have another place. Without areas it is only what vswap
    /// needs at the least: a program that waits much for its pages is better than one that finds the run full.
    fn taken_beside(&self, fixed_bytes: u64, has_areas: bool) -> u64 {
        if has_areas {
            fixed_bytes.max(self.beside_bytes())
        } else {
            fixed_bytes
        }
    }

    fn beside_areas(&self) -> u64 {
        let beside = self.beside_bytes();
        let limit_bytes = self.bounds.limit_bytes();
        let half = limit_bytes.saturating_sub(beside) / PART_WITH_AREAS;
        let left = half.saturating_sub(self.given_bytes.load(Ordering::Relaxed));
        left.max(limit_bytes / LEAST_PART)
    }
}

/// What the pool leaves to the program's own pages.
pub fn floor_bytes(limit_bytes: u64) -> u64 {
    (limit_bytes / FLOOR_PART).max(FLOOR_BYTES_LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::follow::RamRange;

    const MIB: u64 = 1 << 20;

    fn share() -> PoolShare {
        PoolShare::new(Bounds::new(RamRange::fixed(256 * MIB)), None)
    }

    #[test]
    fn what_nobody_misses_gives_way_and_what_is_missed_comes_back() {
        let share = share();
        assert_eq!(share.balance(0, EARLY_LEAST - 1, 0), 0, "too few to tell");
        assert_eq!(share.balance(0, 10_000, 0), 8 * MIB);
        assert_eq!(share.balance(8 * MIB, 10_000, 100), 8 * MIB, "in balance");
        assert_eq!(share.balance(8 * MIB, 10_000, 1000), 0);
        assert_eq!(share.balance(0, 10_000, 10_000), 0);
        let mut given = 0;
        for _ in 0..100 {
            given = share.balance(given, 10_000, 0);
        }
        assert_eq!(given, 128 * MIB);
    }

    #[test]
    fn where_pages_have_another_place_the_pool_leaves_what_vswap_was_seen_to_use() {
        let share = share();
        assert_eq!(share.taken_beside(8 * MIB, true), 8 * MIB, "nothing seen");
        share.beside_bytes.store(22 * MIB, Ordering::Relaxed);
        assert_eq!(share.taken_beside(8 * MIB, true), 22 * MIB);
        assert_eq!(share.taken_beside(8 * MIB, false), 8 * MIB);
    }

    #[test]
    fn beside_areas_the_pool_takes_half_of_what_tables_leave() {
        let share = share();
        assert_eq!(share.beside_areas(), 128 * MIB);
        share.beside_bytes.store(56 * MIB, Ordering::Relaxed);
        assert_eq!(share.beside_areas(), 100 * MIB);
        share.given_bytes.store(50 * MIB, Ordering::Relaxed);
        assert_eq!(share.beside_areas(), 50 * MIB);
        share.given_bytes.store(100 * MIB, Ordering::Relaxed);
        assert_eq!(share.beside_areas(), 32 * MIB, "what it keeps in any case");
    }
}
