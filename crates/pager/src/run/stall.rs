//! Full: nothing more can be stored. Who waits because of it, for how long, and when to try again.
//!
//! Writers set and clear it by what becomes of their batches. While it lasts they try again less and less often, and at
//! once when something has been freed: a run that waits costs nothing. The locks are innermost.

use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::base::lock::{Mutex, Row};

/// That a program waits is news when it goes on waiting: near the limit it waits for moments.
const PATIENCE: Duration = Duration::from_secs(2);
/// A fault that waits can be overlooked for so long: whoever looks does not wait for locks.
const GAP: Duration = Duration::from_millis(200);
/// Shortest and longest pause before a full pool is tried again, if nobody says that something was freed.
const AGAIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(128));

/// Whether nothing more can be stored.
#[derive(Debug)]
pub struct Stall {
    full: AtomicBool,
    /// It was the limits of a group that a page met last.
    limited: AtomicBool,
    wait: Mutex<Wait>,
    /// Times that something was freed.
    freed: Mutex<u64>,
    has_freed: Condvar,
}

/// Faults that wait for memory while everything is full.
#[derive(Debug, Default)]
struct Wait {
    /// Since when, and when that was seen last.
    seen: Option<(Instant, Instant)>,
    /// All waits together.
    total: Duration,
}

impl Default for Stall {
    fn default() -> Stall {
        Stall {
            full: AtomicBool::new(false),
            limited: AtomicBool::new(false),
            wait: Mutex::new(
                Row::Innermost,
                "who waits while all is full",
                Wait::default(),
            ),
            freed: Mutex::new(Row::Innermost, "what was freed while all is full", 0),
            has_freed: Condvar::new(),
        }
    }
}

impl Stall {
    /// A page found no place to go to (or all did), perhaps because of its group's limits. True if it was full before
    /// and is not any more.
    pub fn note_full(&self, full: bool, limited: bool) -> bool {
        self.limited.store(limited, Ordering::Relaxed);
        let was_full = self.full.swap(full, Ordering::Relaxed);
        let has_ended = was_full && !full;
        if has_ended {
            self.wait.lock().seen = None;
            self.try_again();
        }
        has_ended
    }

    /// Is nothing more to be stored?
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Was it a group's limit?
    pub fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    /// Faults wait for memory at this moment, while everything is full.
    pub fn note_wait(&self) {
        self.wait.lock().note(Instant::now());
    }

    /// Has somebody waited for so long that the user should know?
    pub fn is_long(&self) -> bool {
        self.is_full() && self.wait.lock().is_long(Instant::now())
    }

    /// How long somebody has waited, in all.
    pub fn waited(&self) -> Duration {
        self.wait.lock().total
    }

    /// Something was freed, or an area has come: those who pause look again.
    pub fn try_again(&self) {
        *self.freed.lock() += 1;
        self.has_freed.notify_all();
    }

    /// Wait before the try that follows `tries` that failed, until something is freed at the longest.
    pub fn pause(&self, tries: u32) {
        let longest = AGAIN
            .0
            .saturating_mul(1 << tries.min(u32::BITS - 1))
            .min(AGAIN.1);
        let freed = self.freed.lock();
        let before = *freed;
        drop(freed.wait_timeout_while(&self.has_freed, longest, |freed| *freed == before));
    }
}

impl Wait {
    fn note(&mut self, now: Instant) {
        let since = match self.seen {
            Some((since, last)) if now.saturating_duration_since(last) <= GAP => {
                self.total += now.saturating_duration_since(last);
                since
            }
            _ => now,
        };
        self.seen = Some((since, now));
    }

    fn is_long(&self, now: Instant) -> bool {
        self.seen.is_some_and(|(since, last)| {
            now.saturating_duration_since(last) <= PATIENCE
                && last.saturating_duration_since(since) > PATIENCE
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_long_when_it_goes_on_and_short_ones_do_not_add_up() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut wait = Wait::default();
        for ms in (0..=2100).step_by(100) {
            assert!(!wait.is_long(at(ms)));
            wait.note(at(ms));
        }
        assert!(wait.is_long(at(2150)));
        assert_eq!(wait.total, Duration::from_millis(2100));
        assert!(!wait.is_long(at(9000)), "nobody waits any more");
        wait.note(at(9000));
        wait.note(at(9100));
        assert!(!wait.is_long(at(9100)));
        assert_eq!(wait.total, Duration::from_millis(2200));
    }

    #[test]
    fn what_is_stored_ends_it() {
        let stall = Stall::default();
        assert!(!stall.note_full(true, true));
        assert!(stall.is_full() && stall.is_limited());
        stall.note_wait();
        assert!(!stall.note_full(true, false));
        assert!(stall.note_full(false, false));
        assert!(!stall.is_full() && !stall.note_full(false, false));
        assert!(stall.wait.lock().seen.is_none());
    }
}
