//! Threads of the program that have been let go to their ends.
//!
//! A process ends with its last thread, and with that thread's exit code. While an agent leaves a process that lives
//! on, its thread must not turn out to be the last one. So from then on the program's threads wait before they end,
//! until the agent has gone. The lock is innermost, and held for a look at a short list.

use std::collections::VecDeque;

use vswap_sys::process::{ExitCode, procfs};

use crate::base::lock::{Mutex, Row};

/// How many are remembered. Those that went before them have ended, or wait for a processor.
const REMEMBERED: usize = 64;

/// What is known of threads that end.
#[derive(Debug)]
pub struct Exits(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Threads on their way to their ends.
    threads: VecDeque<u32>,
    /// The exit code of the thread that was the last to go.
    code: Option<ExitCode>,
    are_held: bool,
}

impl Default for Exits {
    fn default() -> Exits {
        Exits(Mutex::new(
            Row::Innermost,
            "threads that end",
            Known::default(),
        ))
    }
}

impl Exits {
    /// May a thread end now, with this status? False while the agent leaves.
    pub fn may_end(&self, tid: u32, status: u64) -> bool {
        let mut known = self.0.lock();
        if known.are_held {
            return false;
        }
        if known.threads.len() == REMEMBERED {
            known.threads.pop_front();
        }
        known.threads.push_back(tid);
        known.code = Some(ExitCode::of_status(status));
        true
    }

    /// From now on no thread may end.
    pub fn hold(&self) {
        self.0.lock().are_held = true;
    }

    /// Have all those of process `pid` ended that may?
    pub fn are_over(&self, pid: u32) -> bool {
        let threads = self.0.lock().threads.clone();
        threads.into_iter().all(|tid| has_ended(pid, tid))
    }

    /// The exit code of the thread that was the last to go.
    pub fn last_code(&self) -> Option<ExitCode> {
        self.0.lock().code
    }
}

/// A main thread that has ended stays as long as others live.
fn has_ended(pid: u32, tid: u32) -> bool {
    !procfs::thread_stat(pid, tid).is_ok_and(|stat| stat.alive())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_ends_while_the_agent_leaves() {
        let exits = Exits::default();
        let own = std::process::id();
        assert_eq!(exits.last_code(), None);
        assert!(exits.may_end(own, 0x0107));
        assert!(!exits.are_over(own), "this thread lives");
        assert!(exits.may_end(u32::MAX, 3), "there is no such thread");
        exits.hold();
        assert!(!exits.may_end(own, 9));
        assert_eq!(exits.last_code().map(ExitCode::to_bytes), Some([0, 3]));
        let gone = Exits::default();
        assert!(gone.may_end(u32::MAX, 0) && gone.are_over(own));
    }
}
