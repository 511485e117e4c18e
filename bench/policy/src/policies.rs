//! The policies: which page leaves when a page comes and nothing is free.

mod clock;
mod lru;
mod min;
mod sweep;

pub use clock::Clock;
pub use lru::Lru;
pub use min::Min;
pub use sweep::Sweep;

/// What is told of touches, and asked which page leaves.
pub trait Policy {
    /// A page in memory was touched by touch number `at`. A pager of user space does not see this.
    fn touched(&mut self, page: usize, at: usize);

    /// A page came into memory for touch number `at`.
    fn came(&mut self, page: usize, at: usize);

    /// The page that leaves. At least one is in memory.
    fn leave(&mut self) -> usize;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::misses;
    use crate::trace::Trace;

    fn trace(pages: &[u64]) -> Trace {
        let touches: Vec<(u32, u64)> = pages.iter().map(|page| (1, *page)).collect();
        Trace::of(&touches)
    }

    fn all(trace: &Trace, room: usize) -> [usize; 5] {
        [
            misses(trace, room, &mut Min::new(trace)),
            misses(trace, room, &mut Lru::new(trace.pages)),
            misses(trace, room, &mut Clock::new(trace.pages)),
            misses(trace, room, &mut Sweep::without_heat(trace.pages, room)),
            misses(trace, room, &mut Sweep::with_heat(trace.pages, room)),
        ]
    }

    /// The example of most textbooks, with 9 and 12 faults. The first touch of a page is one there, and not here.
    #[test]
    fn min_and_lru_are_those_of_the_textbook() {
        let reference = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
        let trace = trace(&reference);
        let [min, lru, ..] = all(&trace, 3);
        assert_eq!(min + trace.pages, 9);
        assert_eq!(lru + trace.pages, 12);
    }

    #[test]
    fn nobody_misses_what_fits_and_nobody_is_better_than_min() {
        let mut state = 1u64;
        let mut random = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            // Small numbers are more frequent.
            let draw = state >> 33;
            draw % (1 + draw / 7 % 64)
        };
        let pages: Vec<u64> = (0..5000).map(|_| random()).collect();
        let trace = trace(&pages);
        assert_eq!(all(&trace, trace.pages), [0; 5]);
        for room in [4, 16, 40] {
            let found = all(&trace, room);
            assert!(found[0] > 0, "the trace has to be longer");
            assert!(found.iter().all(|misses| *misses >= found[0]), "{found:?}");
        }
    }

    /// A loop over one page more than there is room for: LRU misses each touch, MIN next to none.
    #[test]
    fn a_loop_that_does_not_fit() {
        let pages: Vec<u64> = (0..1000).map(|at| at % 10).collect();
        let [min, lru, clock, sweep, _] = all(&trace(&pages), 9);
        assert_eq!([lru, clock, sweep], [990; 3]);
        assert!(min < 120, "{min}");
    }

    /// One touch of two goes to a few pages in use all the time, the other scans what does not fit: heat keeps the
    /// first.
    #[test]
    fn heat_keeps_what_comes_back_early() {
        let pages: Vec<u64> = (0..8000u64)
            .map(|at| {
                if at % 2 == 0 {
                    at / 2 % 8
                } else {
                    100 + at / 2 % 40
                }
            })
            .collect();
        let [_, _, _, sweep, heat] = all(&trace(&pages), 16);
        // The scan misses each time but the first, whoever keeps what.
        let of_scan = 4000 - 40;
        assert!(
            heat - of_scan < (sweep - of_scan) / 4,
            "{heat} with heat, {sweep} without"
        );
    }
}
