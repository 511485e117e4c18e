//! The working set: which pages sweeps pass over. The refault distance decides.
//!
//! A page that goes out takes along in its shadow how many pages had gone before it. When it comes back, the number of
//! pages that have gone since is its refault distance. If memory had been larger by that distance, the page would have
//! stayed. So if the distance is no more than what the run has in memory, the page went out too early, and colder pages
//! lie in its place. Idea and measure are those of the kernel's workingset.c.
//!
//! The kernel then asks the page table whether a page is in use. vswap cannot ask: a page that nobody evicts tells
//! nothing. So vswap only knows how often in a row a page came back early: its heat. The page's word and its next
//! shadow hold the heat. One early return may be chance. From the second one on sweeps pass the page over, and the
//! hotter it is, the more of them. A late return takes the heat away.

use std::sync::atomic::{AtomicU64, Ordering};

pub use vswap_engine::Shadow;

/// Width of the heat in the low bits of a shadow. The clock is above it.
const CLOCK_SHIFT: u32 = Heat::BITS;
const CLOCK_MASK: u64 = Shadow::MAX >> CLOCK_SHIFT;

/// How often in a row a page came back early, at most 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heat(u8);

impl Heat {
    /// The last return was late, or none is known.
    pub const COLD: Heat = Heat(0);
    /// Bits that hold a heat.
    pub const BITS: u32 = 2;
    const MAX: u8 = (1 << Heat::BITS) - 1;
    /// How many sweeps pass over a page of each heat.
    const LAPS: [u8; 1 << Heat::BITS] = [0, 0, 1, 7];

    /// The heat in the lowest bits of `bits`.
    pub fn from_bits(bits: u64) -> Heat {
        Heat(bits.to_le_bytes()[0] & Heat::MAX)
    }

    /// The heat as bits.
    pub fn bits(self) -> u64 {
        u64::from(self.0)
    }

    /// The heat after one more early return.
    fn next(self) -> Heat {
        Heat((self.0 + 1).min(Heat::MAX))
    }

    /// Most sweeps that pass over a page.
    pub const LAPS_MAX: u8 = Heat::LAPS[Heat::MAX as usize];

    /// How many sweeps pass over the page.
    pub fn laps(self) -> u8 {
        Heat::LAPS[usize::from(self.0)]
    }

    /// Did the page come back early?
    pub fn is_early(self) -> bool {
        self != Heat::COLD
    }
}

/// Counts the pages that have gone out.
#[derive(Debug)]
pub struct WorkingSet {
    clock: AtomicU64,
}

impl Default for WorkingSet {
    /// The clock begins at 1, because a shadow of 0 says that nothing is known.
    fn default() -> WorkingSet {
        WorkingSet {
            clock: AtomicU64::new(1),
        }
    }
}

impl WorkingSet {
    /// Pages that have gone out so far.
    pub fn pages_gone(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// A page of this heat goes out.
    pub fn leave(&self, heat: Heat) -> Shadow {
        let now = self.clock.fetch_add(1, Ordering::Relaxed) & CLOCK_MASK;
        Shadow::truncated(now << CLOCK_SHIFT | heat.bits())
    }

    /// The heat of a page with this shadow that comes back while `resident_pages` of the run are in memory.
    pub fn come_back(&self, shadow: Shadow, resident_pages: u64) -> Heat {
        match self.distance(shadow) {
            Some(distance) if distance <= resident_pages => heat_of(shadow).next(),
            _ => Heat::COLD,
        }
    }

    /// The refault distance of a page with this shadow that comes back now: how many pages have gone since. None if
    /// nothing is known of it.
    pub fn distance(&self, shadow: Shadow) -> Option<u64> {
        let now = self.clock.load(Ordering::Relaxed);
        let distance = now.wrapping_sub(gone_before(shadow)) & CLOCK_MASK;
        (shadow != Shadow::ABSENT).then_some(distance)
    }
}

/// How many pages had gone out before the page with this shadow, as [`WorkingSet::pages_gone`] counts them.
pub fn gone_before(shadow: Shadow) -> u64 {
    shadow.value() >> CLOCK_SHIFT
}

/// The heat of the page with this shadow when it left.
pub fn heat_of(shadow: Shadow) -> Heat {
    Heat::from_bits(shadow.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave_many(set: &WorkingSet, pages: u64) {
        (0..pages).for_each(|_| {
            set.leave(Heat::COLD);
        });
    }

    #[test]
    fn early_is_within_what_is_resident() {
        let set = WorkingSet::default();
        let shadow = set.leave(Heat::COLD);
        leave_many(&set, 99);
        assert!(set.come_back(shadow, 100).is_early());
        assert_eq!(set.come_back(shadow, 99), Heat::COLD);
        assert_eq!(set.come_back(Shadow::ABSENT, u64::MAX), Heat::COLD);
    }

    #[test]
    fn each_early_return_in_a_row_makes_hotter_and_a_late_one_cold() {
        let set = WorkingSet::default();
        let mut heat = Heat::COLD;
        let mut laps = Vec::new();
        for _ in 0..5 {
            heat = set.come_back(set.leave(heat), 10);
            laps.push(heat.laps());
        }
        assert_eq!(laps, [0, 1, 7, 7, 7]);
        let shadow = set.leave(heat);
        assert_eq!(heat_of(shadow), heat);
        leave_many(&set, 20);
        assert_eq!(set.come_back(shadow, 10), Heat::COLD);
    }

    #[test]
    fn the_clock_may_come_round() {
        let set = WorkingSet {
            clock: AtomicU64::new(CLOCK_MASK),
        };
        let shadow = set.leave(Heat::COLD);
        leave_many(&set, 5);
        assert!(set.come_back(shadow, 10).is_early());
        assert_eq!(set.come_back(shadow, 5), Heat::COLD);
    }
}
