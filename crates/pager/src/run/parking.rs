//! Whether a run is parked, and on the way to that.
//!
//! While a run is *held*, faults of its threads wait, so that what has moved out stays out: each thread goes to sleep
//! at its next touch of such memory. Then the run is *parked*: the faults that waited are forgotten, and the processes
//! are stopped. From then on faults are served as ever, should somebody continue a process that does not know of this.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const AWAKE: u8 = 0;
const HELD: u8 = 1;
const PARKED: u8 = 2;

/// How far a run is parked.
#[derive(Debug, Default)]
pub struct Parking {
    phase: AtomicU8,
    /// The clock of the working set when the run was held last: what has left since was in memory then.
    since: AtomicU64,
}

impl Parking {
    /// Hold the run, at this time of the clock of the working set. False if it is held or parked already.
    pub fn hold(&self, pages_gone: u64) -> bool {
        let order = Ordering::SeqCst;
        let was = self.phase.compare_exchange(AWAKE, HELD, order, order);
        if was.is_ok() {
            self.since.store(pages_gone, Ordering::Relaxed);
        }
        was.is_ok()
    }

    /// Its processes are about to be stopped. False if it is not held.
    pub fn park(&self) -> bool {
        let order = Ordering::SeqCst;
        let was = self.phase.compare_exchange(HELD, PARKED, order, order);
        was.is_ok()
    }

    /// It goes on. False if it was awake.
    pub fn wake(&self) -> bool {
        self.phase.swap(AWAKE, Ordering::SeqCst) != AWAKE
    }

    /// Do faults wait?
    pub fn is_holding(&self) -> bool {
        self.phase.load(Ordering::Acquire) == HELD
    }

    /// Are its processes stopped, or about to be?
    pub fn is_parked(&self) -> bool {
        self.phase.load(Ordering::Acquire) == PARKED
    }

    /// Does it go on as ever?
    pub fn is_awake(&self) -> bool {
        self.phase.load(Ordering::Acquire) == AWAKE
    }

    /// The clock of the working set when the run was held last.
    pub fn since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_held_before_it_is_parked_and_can_be_woken_from_both() {
        let parking = Parking::default();
        assert!(parking.is_awake() && !parking.wake() && !parking.park());
        assert!(parking.hold(7) && parking.is_holding() && !parking.is_awake());
        assert!(!parking.hold(8), "by one at a time");
        assert!(parking.park() && parking.is_parked() && !parking.is_holding());
        assert!(!parking.hold(9) && !parking.park());
        assert_eq!(parking.since(), 7);
        assert!(parking.wake() && parking.is_awake() && !parking.wake());
        assert!(parking.hold(9) && parking.wake() && parking.is_awake());
        assert_eq!(parking.since(), 9);
    }
}
