//! What a run loses to paging: the times that faults wait, gathered into averages (`policy/pressure.rs`) by whoever
//! looks. The lock is innermost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::base::lock::{Mutex, Row};
use crate::policy::pressure::{Averages, Spell};
use crate::space::wait::Waits;

/// Looks closer together than this are one: CPU time has a grain of ten milliseconds.
const SPELL_LEAST: Duration = Duration::from_millis(100);
/// A run thrashes when it lost more than this of the last ten seconds with nothing else to do, in hundredths.
pub const THRASHING_PERCENT: f64 = 50.0;

/// What a run has lost.
#[derive(Debug)]
pub struct Pressure {
    /// Which threads wait.
    pub waits: Arc<Waits>,
    seen: Mutex<Seen>,
}

/// As of the last look.
#[derive(Debug)]
struct Seen {
    at: Instant,
    clock: u64,
    faults: u64,
    worked: Duration,
    some: Averages,
    full: Averages,
}

/// A share of the time for people: averages in hundredths, and seconds in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    /// Of the last ten seconds.
    pub avg10: f64,
    /// Of the last minute.
    pub avg60: f64,
    /// Of the last five minutes.
    pub avg300: f64,
    /// Since the start.
    pub total_seconds: f64,
}

/// Shares of the time that a run lost to paging.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// At least one thread waited.
    pub some: Share,
    /// One waited, and none worked.
    pub full: Share,
}

impl Default for Pressure {
    fn default() -> Pressure {
        let seen = Seen {
            at: Instant::now(),
            clock: 0,
            faults: 0,
            worked: Duration::ZERO,
            some: Averages::default(),
            full: Averages::default(),
        };
        Pressure {
            waits: Arc::default(),
            seen: Mutex::new(Row::Innermost, "what paging has cost", seen),
        }
    }
}

impl Pressure {
    /// Look, with the run's faults so far and the CPU time of its processes so far. What a process that has just ended
    /// had is missing for a moment: CPU time never goes back.
    pub fn look(&self, faults: u64, worked: Duration) {
        let mut seen = self.seen.lock();
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(seen.at);
        if elapsed < SPELL_LEAST {
            return;
        }
        let clock = self.waits.clock(now);
        let spell = Spell {
            elapsed,
            waited: Waits::between(seen.clock, clock),
            faults: faults.saturating_sub(seen.faults),
            worked: worked.saturating_sub(seen.worked),
        };
        let (some, full) = spell.lost();
        seen.some.add(elapsed, some);
        seen.full.add(elapsed, full);
        seen.worked = seen.worked.max(worked);
        (seen.at, seen.clock, seen.faults) = (now, clock, faults);
    }

    /// As of the last look.
    pub fn lost(&self) -> Lost {
        let seen = self.seen.lock();
        Lost {
            some: Share::of(&seen.some),
            full: Share::of(&seen.full),
        }
    }
}

impl Lost {
    /// Did the run do next to nothing but wait lately?
    pub fn is_thrashing(&self) -> bool {
        self.full.avg10 > THRASHING_PERCENT
    }
}

impl Share {
    fn of(averages: &Averages) -> Share {
        let [avg10, avg60, avg300] = averages.percent.map(hundredths);
        Share {
            avg10,
            avg60,
            avg300,
            total_seconds: hundredths(averages.total.as_secs_f64()),
        }
    }
}

/// Two digits behind the point, as the kernel shows them.
fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
