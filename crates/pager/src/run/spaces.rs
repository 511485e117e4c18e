//! The list of a run's spaces.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::lock::{Mutex, Row};
use crate::space::Space;
use crate::space::process::Process;

/// All spaces of a run that have not ended. The lock is innermost.
#[derive(Debug)]
pub struct Spaces {
    list: Mutex<List>,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct List {
    /// By id, so the oldest comes first.
    all: BTreeMap<u64, Arc<Space>>,
    /// Ids of the spaces of each process, oldest first. A process that runs another program has two for a moment.
    of_process: HashMap<u32, Vec<u64>>,
}

impl Default for Spaces {
    fn default() -> Spaces {
        Spaces {
            list: Mutex::new(Row::Innermost, "the list of spaces", List::default()),
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
        self.list.lock().all.values().cloned().collect()
    }

    /// Add a space.
    pub fn add(&self, space: Arc<Space>) {
        let mut list = self.list.lock();
        if let Some(pid) = space.pid() {
            list.of_process.entry(pid).or_default().push(space.id);
        }
        list.all.insert(space.id, space);
    }

    /// A space that was added without a process has one now. A space gets one once.
    pub fn introduce(&self, space: &Space, process: Process) {
        let pid = process.pid;
        if space.process.set(process).is_err() {
            return;
        }
        let mut list = self.list.lock();
        if list.all.contains_key(&space.id) {
            list.of_process.entry(pid).or_default().push(space.id);
        }
    }

    /// Take a space out of the list.
    pub fn remove(&self, id: u64) {
        let mut list = self.list.lock();
        let removed = list.all.remove(&id);
        let Some(pid) = removed.and_then(|space| space.pid()) else {
            return;
        };
        if let Some(ids) = list.of_process.get_mut(&pid) {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                list.of_process.remove(&pid);
            }
        }
    }

    /// The space with this id.
    pub fn of_id(&self, id: u64) -> Option<Arc<Space>> {
        self.list.lock().all.get(&id).cloned()
    }

    /// The newest space of a process.
    pub fn of_process(&self, pid: u32) -> Option<Arc<Space>> {
        let list = self.list.lock();
        let id = list.of_process.get(&pid)?.last()?;
        list.all.get(id).cloned()
    }

    /// How many spaces of a process have not ended.
    pub fn count_of_process(&self, pid: u32) -> usize {
        self.list.lock().of_process.get(&pid).map_or(0, Vec::len)
    }
}
