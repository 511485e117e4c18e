//! How much memory a run takes that may take more or less: what the machine has to spare.
//!
//! Under pressure the limit goes down from what is used, a step at each reading, so that the first step frees memory
//! already. It goes up again after a while without any, and never into the last of what is free. In between it stays:
//! marks apart and patience keep it from going up and down. Pressure is the kernel's own figure (PSI) where there is
//! one, and else how little is free. Pure.

use serde::{Deserialize, Serialize};

/// Memory is tight when somebody waited for it this share of the time ...
const STALL_TIGHT: f64 = 0.10;
/// ... and there is enough of it below this share.
const STALL_CALM: f64 = 0.01;
/// Less than one part in this many available is tight where the kernel does not say who waits, and is never taken ...
const FREE_TIGHT_PART: u64 = 16;
/// ... and more than one part in this many is enough.
const FREE_CALM_PART: u64 = 8;
/// Readings in a row with enough memory before more is taken.
const PATIENCE_READINGS: u32 = 10;
/// A step down is one part in this many of what is used, one up of the limit, but at least so much.
const STEP_PART: u64 = 16;
const STEP_UP_BYTES_LEAST: u64 = 16 << 20;

/// What the user has said a run may use: at least, and at the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RamRange {
    /// However tight memory is.
    pub least_bytes: u64,
    /// However much of it is free.
    pub most_bytes: u64,
}

impl RamRange {
    /// So much, and no less.
    pub fn fixed(bytes: u64) -> RamRange {
        RamRange {
            least_bytes: bytes,
            most_bytes: bytes,
        }
    }

    /// Is there nothing to decide?
    pub fn is_fixed(&self) -> bool {
        self.least_bytes >= self.most_bytes
    }

    /// What is nearest to `bytes`.
    pub fn clamp(&self, bytes: u64) -> u64 {
        bytes.min(self.most_bytes).max(self.least_bytes)
    }
}

/// One look at the machine, or at what of it the run may use.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Share of the time since the last look in which somebody waited for memory, where the kernel says so.
    pub stalled: Option<f64>,
    /// Memory that could be had without swapping.
    pub available_bytes: u64,
    /// All of it.
    pub whole_bytes: u64,
}

/// What is remembered from reading to reading.
#[derive(Debug, Default)]
pub struct Follower {
    /// Readings in a row with enough memory.
    calm: u32,
}

impl Follower {
    /// The limit after a reading, of a run with the limit `holds` that uses `used_bytes`.
    pub fn next(&mut self, reading: &Reading, range: RamRange, holds: u64, used_bytes: u64) -> u64 {
        let reserve = reading.whole_bytes / FREE_TIGHT_PART;
        let spare = reading.available_bytes.saturating_sub(reserve);
        let (tight, calm) = match reading.stalled {
            Some(share) => (share >= STALL_TIGHT, share < STALL_CALM && spare > 0),
            None => (
                spare == 0,
                reading.available_bytes > reading.whole_bytes / FREE_CALM_PART,
            ),
        };
        self.calm = if calm { self.calm + 1 } else { 0 };
        let next = if tight {
            holds.min(used_bytes) - used_bytes.min(holds) / STEP_PART
        } else if self.calm > PATIENCE_READINGS {
            holds + (holds / STEP_PART).max(STEP_UP_BYTES_LEAST).min(spare)
        } else {
            holds
        };
        range.clamp(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const RANGE: RamRange = RamRange {
        least_bytes: 256 * MIB,
        most_bytes: 1024 * MIB,
    };

    fn reading(stalled: Option<f64>, available_mib: u64) -> Reading {
        Reading {
            stalled,
            available_bytes: available_mib * MIB,
            whole_bytes: 4096 * MIB,
        }
    }

    /// The limit after so many readings, of a run that uses all of it.
    fn after(follower: &mut Follower, readings: u32, reading: &Reading, mut holds: u64) -> u64 {
        for _ in 0..readings {
            holds = follower.next(reading, RANGE, holds, holds);
        }
        holds
    }

    #[test]
    fn under_pressure_it_goes_down_from_what_is_used_to_the_least() {
        let mut follower = Follower::default();
        let tight = reading(Some(0.2), 100);
        let first = follower.next(&tight, RANGE, 1024 * MIB, 512 * MIB);
        assert_eq!(first, 480 * MIB);
        assert_eq!(after(&mut follower, 30, &tight, first), 256 * MIB);
    }

    #[test]
    fn without_pressure_it_goes_up_after_a_while_and_a_single_stall_begins_that_again() {
        let mut follower = Follower::default();
        let calm = reading(Some(0.0), 3000);
        let holds = after(&mut follower, PATIENCE_READINGS, &calm, 512 * MIB);
        assert_eq!(holds, 512 * MIB, "not yet");
        let holds = after(&mut follower, 1, &calm, holds);
        assert_eq!(holds, 544 * MIB);
        let between = reading(Some(0.05), 3000);
        let holds = after(&mut follower, 50, &between, holds);
        assert_eq!(holds, 544 * MIB, "neither tight nor enough");
        assert_eq!(after(&mut follower, 10, &calm, holds), 544 * MIB);
        assert_eq!(after(&mut follower, 50, &calm, holds), 1024 * MIB);
    }

    #[test]
    fn the_last_of_what_is_free_is_never_taken() {
        let mut follower = Follower::default();
        let little = reading(Some(0.0), 256 + 4);
        let holds = after(&mut follower, PATIENCE_READINGS + 1, &little, 512 * MIB);
        assert_eq!(holds, 516 * MIB);
        let none = reading(Some(0.0), 256);
        assert_eq!(after(&mut follower, 50, &none, holds), 516 * MIB);
    }

    #[test]
    fn where_nobody_says_who_waits_free_memory_decides() {
        let mut follower = Follower::default();
        let holds = after(&mut follower, 1, &reading(None, 255), 512 * MIB);
        assert_eq!(holds, 480 * MIB);
        assert_eq!(
            after(&mut follower, 50, &reading(None, 400), holds),
            480 * MIB
        );
        assert_eq!(
            after(&mut follower, 50, &reading(None, 600), holds),
            1024 * MIB
        );
    }
}
