//! What it costs to read from an area, as measured: a lone page, and one page more in the same request.
//!
//! Two moving averages. From them comes how many pages are worth a request: as many as take the time of one lone page.
//! So nobody waits more than twice as long because of pages that may not be wanted, and they pay if half of them are.
//! Where requests are slow and pages are quick that is a large window. Where one page more costs half as much as a
//! request, or more, it is the page alone.
//!
//! The two are measured by requests of different size. If all of them are of one kind, one of the other kind is asked
//! for now and then, so that a change is noticed.
//!
//! All of this is a hint, which threads neither wait for nor hand pages over by. So the atomics are those of std, and
//! model checkers measure nothing: a choice must not depend on the clock there.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The most slots that one request spans.
pub const READ_AROUND_MAX: usize = 64;
/// Weight of the newest sample in an average: one part in this many.
const PART: u64 = 8;
/// The same for a sample of a kind that was not measured for long.
const PART_RARE: u64 = 2;
/// No sample counts for more than this many times the average, so one request that met with a pause of the network
/// changes little.
const TIMES_MAX: u64 = 4;
/// Window while costs are not known: the kernel's default, where `vm.page-cluster` is 3.
const WINDOW_UNKNOWN: usize = 8;
/// After this many requests of one kind, one of the other kind is to be measured, and is no larger than it must be.
const IN_A_ROW: u32 = 32;
const WINDOW_TO_MEASURE: usize = 2;
/// A page is dear where it costs more than this many times what it costs elsewhere. Less is noise.
const DEAR: u32 = 2;
/// Where pages are dear some are kept all the same, once in so many times: or nobody would notice that they are no
/// longer.
const DEAR_TURN: u32 = 32;
/// The longest time that is noted: 36 years. Sums of a few fit.
const NS_MAX: u64 = u64::MAX >> 4;

/// The measured cost of reading from one area. For any number of threads.
#[derive(Debug, Default)]
pub(crate) struct ReadCost {
    /// A lone page, in nanoseconds. 0 if not known yet.
    lone_ns: AtomicU64,
    /// A further page of the same request. 0 if not known yet.
    further_ns: AtomicU64,
    /// Requests for one page since the last larger one.
    lones: AtomicU32,
    /// Larger requests since the last one for one page.
    larger: AtomicU32,
    /// How often pages have gone elsewhere since the last turn.
    passed: AtomicU32,
}

