//! That a thread of the run waits for a page: a part of its fault, so that none is forgotten, however the fault ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::base::kernel::clock;

/// Low bits of the word: nanoseconds, which come round after 18 minutes. Above them is how many wait: more than there
/// can be threads.
const TIME_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const ONE: u64 = 1 << TIME_BITS;

/// For how long at least one thread has waited. One word: how many wait, and the time less the beginning of the spell
/// that is under way. So both change at once, and nobody waits for anybody.
#[derive(Debug)]
pub struct Waits {
    epoch: Instant,
    word: AtomicU64,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits {
            epoch: Instant::now(),
            word: AtomicU64::new(0),
        }
    }
}

impl Waits {
    /// A clock of the time in which somebody waited. It comes round: only differences count, see [`Waits::between`].
    pub fn clock(&self, now: Instant) -> u64 {
        let word = self.word.load(Ordering::Relaxed);
        let running = if word >= ONE {
            self.since_epoch(now)
        } else {
            0
        };
        word.wrapping_add(running) & TIME_MASK
    }

    /// How long somebody waited between two looks at the clock.
    pub fn between(before: u64, after: u64) -> Duration {
        Duration::from_nanos(after.wrapping_sub(before) & TIME_MASK)
    }

    fn begin(&self, at: Instant) {
        let at = self.since_epoch(at);
        self.change(|word| {
            let time = if word < ONE {
                word.wrapping_sub(at)
            } else {
                word
            };
            (word & !TIME_MASK).wrapping_add(ONE) | (time & TIME_MASK)
        });
    }

    fn end(&self, at: Instant) {
        let at = self.since_epoch(at);
        self.change(|word| {
            let is_last = word < 2 * ONE;
            let time = if is_last { word.wrapping_add(at) } else { word };
            (word & !TIME_MASK).wrapping_sub(ONE) | (time & TIME_MASK)
        });
    }

    fn change(&self, change: impl Fn(u64) -> u64) {
        let relaxed = Ordering::Relaxed;
        // It always changes.
        let _ = self
            .word
            .fetch_update(relaxed, relaxed, |word| Some(change(word)));
    }

    fn since_epoch(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.epoch);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A thread waits as long as this is there.
#[derive(Debug, Default)]
pub struct Wait(Option<Arc<Waits>>);

impl Wait {
    /// It waits since then.
    pub fn since(waits: &Arc<Waits>, at: Instant) -> Wait {
        waits.begin(at);
        Wait(Some(Arc::clone(waits)))
    }

    /// Nobody waits.
    pub fn nobody() -> Wait {
        Wait(None)
    }
}

impl Clone for Wait {
    fn clone(&self) -> Wait {
        self.0
            .as_ref()
            .map_or_else(Wait::nobody, |waits| Wait::since(waits, clock::now()))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(waits) = &self.0 {
            waits.end(clock::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_once_however_many_wait() {
        let waits = Waits::default();
        let at = |ms| waits.epoch + Duration::from_millis(ms);
        let clock = |ms| waits.clock(at(ms));
        let begin = clock(0);
        waits.begin(at(10));
        waits.begin(at(15));
        assert_eq!(Waits::between(begin, clock(20)), Duration::from_millis(10));
        waits.end(at(30));
        waits.end(at(40));
        assert_eq!(Waits::between(begin, clock(90)), Duration::from_millis(30));
        waits.begin(at(100));
        assert_eq!(Waits::between(begin, clock(101)), Duration::from_millis(31));
        waits.end(at(150));
        assert_eq!(Waits::between(begin, clock(999)), Duration::from_millis(80));
    }

    #[test]
    fn the_clock_comes_round() {
        let waits = Waits::default();
        let at = |s| waits.epoch + Duration::from_secs(s);
        let begin = waits.clock(at(5000));
        waits.begin(at(5000));
        assert_eq!(
            Waits::between(begin, waits.clock(at(5600))),
            Duration::from_secs(600)
        );
        let middle = waits.clock(at(5600));
        waits.end(at(6200));
        assert_eq!(
            Waits::between(middle, waits.clock(at(9000))),
            Duration::from_secs(600)
        );
    }

    #[test]
    fn threads_that_wait_at_the_same_time_leave_nothing_behind() {
        let waits = Arc::new(Waits::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let wait = Wait::since(&waits, clock::now());
                        drop((wait.clone(), wait));
                    }
                });
            }
        });
        assert!(waits.word.load(Ordering::Relaxed) < ONE, "somebody waits");
        let now = Instant::now();
        let waited = Waits::between(0, waits.clock(now));
        // A thread may say late since when it waits. Then that time is counted twice, but never more often than there
        // are threads.
        assert!(waited <= (now - waits.epoch) * 4, "{waited:?}");
    }
}
