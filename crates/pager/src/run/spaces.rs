//! The list of a run's spaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::lock::{Mutex, Row};
use crate::space::Space;

/// All spaces of a run that have not ended. The lock is innermost.
#[derive(Debug)]
pub struct Spaces {
    list: Mutex<Vec<Arc<Space>>>,
    next_id: AtomicU64,
}

impl Default for Spaces {
    fn default() -> Spaces {
        Spaces {
            list: Mutex::new(Row::Innermost, "the list of spaces", Vec::new()),
            next_id: AtomicU64::new(1),
        }
    }
}

impl Spaces {
    /// A number for a new space.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// All spaces at this moment.
    pub fn all(&self) -> Vec<Arc<Space>> {
        self.list.lock().clone()
    }

    /// Add a space.
    pub fn add(&self, space: Arc<Space>) {
        self.list.lock().push(space);
    }

    /// Take a space out of the list.
    pub fn remove(&self, id: u64) {
        self.list.lock().retain(|space| space.id != id);
    }

    /// The space of a process.
    pub fn of_process(&self, pid: u32) -> Option<Arc<Space>> {
        self.list
            .lock()
            .iter()
            .rev()
            .find(|space| space.pid() == Some(pid))
            .cloned()
    }
}
