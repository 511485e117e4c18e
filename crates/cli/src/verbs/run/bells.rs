//! What has come for a run that is parked until it is used: signals, and input at descriptors of its processes.
//!
//! What was there before the run was parked is not news, because the program had left it lying there. So more of the
//! same is not heard.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use vswap_sys::process::waiting;

/// How often it is listened. What comes waits for half of that on average.
const LISTEN_EVERY: Duration = Duration::from_millis(200);

/// What waits for one process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Waiting {
    signals: u64,
    readable: HashSet<i32>,
}

/// What was there before, and when to listen again.
#[derive(Debug)]
pub struct Bells {
    before: HashMap<u32, Waiting>,
    next: Instant,
}

impl Bells {
    /// Takes in what is there now for these processes.
    pub fn hang(pids: &[u32]) -> Bells {
        Bells {
            before: pids.iter().map(|&pid| (pid, Waiting::of(pid))).collect(),
            next: Instant::now(),
        }
    }

    /// When to listen again.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Has something come for one of these processes? Looks only when it is time.
    pub fn rings(&mut self, pids: impl Iterator<Item = u32>) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        let nothing = Waiting::default();
        let before = |pid| self.before.get(&pid).unwrap_or(&nothing);
        let rings = pids
            .map(|pid| (pid, Waiting::of(pid)))
            .any(|(pid, now)| now.has_more_than(before(pid)));
        self.next = Instant::now() + LISTEN_EVERY;
        rings
    }
}

impl Waiting {
    fn of(pid: u32) -> Waiting {
        Waiting {
            signals: waiting::signals(pid),
            readable: waiting::readable(pid).into_iter().collect(),
        }
    }

    fn has_more_than(&self, before: &Waiting) -> bool {
        self.signals & !before.signals != 0 || !self.readable.is_subset(&before.readable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_is_what_was_not_there_before() {
        let waiting = |signals, readable: &[i32]| Waiting {
            signals,
            readable: readable.iter().copied().collect(),
        };
        let before = waiting(0b1, &[3]);
        assert!(!before.has_more_than(&before));
        assert!(!waiting(0, &[]).has_more_than(&before));
        assert!(waiting(0b11, &[3]).has_more_than(&before));
        assert!(waiting(0b1, &[3, 4]).has_more_than(&before));
    }

    #[test]
    fn a_process_of_its_own_is_heard_and_nothing_twice() {
        use std::io::Write;
        let own = std::process::id();
        let (mut here, _there) = std::os::unix::net::UnixStream::pair().expect("descriptors");
        let mut bells = Bells::hang(&[own]);
        here.write_all(b"x").expect("written");
        assert!(bells.rings([own].into_iter()));
        assert!(!bells.rings([own].into_iter()), "it is not time");
        assert!(!Bells::hang(&[own]).rings([own].into_iter()));
    }
}
