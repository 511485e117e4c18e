//! Writing out: what the evictors have published is compressed by a few threads, one a CPU.
//!
//! An evictor that compressed itself would be the bottleneck of a program that fills memory, while the program's CPU
//! idles in a fault. Pages that wait here are in frames: faults on them are served at once, and the number of frames
//! bounds the queue. The queue's lock is innermost.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar};
use std::time::Duration;

use vswap_engine::{Entry, Scratch, WriteOutError, Written};

use crate::core::Core;
use crate::lock::{Mutex, MutexGuard, Row};
use crate::run::PAGE_BYTES;
use crate::threads;

/// Entries taken from the queue at once: little enough that all writers share the end of a window.
const BATCH: usize = 8;
/// Pause before storing is tried again when the pool is full.
const FULL_PACE: Duration = Duration::from_millis(5);

/// Entries that are published and still to be written out.
#[derive(Debug)]
pub struct Writeback {
    queue: Mutex<VecDeque<Entry>>,
    filled: Condvar,
    stop: AtomicBool,
}

impl Default for Writeback {
    fn default() -> Writeback {
        Writeback {
            queue: Mutex::new(Row::Innermost, "the queue of writers", VecDeque::new()),
            filled: Condvar::new(),
            stop: AtomicBool::new(false),
        }
    }
}

impl Writeback {
    /// Queue entries.
    pub fn push(&self, entries: impl IntoIterator<Item = Entry>) {
        self.lock().extend(entries);
        self.filled.notify_all();
    }

    /// Write out one batch in the calling thread. False when there was none, or the pool takes no more.
    pub fn help(&self, core: &Core, scratch: &mut Scratch) -> bool {
        let batch = take(&mut self.lock());
        !batch.is_empty() && self.write(core, batch, scratch)
    }

    /// End the writers.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.filled.notify_all();
    }

    fn next(&self) -> Option<Vec<Entry>> {
        let mut queue = self.lock();
        while queue.is_empty() {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            queue = queue.wait(&self.filled);
        }
        Some(take(&mut queue))
    }

    /// Write a batch out. What the full pool refuses stays in its frame and goes to the end of the queue.
    fn write(&self, core: &Core, batch: Vec<Entry>, scratch: &mut Scratch) -> bool {
        let refused: Vec<Entry> = batch
            .into_iter()
            .filter(|entry| !write_one(core, *entry, scratch))
            .collect();
        let full = !refused.is_empty();
        core.governor.note_full(full);
        if full {
            self.push(refused);
            core.shed_kept_copies();
        }
        !full
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.queue.lock()
    }
}

fn take(queue: &mut VecDeque<Entry>) -> Vec<Entry> {
    let count = queue.len().min(BATCH);
    queue.drain(..count).collect()
}

/// Write one entry out and count it; false when the pool is full.
fn write_one(core: &Core, entry: Entry, scratch: &mut Scratch) -> bool {
    let stats = &core.stats;
    let stored = match core.engine.write_out(entry, scratch) {
        Ok(Written::Zero) => {
            stats.pages_out_zero.add(1);
            return true;
        }
        Ok(Written::Compressed { bytes }) => bytes as u64,
        Ok(Written::Raw) => PAGE_BYTES,
        // Given up meanwhile.
        Ok(Written::Freed) | Err(WriteOutError::NotCached) => return true,
        Err(WriteOutError::PoolFull | WriteOutError::Busy) => return false,
    };
    stats.compressed_pages.add(1);
    stats.compressed_out_bytes.add(stored);
    core.governor.stored(stored);
    true
}

/// Start one writer a CPU.
pub fn start(core: &Arc<Core>) {
    for cpu in &core.cpus {
        let core = Arc::clone(core);
        threads::spawn(&format!("write-{cpu}"), move || {
            let mut scratch = core.engine.scratch();
            while let Some(batch) = core.writeback.next() {
                if !core.writeback.write(&core, batch, &mut scratch) {
                    std::thread::sleep(FULL_PACE);
                }
            }
        });
    }
}
