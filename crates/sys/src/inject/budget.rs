//! What a stopped thread may take to do what it is told, before it is given up.
//!
//! The thread belongs to a program that may not want it to end: its other threads can put memory that it needs under a
//! userfaultfd that nobody serves, change the code that it runs, or have it stopped again and again. Whoever traces it
//! looks after the other processes of the run as well.
//!
//! Time in which it is ready to run and gets no processor is not its fault, and counts little.

use std::time::{Duration, Instant};

use crate::process::procfs;

/// How long it may sleep in all. What it does are a few mappings, the start of a thread and a question to vswap. It
/// sleeps where memory comes from a disk, where a lock is held, and until vswap answers, which itself may wait for a
/// processor.
const ASLEEP_MAX: Duration = Duration::from_secs(15);
/// How much CPU time it may use. It needs less than a millisecond.
const CPU_MAX: Duration = Duration::from_secs(2);
/// How often it may be stopped by signals. Only SIGSTOP is not blocked meanwhile.
const SIGNALS_MAX: u32 = 1000;
/// The whole of it, on a machine that is busy with other things.
const WHOLE_MAX: Duration = Duration::from_secs(60);
/// How often it is looked what it does. A look takes a file of /proc.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Most time that one look counts: this process may have been stopped meanwhile, and not the other one, or may have had
/// nothing for it to do.
const LOOK_MAX: Duration = Duration::from_millis(50);

/// What one thread has taken since it was stopped.
#[derive(Debug)]
pub(super) struct Budget {
    tid: u32,
    looked: Instant,
    whole: Duration,
    asleep: Duration,
    /// CPU time at the first look, in ticks of the kernel.
    ticks: Option<u64>,
    signals: u32,
}

impl Budget {
    /// For a thread that stands still now.
    pub(super) fn new(tid: i32) -> Budget {
        Budget {
            tid: tid.unsigned_abs(),
            looked: Instant::now(),
            whole: Duration::ZERO,
            asleep: Duration::ZERO,
            ticks: None,
            signals: 0,
        }
    }

    /// It has not finished yet. What has it had too much of?
    pub(super) fn look(&mut self) -> Option<&'static str> {
        let since = self.looked.elapsed();
        if since < LOOK_EVERY {
            return None;
        }
        self.looked = Instant::now();
        self.whole += since.min(LOOK_MAX);
        // One that has gone is seen elsewhere.
        let seen = procfs::thread_stat(self.tid, self.tid).ok();
        let excess = seen.and_then(|stat| self.note(stat.state, stat.cpu_ticks, since));
        excess.or_else(|| (self.whole > WHOLE_MAX).then_some("took more than a minute"))
    }

    /// Notes what a look has found after so long a time.
    fn note(&mut self, state: u8, ticks: u64, since: Duration) -> Option<&'static str> {
        if state != b'R' {
            self.asleep += since.min(LOOK_MAX);
        }
        let used = ticks.saturating_sub(*self.ticks.get_or_insert(ticks));
        if self.asleep > ASLEEP_MAX {
            return Some("slept for too long");
        }
        (procfs::duration_of_ticks(used) > CPU_MAX).then_some("used too much CPU time")
    }

    /// It was stopped by a signal. Was that too often?
    pub(super) fn note_signal(&mut self) -> Option<&'static str> {
        self.signals += 1;
        (self.signals > SIGNALS_MAX).then_some("was stopped too often by signals")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_and_computing_are_bounded_and_waiting_for_a_processor_is_not() {
        let tick = procfs::duration_of_ticks(1);
        let mut waits = Budget::new(1);
        for _ in 0..100_000 {
            assert_eq!(waits.note(b'R', 7, LOOK_EVERY), None);
        }
        let looks = |mut budget: Budget, state, used: u64| {
            let more = |look: &u64| budget.note(state, look * used, LOOK_EVERY).is_none();
            (0..100_000).take_while(more).count()
        };
        let asleep = ASLEEP_MAX.as_millis() / LOOK_EVERY.as_millis();
        assert_eq!(looks(Budget::new(1), b'S', 0) as u128, asleep);
        assert_eq!(looks(Budget::new(1), b'D', 0) as u128, asleep);
        let computing = CPU_MAX.as_millis() / tick.as_millis();
        assert_eq!(looks(Budget::new(1), b'R', 1) as u128, computing + 1);
    }

    #[test]
    fn signals_are_counted() {
        let mut budget = Budget::new(1);
        assert_eq!(
            (0..2 * SIGNALS_MAX)
                .filter(|_| budget.note_signal().is_none())
                .count(),
            1000
        );
    }

    #[test]
    fn a_pause_of_ours_is_not_its() {
        let mut budget = Budget::new(1);
        assert_eq!(budget.note(b'S', 0, Duration::from_secs(3600)), None);
        assert_eq!(budget.asleep, LOOK_MAX);
    }
}
