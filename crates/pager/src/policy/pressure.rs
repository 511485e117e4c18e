//! What share of the time a run loses to paging, as the kernel's PSI tells it of a machine.
//!
//! *Some*: at least one thread of the run waits for a page. *Full*: one waits, and none of the run works. The pager
//! knows when a fault begins to wait and when it is served. Whether others work meanwhile it estimates from the CPU
//! time of the run's processes: *full* is what of a spell is left when that is taken off. This is exact with one
//! thread. With several it is usually too little, as two that work count twice; it is too much where threads also
//! sleep.
//!
//! Averages are the kernel's (`calc_avgs` in kernel/sched/psi.c): exponential, over 10, 60 and 300 seconds, here for
//! spells of any length. Pure.

use std::time::Duration;

/// What a fault takes beside the pager's part of it: the message, and waking the thread. An estimate, from
/// one comparison of what a program with one thread waits in all with what the pager sees of that.
const WAY_PER_FAULT: Duration = Duration::from_micros(3);
/// Seconds that averages go back.
const WINDOWS_S: [f64; 3] = [10.0, 60.0, 300.0];

/// What happened in a spell.
#[derive(Debug, Clone, Copy)]
pub struct Spell {
    /// How long it was.
    pub elapsed: Duration,
    /// How much of it a fault waited, as the pager sees it.
    pub waited: Duration,
    /// Faults that were served.
    pub faults: u64,
    /// CPU time of the run's processes.
    pub worked: Duration,
}

impl Spell {
    /// How long some thread waited, and how long none did anything else.
    pub fn lost(&self) -> (Duration, Duration) {
        let faults = u32::try_from(self.faults).unwrap_or(u32::MAX);
        let ways = WAY_PER_FAULT.saturating_mul(faults);
        let some = self.waited.saturating_add(ways).min(self.elapsed);
        let full = some.min(self.elapsed.saturating_sub(self.worked));
        (some, full)
    }
}

/// Averages of a share, in hundredths, and its total.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Averages {
    /// Over the windows.
    pub percent: [f64; 3],
    /// Time in all.
    pub total: Duration,
}

impl Averages {
    /// Take a spell in, of which so much was `lost`.
    pub fn add(&mut self, elapsed: Duration, lost: Duration) {
        if elapsed.is_zero() {
            return;
        }
        self.total += lost;
        let share = lost.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
        for (average, window) in self.percent.iter_mut().zip(WINDOWS_S) {
            let kept = (-elapsed.as_secs_f64() / window).exp();
            *average = *average * kept + share * (1.0 - kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn full_is_what_work_leaves_of_some() {
        let spell = |waited, worked| Spell {
            elapsed: ms(1000),
            waited: ms(waited),
            faults: 0,
            worked: ms(worked),
        };
        assert_eq!(spell(800, 200).lost(), (ms(800), ms(800)), "one thread");
        assert_eq!(spell(1000, 1000).lost(), (ms(1000), ms(0)), "another works");
        assert_eq!(spell(300, 0).lost(), (ms(300), ms(300)), "it slept too");
        assert_eq!(spell(900, 5000).lost(), (ms(900), ms(0)));
        assert_eq!(
            spell(3000, 0).lost(),
            (ms(1000), ms(1000)),
            "not more than there was"
        );
        let quick = Spell {
            faults: 100_000,
            ..spell(200, 400)
        };
        assert_eq!(
            quick.lost(),
            (ms(500), ms(500)),
            "what the pager does not see"
        );
    }

    #[test]
    fn averages_come_near_as_fast_as_the_kernels() {
        let mut averages = Averages::default();
        for _ in 0..5 {
            averages.add(ms(2000), ms(2000));
        }
        // 1 - 1/e after as long as the window, 1 - e^(-1/6), 1 - e^(-1/30).
        for (average, expected) in averages.percent.iter().zip([63.21, 15.35, 3.28]) {
            assert!((average - expected).abs() < 0.01, "{averages:?}");
        }
        assert_eq!(averages.total, ms(10_000));
        let mut fine = Averages::default();
        for _ in 0..20 {
            fine.add(ms(500), ms(500));
        }
        for (one, other) in averages.percent.iter().zip(fine.percent) {
            assert!(
                (one - other).abs() < 1e-9,
                "the length of spells does not matter"
            );
        }
        averages.add(ms(3_600_000), ms(0));
        assert!(averages.percent.iter().all(|average| *average < 0.01));
        averages.add(Duration::ZERO, ms(0));
        assert!(averages.percent.iter().all(|average| average.is_finite()));
    }
}
