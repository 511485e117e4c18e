//! A run in which everything is full while its program waits: what is said, how long it may wait, how it is ended.
//!
//! Time is counted in looks at the run, a tick each, and not by a clock: a run that was stopped for a night has not
//! waited. Used by the thread that takes signals.

use std::time::{Duration, Instant};

use vswap_pager::Status;

use crate::args::on_full::OnFull;
use crate::host::Host;
use crate::output::figures::bytes;
use crate::output::{error, warning};

/// How long a run that is ended may take after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// A program that is told to end counts as waiting for memory for so long after it was seen to wait: what it may take
/// for its end lets it run for a moment.
const FRESH: Duration = Duration::from_secs(30);

/// What is to be done to the processes of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    Nothing,
    /// SIGTERM to all.
    Terminate,
    /// SIGKILL to all.
    Kill,
}

/// What is known of the wait, if there is one.
#[derive(Debug)]
pub struct Full {
    on_full: OnFull,
    tick: Duration,
    noticed: bool,
    /// How long the wait has lasted.
    waited: Duration,
    seen: Option<Instant>,
    /// The program was told to end during the wait, by somebody.
    told: Option<Instant>,
    told_noticed: bool,
    /// How long ago the run was told to end because of the wait.
    ending: Option<Duration>,
}

impl Full {
    /// Looked at every `tick`.
    pub fn new(on_full: OnFull, tick: Duration) -> Full {
        Full {
            on_full,
            tick,
            noticed: false,
            waited: Duration::ZERO,
            seen: None,
            told: None,
            told_noticed: false,
            ending: None,
        }
    }

    /// Was the run ended because of the wait?
    pub fn has_ended_run(&self) -> bool {
        self.ending.is_some()
    }

    /// Another tick has passed. `host` is for what people are told to do.
    pub fn look(&mut self, status: &Status, host: &Host) -> Measure {
        if status.stalled {
            self.seen = Some(Instant::now());
            if !self.noticed {
                // Also with --quiet: a program that stands still without a word is worse than a line too many.
                warning(&self.advice(status, host.areas_pid()));
            } else if !self.told_noticed && self.told.is_some_and(|told| told.elapsed() > self.tick)
            {
                self.told_noticed = true;
                warning(
                    "the program was told to end and still waits for memory: a second signal ends it for good",
                );
            }
        }
        self.noticed = status.stalled;
        let measure = self.count(status.stalled);
        if measure == Measure::Terminate {
            error(&format!(
                "the program has waited {} s for memory and none came: the run is ended (--on-full); it has needed {} \
                 so far, and has --ram {}",
                self.waited.as_secs(),
                bytes(status.peak_needed_bytes),
                bytes(status.limit_bytes)
            ));
        }
        measure
    }

    fn count(&mut self, waits: bool) -> Measure {
        if let Some(since) = &mut self.ending {
            *since += self.tick;
            return if *since >= GRACE {
                Measure::Kill
            } else {
                Measure::Nothing
            };
        }
        if !waits {
            self.waited = Duration::ZERO;
            return Measure::Nothing;
        }
        let is_over = |patience| self.waited >= patience;
        if self.on_full.patience().is_some_and(is_over) {
            self.ending = Some(Duration::ZERO);
            return Measure::Terminate;
        }
        self.waited += self.tick;
        Measure::Nothing
    }

    /// The program is told to end, by a signal of somebody's. The second time in a wait ends it for good.
    pub fn told_to_end(&mut self) -> Measure {
        if self.seen.is_none_or(|seen| seen.elapsed() > FRESH) {
            self.told = None;
            return Measure::Nothing;
        }
        match self.told.replace(Instant::now()) {
            None => Measure::Nothing,
            Some(_) => Measure::Kill,
        }
    }

    fn advice(&self, status: &Status, areas_pid: u32) -> String {
        let then = match self.on_full.patience() {
            None => "the program waits until some of it is freed (--on-full wait)".to_owned(),
            Some(patience) => format!(
                "the program waits until some of it is freed, and is ended in {} s (--on-full)",
                patience.as_secs()
            ),
        };
        if status.stalled_by_group {
            return format!(
                "the limits of the run's group are full and leave no room: {then}; `vswap status --groups` says which \
                 limit it is, and `vswap set --group` changes it"
            );
        }
        format!(
            "the memory allowed is full and nothing more can be stored: {then}; give it room now with `vswap swapon \
             --run {areas_pid} DIR:SIZE`, DIR being on a disk; or run it with more --ram"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(1);

    fn full(on_full: OnFull) -> Full {
        Full::new(on_full, TICK)
    }

    #[test]
    fn a_wait_that_is_too_long_ends_the_run_politely_first() {
        let mut full = full(OnFull::Kill(TICK * 3));
        let measures: Vec<Measure> = (0..15).map(|_| full.count(true)).collect();
        assert_eq!(measures[..3], [Measure::Nothing; 3]);
        assert_eq!(measures[3], Measure::Terminate);
        assert_eq!(measures[4..13], [Measure::Nothing; 9]);
        assert_eq!(measures[13..], [Measure::Kill; 2]);
        assert!(full.has_ended_run());
    }

    #[test]
    fn waits_do_not_add_up_and_an_end_is_not_taken_back() {
        let mut full = full(OnFull::Fail(TICK * 3));
        for waits in [true, true, true, false, true, true, true] {
            assert_eq!(full.count(waits), Measure::Nothing);
        }
        assert_eq!(full.count(true), Measure::Terminate);
        let last = (0..10).map(|_| full.count(false)).last();
        assert_eq!(last, Some(Measure::Kill));
    }

    #[test]
    fn who_is_to_wait_waits() {
        let mut full = full(OnFull::Wait);
        assert!((0..10_000).all(|_| full.count(true) == Measure::Nothing));
        assert!(!full.has_ended_run());
    }

    #[test]
    fn the_second_signal_ends_a_wait_and_nothing_else() {
        let mut full = full(OnFull::Wait);
        for _ in 0..3 {
            assert_eq!(full.told_to_end(), Measure::Nothing, "it does not wait");
        }
        full.seen = Some(Instant::now());
        assert_eq!(full.told_to_end(), Measure::Nothing);
        assert_eq!(full.told_to_end(), Measure::Kill);
    }
}
