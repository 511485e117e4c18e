//! What a run may use, which may change while it runs, and the marks that follow from it.
//!
//! A higher limit holds at once. A lower one is approached: what holds stays so little above what is used that pages
//! move out, and so much that faults are served meanwhile. So a program is never stopped by a new limit, and one that
//! nothing has room for is approached as far as it goes. On the way faults take a part of what moves out
//! (`Limit::gave_pages`): all of it, and a busy program would stay where it is. Atomics; the governor approaches,
//! anybody may set and look.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::policy::follow::RamRange;

/// Eviction begins when less than one part in this many of the limit is free, the low watermark, and frees a quarter
/// more: what is free beyond that is missing as resident memory, and long spells of eviction hold faults up.
const WATERMARK_PART: u64 = 16;
/// Watermark bounds: below 2 MiB a fresh mapping outgrows it before it is seen, above 16 MiB memory lies idle.
const WATERMARK_BYTES: (u64, u64) = (2 << 20, 16 << 20);
/// Registering begins when less than one part in this many of the limit is free, within bounds, and half as much again
/// for each further process that can grow at the same time: a program fills fresh, unwatched memory at 1 to 3 GB/s, so
/// 20 MiB are some 7 to 20 ms, the delay of a busy machine.
const ACTIVATE_PART: u64 = 5;
const ACTIVATE_BYTES: (u64, u64) = (20 << 20, 64 << 20);
/// Fastest growth that sampling reckons with, bytes a millisecond (a program that fills huge pages).
const GROWTH_BYTES_PER_MS: u64 = 6 << 20;
/// Shortest and longest pause between samples.
const SAMPLE_MS: (u64, u64) = (1, 50);
/// While a lower limit is approached this many eighths of the watermark are left free: less than all, so that pages
/// move out, and more than the six from which on faults wait.
const APPROACH_EIGHTHS: u64 = 7;

/// The limit of a run. Its clones are the same one.
#[derive(Debug, Clone)]
pub struct Bounds(Arc<Values>);

#[derive(Debug)]
struct Values {
    /// What holds.
    limit_bytes: AtomicU64,
    /// What shall hold: the same, or less.
    wanted_bytes: AtomicU64,
    /// What the user has said: in between the machine's pressure decides.
    least_bytes: AtomicU64,
    most_bytes: AtomicU64,
    /// The most that has held.
    highest_bytes: AtomicU64,
}

impl Bounds {
    /// A run that may use as much as `range` says, and begins with the most of it.
    pub fn new(range: RamRange) -> Bounds {
        Bounds(Arc::new(Values {
            limit_bytes: AtomicU64::new(range.most_bytes),
            wanted_bytes: AtomicU64::new(range.most_bytes),
            least_bytes: AtomicU64::new(range.least_bytes),
            most_bytes: AtomicU64::new(range.most_bytes),
            highest_bytes: AtomicU64::new(range.most_bytes),
        }))
    }

    /// What the run may use.
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes.load(Ordering::Relaxed)
    }

    /// What it was told to use at the most: where that is less, it is being approached.
    pub fn wanted_bytes(&self) -> u64 {
        self.0.wanted_bytes.load(Ordering::Relaxed)
    }

    /// Is a lower limit approached?
    pub fn is_approaching(&self) -> bool {
        self.limit_bytes() > self.wanted_bytes()
    }

    /// The most that it was ever allowed.
    pub fn highest_bytes(&self) -> u64 {
        self.0.highest_bytes.load(Ordering::Relaxed)
    }

    /// What the user has said.
    pub fn range(&self) -> RamRange {
        RamRange {
            least_bytes: self.0.least_bytes.load(Ordering::Relaxed),
            most_bytes: self.0.most_bytes.load(Ordering::Relaxed),
        }
    }

    /// The user says something else. Where that leaves a choice, what is wanted stays as near as may be.
    pub fn set(&self, range: RamRange) {
        let values = &self.0;
        values
            .least_bytes
            .store(range.least_bytes, Ordering::Relaxed);
        values.most_bytes.store(range.most_bytes, Ordering::Relaxed);
        let wanted = range.clamp(self.wanted_bytes());
        values.wanted_bytes.store(wanted, Ordering::Relaxed);
        self.raise(wanted);
    }

    /// Have another limit in place of the `wanted` one, unless the user has said something else meanwhile.
    pub fn follow(&self, wanted: u64, other: u64) {
        let swapped = self.0.wanted_bytes.compare_exchange(
            wanted,
            other,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if swapped.is_ok() {
            self.raise(other);
        }
    }

    /// The next sample would do it too; a program that waits for memory shall not.
    fn raise(&self, limit_bytes: u64) {
        let values = &self.0;
        values.limit_bytes.fetch_max(limit_bytes, Ordering::Relaxed);
        values
            .highest_bytes
            .fetch_max(limit_bytes, Ordering::Relaxed);
    }

    /// With `used_bytes` in use: come as near as may be to what is wanted.
    pub fn approach(&self, used_bytes: u64) {
        let (holds, wanted) = (self.limit_bytes(), self.wanted_bytes());
        if holds != wanted {
            let next = next(holds, wanted, used_bytes, self.watermark_bytes());
            self.0.limit_bytes.store(next, Ordering::Relaxed);
        }
    }

    /// Eviction begins when less than this is free.
    pub fn watermark_bytes(&self) -> u64 {
        (self.limit_bytes() / WATERMARK_PART).clamp(WATERMARK_BYTES.0, WATERMARK_BYTES.1)
    }

    /// What a fork waits for, of what faults may take. While nothing is to be moved out there is a quarter of the
    /// watermark at the least, so that a fork waits only where that will change.
    pub fn fork_room_bytes(&self) -> u64 {
        self.watermark_bytes() / 8
    }

    /// Registering begins when less than this is free and `growing` processes may grow at the same time.
    pub fn activate_bytes(&self, growing: u64) -> u64 {
        let limit_bytes = self.limit_bytes();
        let one = (limit_bytes / ACTIVATE_PART).clamp(ACTIVATE_BYTES.0, ACTIVATE_BYTES.1);
        let further = one / 2 * growing.saturating_sub(1);
        (one + further).min(limit_bytes / 2)
    }

    /// Pause until the next sample: what the fastest growth of `growing` processes needs to use up half of what is
    /// free.
    pub fn pause(&self, total: u64, growing: u64) -> Duration {
        let reserve = self.activate_bytes(growing);
        let free = self.limit_bytes().saturating_sub(total + reserve);
        let growth = GROWTH_BYTES_PER_MS * growing.max(1);
        let ms = (free / 2 / growth).clamp(SAMPLE_MS.0, SAMPLE_MS.1);
        Duration::from_millis(ms)
    }
}

