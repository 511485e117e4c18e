//! Which pages of the pool are worth packing again, and how much processor time that may take.
//!
//! A page that is packed more densely frees memory, in which more of the program stays. Two cases:
//!
//! *Nothing more fits soon*: the pool is nearly full, and there is no area behind it. That costs far more than zstd
//! does. So whatever has been left alone for a while is packed again. The same goes for a run that is dense.
//!
//! *Otherwise* it has to pay. One more resident page saves about one miss in a turnover, which is the time in
//! which as many pages go out as the run has in memory and in the pool. So what a page saves, it saves again in each
//! turnover in which nobody reads it. What it costs is packing it, and a slower read in the end. A page that has been
//! left alone for long will be left alone for as long again, as a rule. So a page is worth it once it has been left
//! alone for as many turnovers as pay for it. Of pages that are read at random none gets that old.
//!
//! What packing again costs and saves is measured while it is done (`Worth`). Only the second case needs to know.

use std::time::Duration;

use vswap_engine::PoolFill;

use crate::base::page_run::PAGE_BYTES;

/// The pool is nearly full when less than one part in this many of its limit is free. This is before an area is wished
/// for.
const NEARLY_PART: u64 = 8;
/// What has been left alone for a while: the least age that the engine knows of.
pub const AGE_LEAST: u8 = 2;
/// Older pages are not told apart.
const AGE_MOST: u64 = 120;
/// How many generations of the pool's pages begin while as many pages go out as the pool holds.
pub const GENERATIONS_IN_POOL: u64 = 8;

/// What a miss costs the program, with the eviction that it causes.
const MISS: Duration = Duration::from_micros(15);
/// How much longer a page takes to read that zstd has packed. Generated pages take 3 to 5 us longer at a load of 10
/// (`examples/repack_cost.rs` of the engine).
pub const SLOWER_READ: Duration = Duration::from_micros(4);
/// What it costs the program that a page is packed with zstd and not with lz4 on its way out. That takes about three
/// times as long, so some 10 us more, of a processor that is mostly idle otherwise (see `IDLE_TIME_PART`).
pub const SLOWER_WRITE: Duration = Duration::from_micros(4);
/// Packing takes a processor that is idle otherwise. That counts for so little of what the program's own time counts:
/// it takes energy, and displaces what the program has in caches.
const IDLE_TIME_PART: u32 = 4;
/// How much the last batch changes what is known: one part in this many.
const LAST_PART: u64 = 8;

/// What packing a page again costs and saves on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worth {
    pack_ns: u64,
    saved_bytes: u64,
}

impl Default for Worth {
    /// A guess, until the first batches correct it.
    fn default() -> Worth {
        Worth {
            pack_ns: 25_000,
            saved_bytes: 300,
        }
    }
}

impl Worth {
    /// Take a batch in: `pages` were tried, in this processor time, and take so many bytes less.
    pub fn note(&mut self, pages: u64, time: Duration, saved_bytes: u64) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (Some(ns), Some(saved)) = (ns.checked_div(pages), saved_bytes.checked_div(pages))
        else {
            return;
        };
        let mix = |known: u64, last: u64| known - known / LAST_PART + last / LAST_PART;
        self.pack_ns = mix(self.pack_ns, ns);
        self.saved_bytes = mix(self.saved_bytes, saved);
    }

    /// How many generations a page has to have been left alone for it to pay, in a pool that is filled like this,
    /// beside so many resident pages. `None` if it pays at no age.
    pub fn least_age(&self, fill: &PoolFill, resident_pages: u64) -> Option<u8> {
        let generations_in_turnover =
            GENERATIONS_IN_POOL * (resident_pages + fill.objects) / fill.objects.max(1);
        let cost = SLOWER_READ + Duration::from_nanos(self.pack_ns) / IDLE_TIME_PART;
        let gain = MISS * u32::try_from(self.saved_bytes).unwrap_or(u32::MAX)
            / u32::try_from(PAGE_BYTES).unwrap_or(u32::MAX);
        let age =
            (cost.as_nanos() * u128::from(generations_in_turnover)).checked_div(gain.as_nanos())?;
        let age = u64::try_from(age).ok().filter(|age| *age <= AGE_MOST)?;
        u8::try_from(age).ok().map(|age| age.max(AGE_LEAST))
    }
}

