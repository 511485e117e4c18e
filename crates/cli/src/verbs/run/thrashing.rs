//! When it is said that a program spends more time paging than working. Pure.

use std::time::{Duration, Instant};

/// How long it has to be so: a program that fills its memory, or goes on to other data, pages for a while.
const PATIENCE: Duration = Duration::from_secs(10);
/// It is not said again before so long.
const SAID_EVERY: Duration = Duration::from_secs(300);

/// What is known of it.
#[derive(Debug, Default)]
pub struct Thrashing {
    since: Option<Instant>,
    said: Option<Instant>,
}

impl Thrashing {
    /// It is so or not at this moment. True if it is to be said now.
    pub fn note(&mut self, is_thrashing: bool, now: Instant) -> bool {
        if !is_thrashing {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_due = |said: Instant| now.duration_since(said) >= SAID_EVERY;
        let says = now.duration_since(since) >= PATIENCE && self.said.is_none_or(is_due);
        if says {
            self.said = Some(now);
        }
        says
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_when_it_lasts_and_seldom_again() {
        let start = Instant::now();
        let mut thrashing = Thrashing::default();
        let mut said = |seconds: u64, is_thrashing: bool| {
            thrashing.note(is_thrashing, start + Duration::from_secs(seconds))
        };
        assert!(!said(0, true) && !said(9, true));
        assert!(!said(10, false) && !said(11, true) && !said(20, true));
        assert!(said(21, true));
        assert!(!said(22, true) && !said(320, true));
        assert!(said(321, true));
    }
}
