//! How much one process may ask of the pager at a time.
//!
//! A connection that the pager deals with costs it a descriptor, and some cost a thread. An honest process makes one
//! for each of its threads at most. A hostile one could make so many that nothing is left for the others.
//!
//! The lock is innermost.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vswap_sys::process::procfs;

use crate::base::lock::{Mutex, Row};

/// Connections of one process that are dealt with at a time, whatever its number of threads.
const CONNECTIONS_MAX: u32 = 16;
/// Refused agents that are told of. A process could be refused for ever.
const REFUSALS_TOLD: u32 = 32;

/// The connections that are dealt with, by process.
#[derive(Debug)]
pub struct Callers {
    open: Mutex<HashMap<u32, u32>>,
    told: AtomicU32,
}

impl Default for Callers {
    fn default() -> Callers {
        Callers {
            open: Mutex::new(Row::Innermost, "callers", HashMap::new()),
            told: AtomicU32::new(0),
        }
    }
}

/// A connection is dealt with as long as this lives.
#[derive(Debug)]
pub struct Admission {
    callers: Arc<Callers>,
    pid: u32,
}

impl Callers {
    /// Admit a connection of process `pid`. None if the process has too many already.
    pub fn admit(self: &Arc<Callers>, pid: u32) -> Option<Admission> {
        if self.open_of(pid) >= CONNECTIONS_MAX && !self.has_a_thread_for_one_more(pid) {
            return None;
        }
        *self.open.lock().entry(pid).or_default() += 1;
        Some(Admission {
            callers: Arc::clone(self),
            pid,
        })
    }

    /// A refusal is about to be told. None if enough were told already, else what to add to it.
    pub fn tell(&self) -> Option<&'static str> {
        match self.told.fetch_add(1, Ordering::Relaxed) {
            told if told + 1 < REFUSALS_TOLD => Some(""),
            told if told < REFUSALS_TOLD => Some("; no more of these are told"),
            _ => {
                // The number must not come round to 0.
                self.told.store(REFUSALS_TOLD, Ordering::Relaxed);
                None
            }
        }
    }

    fn open_of(&self, pid: u32) -> u32 {
        self.open.lock().get(&pid).copied().unwrap_or(0)
    }

    /// Is there a thread in the process that may be at the other end? The agent's own comes on top of the program's.
    fn has_a_thread_for_one_more(&self, pid: u32) -> bool {
        procfs::stat(pid).is_ok_and(|stat| self.open_of(pid) < stat.threads)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut open = self.callers.open.lock();
        if let Some(count) = open.get_mut(&self.pid) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.pid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_cannot_take_everything() {
        let callers = Arc::new(Callers::default());
        let own = std::process::id();
        let mut held: Vec<Admission> = (0..CONNECTIONS_MAX)
            .filter_map(|_| callers.admit(own))
            .collect();
        assert_eq!(u32::try_from(held.len()), Ok(CONNECTIONS_MAX));
        // More than that, but no more than the process has threads.
        let more = std::iter::from_fn(|| callers.admit(own))
            .take(10_000)
            .count();
        assert!(more < 10_000);
        // Another process is not concerned, and one that has gone is no reason to refuse.
        assert!(callers.admit(1).is_some());
        held.clear();
        assert!(callers.admit(own).is_some());
        assert!(callers.open.lock().is_empty());
    }

    #[test]
    fn refusals_are_told_a_few_times() {
        let callers = Callers::default();
        let told: Vec<&str> = (0..1000).filter_map(|_| callers.tell()).collect();
        assert_eq!(told.len(), REFUSALS_TOLD as usize);
        assert_eq!(told.iter().filter(|rest| !rest.is_empty()).count(), 1);
    }
}