impl ReadCost {
    /// Another area begins here.
    pub(crate) fn forget(&self) {
        for ns in [&self.lone_ns, &self.further_ns] {
            ns.store(0, Ordering::Relaxed);
        }
        for count in [&self.lones, &self.larger, &self.passed] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that a request for this many neighbouring pages took so long. Two threads may lose each other's change,
    /// here and below. It is only an average.
    pub(crate) fn note(&self, pages: usize, took: Duration) {
        if cfg!(any(loom, shuttle)) {
            return;
        }
        let took = u64::try_from(took.as_nanos()).unwrap_or(NS_MAX);
        let took = took.clamp(1, NS_MAX);
        let further = (pages as u64).saturating_sub(1);
        let (this, other) = match further {
            0 => (&self.lones, &self.larger),
            _ => (&self.larger, &self.lones),
        };
        this.store(
            this.load(Ordering::Relaxed).saturating_add(1),
            Ordering::Relaxed,
        );
        let is_rare = other.load(Ordering::Relaxed) >= IN_A_ROW;
        other.store(0, Ordering::Relaxed);
        let part = if is_rare { PART_RARE } else { PART };
        let lone = self.lone_ns.load(Ordering::Relaxed);
        if further == 0 {
            average(&self.lone_ns, took, part);
        } else if lone > 0 {
            average(&self.further_ns, took.saturating_sub(lone) / further, part);
        }
    }

    /// How long reading a lone page takes on average. None if that is not known yet.
    pub(crate) fn lone(&self) -> Option<Duration> {
        let known = self.lone_ns.load(Ordering::Relaxed);
        (known > 0).then(|| Duration::from_nanos(known))
    }

    /// Whether pages are better kept where bringing one back takes `least`. What is not known yet is not dear.
    pub(crate) fn is_dear(&self, least: Duration) -> bool {
        if self.lone().is_none_or(|lone| lone <= least * DEAR) {
            return false;
        }
        let passed = self.passed.load(Ordering::Relaxed) + 1;
        self.passed.store(passed % DEAR_TURN, Ordering::Relaxed);
        passed < DEAR_TURN
    }

    /// The most pages that are worth a request. A power of two.
    pub(crate) fn window_max(&self) -> usize {
        if self.larger.load(Ordering::Relaxed) >= IN_A_ROW {
            return 1;
        }
        let lone = self.lone_ns.load(Ordering::Relaxed);
        let further = self.further_ns.load(Ordering::Relaxed);
        if lone == 0 || further == 0 {
            return WINDOW_UNKNOWN;
        }
        let pages = usize::try_from(lone / further).unwrap_or(usize::MAX);
        let pages = 1 << pages.clamp(1, READ_AROUND_MAX).ilog2();
        if self.lones.load(Ordering::Relaxed) >= IN_A_ROW {
            return pages.max(WINDOW_TO_MEASURE);
        }
        pages
    }
}

/// Takes a sample into an average, as one part in so many. The average is not 0 from then on.
fn average(average: &AtomicU64, sample: u64, part: u64) {
    let so_far = average.load(Ordering::Relaxed);
    let next = match so_far {
        0 => sample,
        // Rounded up, or a small average would stay where it is.
        _ => {
            let sample = sample.min(so_far.saturating_mul(TIMES_MAX));
            (so_far * (part - 1) + sample).div_ceil(part)
        }
    };
    average.store(next.max(1), Ordering::Relaxed);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// An area on paper: what a request and a page cost there, in nanoseconds.
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Paper {
        lone: u64,
        further: u64,
    }

    impl Paper {
        fn window(self) -> usize {
            let pages = usize::try_from(self.lone / self.further).expect("few");
            1 << pages.clamp(1, READ_AROUND_MAX).ilog2()
        }
    }

    /// Times that differ by a fifth to both sides.
    struct Noise(u64);

    impl Noise {
        fn around(&mut self, ns: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005) + 1;
            let percent = 80 + (self.0 >> 33) % 41;
            ns * percent / 100
        }
    }

    /// Reads as many pages at once as are worth it, but `most` at most. Returns the windows.
    fn read(
        cost: &ReadCost,
        area: Paper,
        most: usize,
        requests: usize,
        noise: &mut Noise,
    ) -> Vec<usize> {
        let mut one = || {
            let window = cost.window_max().min(most);
            let further = area.further * (window as u64 - 1);
            let took = noise.around(area.lone) + noise.around(further);
            cost.note(window, Duration::from_nanos(took));
            window
        };
        (0..requests).map(|_| one()).collect()
    }

    fn median(mut windows: Vec<usize>) -> usize {
        windows.sort_unstable();
        windows[windows.len() / 2]
    }

    #[test]
    fn nothing_known_is_the_kernels_window() {
        let cost = ReadCost::default();
        assert_eq!((cost.window_max(), cost.lone()), (WINDOW_UNKNOWN, None));
        cost.note(8, Duration::from_micros(90));
        assert_eq!((cost.window_max(), cost.lone()), (WINDOW_UNKNOWN, None));
        cost.note(1, Duration::from_micros(80));
        assert_eq!(
            cost.window_max(),
            WINDOW_UNKNOWN,
            "nothing of further pages"
        );
        cost.note(9, Duration::from_micros(96));
        assert_eq!(cost.window_max(), 32, "40 pages");
        cost.forget();
        assert_eq!((cost.window_max(), cost.lone()), (WINDOW_UNKNOWN, None));
        cost.note(1, Duration::from_micros(80));
        assert_eq!(cost.window_max(), WINDOW_UNKNOWN);
    }