/// The limit on the way from the one that `holds` to the `wanted` one.
fn next(holds: u64, wanted: u64, used_bytes: u64, watermark_bytes: u64) -> u64 {
    let room = watermark_bytes / 8 * APPROACH_EIGHTHS;
    (used_bytes + room).min(holds).max(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_higher_limit_holds_at_once_and_a_lower_one_follows_what_is_used() {
        let bounds = Bounds::new(RamRange::fixed(64 * MIB));
        let set = |mib: u64| bounds.set(RamRange::fixed(mib * MIB));
        set(512);
        assert_eq!(bounds.limit_bytes(), 512 * MIB);
        assert_eq!(bounds.watermark_bytes(), 16 * MIB);
        set(128);
        assert_eq!(bounds.limit_bytes(), 512 * MIB, "nobody has looked yet");
        bounds.approach(400 * MIB);
        assert_eq!(bounds.limit_bytes(), 414 * MIB);
        bounds.approach(450 * MIB);
        assert_eq!(bounds.limit_bytes(), 414 * MIB, "never up again");
        bounds.approach(20 * MIB);
        assert_eq!(bounds.limit_bytes(), 128 * MIB);
        assert_eq!(bounds.watermark_bytes(), 8 * MIB);
        assert_eq!(bounds.highest_bytes(), 512 * MIB);
        set(256);
        assert_eq!(
            (bounds.limit_bytes(), bounds.wanted_bytes()),
            (256 * MIB, 256 * MIB)
        );
    }

    #[test]
    fn no_fork_waits_for_more_than_eviction_leaves() {
        for mib in [16, 32, 48, 256, 512, 1 << 10, 16 << 10, 1 << 20] {
            let bounds = Bounds::new(RamRange::fixed(mib * MIB));
            // As `Limit::settle` reckons it, when so much is free that eviction does not begin.
            let watermark = bounds.watermark_bytes();
            let left = watermark - watermark / 4 * 3;
            assert!(bounds.fork_room_bytes() < left, "{mib} MiB");
        }
    }

    #[test]
    fn what_follows_the_machine_gives_way_to_the_user() {
        let bounds = Bounds::new(RamRange {
            least_bytes: 64 * MIB,
            most_bytes: 512 * MIB,
        });
        bounds.follow(512 * MIB, 256 * MIB);
        assert_eq!(bounds.wanted_bytes(), 256 * MIB);
        let wider = RamRange {
            least_bytes: 128 * MIB,
            most_bytes: 1024 * MIB,
        };
        bounds.set(wider);
        assert_eq!(bounds.wanted_bytes(), 256 * MIB, "it is in there");
        bounds.set(RamRange::fixed(32 * MIB));
        bounds.follow(256 * MIB, 300 * MIB);
        assert_eq!(
            bounds.wanted_bytes(),
            32 * MIB,
            "decided before the user spoke"
        );
    }

    #[test]
    fn on_the_way_down_pages_leave_and_faults_go_on() {
        for (holds, used) in [(512, 500), (512, 600), (100, 90)] {
            let watermark = 8 * MIB;
            let next = next(holds * MIB, 64 * MIB, used * MIB, watermark);
            let free = next.saturating_sub(used * MIB);
            assert!(free < watermark, "pages leave below the watermark");
            assert!(next < 512 * MIB || used > 500, "{next}");
        }
        let next = next(512 * MIB, 64 * MIB, 300 * MIB, 8 * MIB);
        assert!(next - 300 * MIB > 6 * MIB, "faults wait below six eighths");
    }
}
