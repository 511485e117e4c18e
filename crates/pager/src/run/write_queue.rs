//! Entries that the evictors have published and the writers still have to write out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use vswap_engine::Entry;

use crate::base::work::Work;
use crate::store::areas::Areas;

/// Entries taken at once: few enough that all writers share the end of a window.
const BATCH: usize = 8;
/// The same if there are areas. Entries taken together are written with one request, and a request of 256 KiB costs a
/// device little more than one of 32 KiB.
const BATCH_FOR_AREAS: usize = 64;

/// Entries that are published and wait to be written out.
#[derive(Debug)]
pub struct WriteQueue {
    queue: Work<VecDeque<Entry>>,
    /// The writers for areas have been started.
    for_areas: AtomicBool,
}

impl Default for WriteQueue {
    fn default() -> WriteQueue {
        WriteQueue {
            queue: Work::new("the queue of writers"),
            for_areas: AtomicBool::new(false),
        }
    }
}

impl WriteQueue {
    /// Queue entries, and wake one writer for each batch. A writer that is awake looks into the queue by itself.
    pub fn push(&self, areas: &Areas, entries: impl IntoIterator<Item = Entry>) {
        let mut queue = self.queue.lock();
        let before = queue.len();
        queue.extend(entries);
        let added = queue.len() - before;
        drop(queue);
        for _ in 0..added.div_ceil(most_at_once(areas)) {
            self.queue.wake_one();
        }
    }

    /// The number of waiting entries.
    pub fn pending(&self) -> usize {
        self.queue.lock().len()
    }

    /// Take one batch without waiting. Empty if there is none.
    pub fn take(&self, areas: &Areas) -> Vec<Entry> {
        take(areas, &mut self.queue.lock())
    }

    /// Wait for a batch. None at the end.
    pub fn next(&self, areas: &Areas) -> Option<Vec<Entry>> {
        let mut queue = self.queue.wait_while(VecDeque::is_empty);
        (!queue.is_empty()).then(|| take(areas, &mut queue))
    }

    /// End the writers.
    pub fn stop(&self) {
        self.queue.end();
    }

    /// Called before the writers for areas are started. False if they were started before.
    pub fn begin_for_areas(&self) -> bool {
        !self.for_areas.swap(true, Ordering::AcqRel)
    }
}

fn most_at_once(areas: &Areas) -> usize {
    if areas.any() { BATCH_FOR_AREAS } else { BATCH }
}

fn take(areas: &Areas, queue: &mut VecDeque<Entry>) -> Vec<Entry> {
    let count = queue.len().min(most_at_once(areas));
    queue.drain(..count).collect()
}