    /// The property: whatever an area is like and was like before, its window is right soon after a change, and from
    /// then on.
    #[test]
    fn the_window_follows_what_is_measured_within_a_bounded_number_of_requests() {
        const SOON: usize = 600;
        let times = [300, 3_000, 50_000, 1_000_000, 20_000_000];
        let parts = [1, 5, 25, 200];
        let areas = times.iter().flat_map(|&lone| {
            parts.map(|part| Paper {
                lone,
                further: lone / part,
            })
        });
        let areas: Vec<Paper> = areas.collect();
        for (seed, &before) in (0..).zip(&areas) {
            for &after in &areas {
                let (cost, mut noise) = (ReadCost::default(), Noise(seed));
                for area in [before, after] {
                    read(&cost, area, READ_AROUND_MAX, SOON, &mut noise);
                    let windows = read(&cost, area, READ_AROUND_MAX, 200, &mut noise);
                    let (is, right) = (median(windows), area.window());
                    assert!(
                        is <= 2 * right && right <= 2 * is,
                        "{is} pages instead of {right}: {before:?}, then {after:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_slow_area_has_larger_windows_than_one_where_pages_cost_as_much_as_requests() {
        let further = 4_000;
        let windows = [4_000, 40_000, 4_000_000].map(|lone| {
            let cost = ReadCost::default();
            let area = Paper { lone, further };
            median(read(&cost, area, READ_AROUND_MAX, 400, &mut Noise(1)))
        });
        assert_eq!(windows[0], 1);
        assert!(windows[1] > 1 && windows[1] <= 16, "{windows:?}");
        assert_eq!(windows[2], READ_AROUND_MAX);
    }

    #[test]
    fn both_kinds_are_measured_now_and_then_however_pages_are_wanted() {
        let slow = Paper {
            lone: 1_000_000,
            further: 1_000,
        };
        let dear = Paper {
            lone: 1_000,
            further: 1_000,
        };
        for (area, rare) in [(slow, 1), (dear, WINDOW_TO_MEASURE)] {
            let (cost, mut noise) = (ReadCost::default(), Noise(2));
            read(&cost, area, READ_AROUND_MAX, 400, &mut noise);
            let windows = read(&cost, area, READ_AROUND_MAX, 330, &mut noise);
            let rare = windows.iter().filter(|&&window| window == rare).count();
            assert!((9..=11).contains(&rare), "{rare} times: {windows:?}");
        }
    }

    #[test]
    fn one_request_that_waited_long_changes_little() {
        let (cost, area) = (
            ReadCost::default(),
            Paper {
                lone: 100_000,
                further: 5_000,
            },
        );
        read(&cost, area, READ_AROUND_MAX, 400, &mut Noise(3));
        let before = cost.lone().expect("measured");
        for pages in [1, 16] {
            cost.note(pages, Duration::from_secs(60));
        }
        assert!(cost.lone().expect("measured") < 2 * before);
        let windows = read(&cost, area, READ_AROUND_MAX, 20, &mut Noise(3));
        let right = area.window();
        assert!(
            windows.iter().all(|&window| window <= 4 * right),
            "{windows:?}"
        );
        for took in [Duration::ZERO, Duration::MAX, Duration::MAX] {
            cost.note(1, took);
            cost.note(64, took);
            assert!((1..=READ_AROUND_MAX).contains(&cost.window_max()));
        }
    }

    #[test]
    fn dear_is_what_costs_more_than_twice_as_much_and_gets_a_turn() {
        let cost = ReadCost::default();
        let us = Duration::from_micros;
        assert!(!cost.is_dear(us(1)), "not known");
        cost.note(1, us(100));
        assert!(!cost.is_dear(us(50)) && !cost.is_dear(us(100)));
        let turns = (0..10 * DEAR_TURN).filter(|_| !cost.is_dear(us(49)));
        assert_eq!(turns.count(), 10);
    }
}