/// Will pages soon find no room in the pool?
pub fn is_nearly_full(fill: &PoolFill) -> bool {
    fill.limit_bytes.saturating_sub(fill.needed_bytes) < fill.limit_bytes / NEARLY_PART
}

/// Pauses of a thread that is to take only time in which nobody else wants the processor.
#[derive(Debug)]
pub struct Pace {
    pause: Duration,
}

/// Shortest and longest pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(256));

impl Default for Pace {
    fn default() -> Pace {
        Pace { pause: PAUSE.0 }
    }
}

impl Pace {
    /// The pause after work that took `whole` and so much `processor` time. What is missing, others had: then the pause
    /// is twice the last one. Otherwise it is half of it.
    pub fn after(&mut self, whole: Duration, processor: Duration) -> Duration {
        let waited = whole.saturating_sub(processor) > processor / 2;
        let next = if waited {
            self.pause * 2
        } else {
            self.pause / 2
        };
        self.pause = next.clamp(PAUSE.0, PAUSE.1);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool of 100 MiB with pages of 1 KiB.
    fn fill(needed_bytes: u64) -> PoolFill {
        PoolFill {
            limit_bytes: 100 << 20,
            span_bytes: needed_bytes,
            needed_bytes,
            objects: needed_bytes >> 10,
        }
    }

    fn worth(pack_us: u64, saved_bytes: u64) -> Worth {
        Worth {
            pack_ns: pack_us * 1000,
            saved_bytes,
        }
    }

    #[test]
    fn a_pool_is_nearly_full_before_it_is() {
        let is_full = |mib: u64| is_nearly_full(&fill(mib << 20));
        assert!(!is_full(80) && is_full(90) && is_full(110));
        assert!(!is_nearly_full(&PoolFill::default()), "no pool");
    }

    #[test]
    fn the_more_it_saves_and_the_less_it_costs_the_sooner() {
        let half = fill(50 << 20);
        let age = |worth: Worth| worth.least_age(&half, half.objects);
        // 4 us and a quarter of 24 us, for 15 us in each 16 generations: 10.7.
        assert_eq!(age(worth(24, 4096)), Some(10));
        assert_eq!(age(worth(24, 1024)), Some(42));
        assert_eq!(age(worth(56, 1024)), Some(76));
        assert_eq!(age(worth(24, 100)), None, "older than is told apart");
        assert_eq!(age(worth(24, 0)), None);
        assert_eq!(worth(24, 4096).least_age(&fill(0), 1000), None, "no pool");
    }

    #[test]
    fn batches_correct_what_is_known() {
        let mut known = worth(80, 800);
        known.note(0, Duration::from_secs(1), 0);
        assert_eq!(known, worth(80, 800));
        known.note(64, Duration::from_micros(64 * 160), 0);
        assert_eq!(known, worth(90, 700));
        (0..100).for_each(|_| known.note(1, Duration::from_micros(8), 80));
        assert!(known.pack_ns < 9000 && known.saved_bytes < 90, "{known:?}");
    }

    #[test]
    fn who_has_to_wait_for_a_processor_pauses_longer() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        assert_eq!(pace.after(ms(10), ms(10)), PAUSE.0);
        assert_eq!(pace.after(ms(20), ms(10)), ms(2));
        assert_eq!(pace.after(ms(20), ms(10)), ms(4));
        for _ in 0..20 {
            pace.after(ms(20), ms(1));
        }
        assert_eq!(pace.after(ms(20), ms(10)), PAUSE.1);
        assert_eq!(pace.after(ms(10), ms(9)), PAUSE.1 / 2);
    }
}
