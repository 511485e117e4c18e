//! The working set: which pages the next sweep passes over, told by refault distance.
//!
//! A page that goes out takes along how many pages had gone before it (its shadow). When it comes back, as many as have
//! gone since are its refault distance. Had memory been larger by that distance it would have stayed; so if that is no
//! more than what the run has in memory, it was thrown out too early, and colder pages lie in its place. One early
//! return may be chance: the first is remembered, in the page's word and then in its next shadow, and from the second
//! in a row on the page is passed over for one sweep. Idea and measure are those of the kernel's workingset.c.

use std::sync::atomic::{AtomicU64, Ordering};

use vswap_engine::Shadow;

/// The lowest bit of a shadow: the page had come back early before it went out.
const EARLY: u64 = 1;
const CLOCK_SHIFT: u32 = 1;
const CLOCK_MASK: u64 = Shadow::MAX >> CLOCK_SHIFT;

/// What a return tells of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// It was away for long, or nobody knows.
    Late,
    /// It went too early.
    Early,
    /// It went too early again.
    EarlyAgain,
}

/// Counts the pages that have gone out.
#[derive(Debug)]
pub struct WorkingSet {
    clock: AtomicU64,
}

impl Default for WorkingSet {
    /// The clock begins at 1: a shadow of 0 says that nothing is known.
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

    /// A page goes out; `was_early` if it had come back early.
    pub fn leave(&self, was_early: bool) -> Shadow {
        let now = self.clock.fetch_add(1, Ordering::Relaxed) & CLOCK_MASK;
        Shadow::truncated(now << CLOCK_SHIFT | if was_early { EARLY } else { 0 })
    }

    /// A page with this shadow comes back while `resident_pages` of the run are in memory.
    pub fn come_back(&self, shadow: Shadow, resident_pages: u64) -> Return {
        if shadow == Shadow::ABSENT {
            return Return::Late;
        }
        let now = self.clock.load(Ordering::Relaxed);
        let distance = now.wrapping_sub(shadow.value() >> CLOCK_SHIFT) & CLOCK_MASK;
        if distance > resident_pages {
            Return::Late
        } else if shadow.value() & EARLY == 0 {
            Return::Early
        } else {
            Return::EarlyAgain
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave_many(set: &WorkingSet, pages: u64) {
        (0..pages).for_each(|_| {
            set.leave(false);
        });
    }

    #[test]
    fn early_is_within_what_is_resident() {
        let set = WorkingSet::default();
        let shadow = set.leave(false);
        leave_many(&set, 99);
        assert_eq!(set.come_back(shadow, 100), Return::Early);
        assert_eq!(set.come_back(shadow, 99), Return::Late);
        assert_eq!(set.come_back(Shadow::ABSENT, u64::MAX), Return::Late);
    }

    #[test]
    fn the_second_early_return_in_a_row_is_told_from_the_first() {
        let set = WorkingSet::default();
        let again = set.leave(true);
        assert_eq!(set.come_back(again, 10), Return::EarlyAgain);
        leave_many(&set, 20);
        assert_eq!(set.come_back(again, 10), Return::Late);
    }

    #[test]
    fn the_clock_may_come_round() {
        let set = WorkingSet {
            clock: AtomicU64::new(CLOCK_MASK),
        };
        let shadow = set.leave(false);
        leave_many(&set, 5);
        assert_eq!(set.come_back(shadow, 10), Return::Early);
        assert_eq!(set.come_back(shadow, 5), Return::Late);
    }
}
