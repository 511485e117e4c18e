//! Writing out: what the evictors have published is compressed by a few threads, one a CPU.
//!
//! An evictor that compressed itself would be the bottleneck of a program that fills memory, while the program's CPU
//! idles in a fault. Pages that wait here are in frames: faults on them are served at once, and the number of frames
//! bounds the queue. The queue's lock is innermost.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar};
use std::time::Duration;

use vswap_engine::{Entry, Scratch, WriteOutError, Written};

use crate::base::lock::{Mutex, MutexGuard, Row};
use crate::base::page_run::PAGE_BYTES;
use crate::base::threads;
use crate::run::buffers::Buffers;
use crate::run::core::Core;

/// Entries taken from the queue at once: little enough that all writers share the end of a window.
const BATCH: usize = 8;
/// The same where there are areas: what is taken together is written with one request, and a request of 256 KiB costs a
/// device little more than one of 32.
const BATCH_FOR_AREAS: usize = 64;
/// Writers beside those of the CPUs where there are areas, so that several requests are under way at once: as many as
/// a small run has frames for.
const AREA_WRITERS: usize = 4;
/// Pause before a writer tries to store again when the pool is full.
const FULL_PACE: Duration = Duration::from_millis(1);

/// Entries that are published and still to be written out.
#[derive(Debug)]
pub struct Writeback {
    queue: Mutex<VecDeque<Entry>>,
    filled: Condvar,
    stop: AtomicBool,
    for_areas: AtomicBool,
}

impl Default for Writeback {
    fn default() -> Writeback {
        Writeback {
            queue: Mutex::new(Row::Innermost, "the queue of writers", VecDeque::new()),
            filled: Condvar::new(),
            stop: AtomicBool::new(false),
            for_areas: AtomicBool::new(false),
        }
    }
}

impl Writeback {
    /// Queue entries, and wake a writer for each batch of them: one that is awake looks into the queue by itself.
    pub fn push(&self, core: &Core, entries: impl IntoIterator<Item = Entry>) {
        let mut queue = self.lock();
        let before = queue.len();
        queue.extend(entries);
        let added = queue.len() - before;
        drop(queue);
        for _ in 0..added.div_ceil(most_at_once(core)) {
            self.filled.notify_one();
        }
    }

    /// Entries that wait.
    pub fn pending(&self) -> usize {
        self.lock().len()
    }

    /// Write out one batch in the calling thread. False when there was none, or the pool takes no more: then only
    /// writers try again, now and then, since what is refused has been compressed in vain.
    pub fn help(&self, core: &Core) -> bool {
        if core.governor.is_stalled() {
            return false;
        }
        let batch = take(core, &mut self.lock());
        let write = |buffers: &mut Buffers| self.write(core, &batch, &mut buffers.scratch);
        !batch.is_empty() && core.spare_buffers.with(core, write)
    }

    /// End the writers.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.filled.notify_all();
    }

    fn next(&self, core: &Core) -> Option<Vec<Entry>> {
        let mut queue = self.lock();
        while queue.is_empty() {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            queue = queue.wait(&self.filled);
        }
        Some(take(core, &mut queue))
    }

    /// Write a batch out. What the full pool refuses stays in its frame and goes to the end of the queue.
    fn write(&self, core: &Core, batch: &[Entry], scratch: &mut Scratch) -> bool {
        let mut refused = Vec::new();
        let mut is_limited = false;
        core.shrinker.make_room(core, batch.len(), scratch);
        core.engine
            .write_out_all(0, batch, scratch, |entry, outcome| match outcome {
                Ok(written) => count(core, written),
                // Given up meanwhile.
                Err(WriteOutError::NotCached) => {}
                Err(error) => {
                    is_limited |= error == WriteOutError::Limited;
                    refused.push(entry);
                }
            });
        let full = !refused.is_empty();
        let was_full = core.governor.is_stalled();
        core.governor.note_full(full, is_limited);
        if full {
            self.push(core, refused);
        }
        if full && !was_full {
            // What kin refer to as well would be stored twice when it leaves again.
            core.shed_kept_copies(|entry| !core.engine.is_shared(entry));
        }
        !full
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.queue.lock()
    }
}

fn most_at_once(core: &Core) -> usize {
    if core.areas.any() {
        BATCH_FOR_AREAS
    } else {
        BATCH
    }
}

fn take(core: &Core, queue: &mut VecDeque<Entry>) -> Vec<Entry> {
    let count = queue.len().min(most_at_once(core));
    queue.drain(..count).collect()
}

/// Count what was written out.
fn count(core: &Core, written: Written) {
    let stats = &core.stats;
    let stored = match written {
        Written::Zero => return stats.pages_out_zero.add(1),
        Written::Compressed { bytes } => bytes as u64,
        Written::Raw => PAGE_BYTES,
        // No memory of the run.
        Written::Physical | Written::Freed => return,
    };
    stats.compressed_pages.add(1);
    stats.compressed_out_bytes.add(stored);
    core.governor.stored(stored);
}

/// Start one writer a CPU, as far as there are threads.
///
/// # Errors
/// There is none at all.
pub fn start(core: &Arc<Core>) -> io::Result<()> {
    let start = |cpu| start_one(core, &format!("write-{cpu}"));
    let (started, refused): (Vec<_>, Vec<_>) = core.cpus.iter().map(start).partition(Result::is_ok);
    match refused.into_iter().next() {
        Some(refused) if started.is_empty() => refused,
        _ => Ok(()),
    }
}

/// Start writers that wait for areas while those of the CPUs compress, once, as far as there are threads: without them
/// the others wait. Before the first area is used.
pub fn start_for_areas(core: &Arc<Core>) {
    if !core.writeback.for_areas.swap(true, Ordering::AcqRel) {
        for number in 0..AREA_WRITERS {
            let _ = start_one(core, &format!("swap-out-{number}"));
        }
    }
}

fn start_one(core: &Arc<Core>, name: &str) -> io::Result<()> {
    let core = Arc::clone(core);
    threads::try_spawn(name, move || {
        let mut scratch = core.engine.scratch();
        while let Some(batch) = core.writeback.next(&core) {
            if !core.writeback.write(&core, &batch, &mut scratch) {
                std::thread::sleep(FULL_PACE);
            }
        }
    })
}
