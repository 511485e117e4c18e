//! Which processes of a run have vswap's seccomp filter.

use std::sync::atomic::{AtomicU64, Ordering};

use vswap_sys::process::procfs;

use crate::base::lock::{Mutex, Row};

/// The filters of a run. The lock is innermost.
#[derive(Debug)]
pub struct Filters {
    listeners: AtomicU64,
    /// Processes that have it. It stays with a process that starts another program, and goes to its children.
    processes: Mutex<Vec<u32>>,
}

impl Default for Filters {
    fn default() -> Filters {
        Filters {
            listeners: AtomicU64::new(0),
            processes: Mutex::new(Row::Innermost, "processes with the filter", Vec::new()),
        }
    }
}

impl Filters {
    /// A filter's listener is being served.
    pub fn add_listener(&self) {
        self.listeners.fetch_add(1, Ordering::AcqRel);
    }

    /// Does any process of the run have a filter?
    pub fn has_listener(&self) -> bool {
        self.listeners.load(Ordering::Acquire) > 0
    }

    /// A process is known to have it.
    pub fn note(&self, pid: u32) {
        let mut processes = self.processes.lock();
        if !processes.contains(&pid) {
            processes.push(pid);
        }
    }

    /// The processes that are known to have it and live.
    pub fn processes(&self) -> Vec<u32> {
        let known = self.processes.lock().clone();
        let gone = |pid: &u32| !procfs::is_alive(*pid, None);
        let gone: Vec<u32> = known.into_iter().filter(gone).collect();
        let mut processes = self.processes.lock();
        processes.retain(|pid| !gone.contains(pid));
        processes.clone()
    }
}
