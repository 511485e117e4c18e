//! A second storage, written behind: what is in the store is copied to it in the background, in order.
//!
//! The queue is bounded. When it is full, whoever writes waits. Only what the backup has for certain is read from it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use vswap_engine::{Page, Storage, StorageError};

use crate::area::Area;
use crate::cipher::Plain;
use crate::slots::{Field, Home};

/// Writes and discards that may wait: with windows of 64 pages 8 MiB.
const QUEUE: usize = 32;

enum Job {
    Write {
        slot: u64,
        payloads: Vec<Plain>,
        fields: Vec<(Home, Field)>,
    },
    Discard(Range<u64>),
    /// Says when everything before it is done.
    Flush(SyncSender<()>),
}

/// The storage, and the thread that writes to it.
pub(crate) struct Backup {
    storage: Arc<dyn Storage>,
    /// None when the area ends.
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Backup {
    /// None if the system gives no thread.
    pub(crate) fn start(storage: Box<dyn Storage>, area: Arc<Area>) -> Option<Backup> {
        let storage: Arc<dyn Storage> = Arc::from(storage);
        let (queue, jobs) = sync_channel(QUEUE);
        let to = Arc::clone(&storage);
        let thread = std::thread::Builder::new()
            .name("vswap-backup".into())
            .spawn(move || work(&area, to.as_ref(), &jobs))
            .ok()?;
        Some(Backup {
            storage,
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// Has what was just written to the store written to the backup too. Blocks while the queue is full.
    pub(crate) fn write(&self, slot: u64, payloads: &[&[u8]], fields: Vec<(Home, Field)>) {
        let payloads = payloads
            .iter()
            .map(|payload| payload.to_vec().into())
            .collect();
        self.push(Job::Write {
            slot,
            payloads,
            fields,
        });
    }

    pub(crate) fn discard(&self, slots: Range<u64>) {
        self.push(Job::Discard(slots));
    }

    /// Waits until all that waits is written, but not longer than this.
    pub(crate) fn flush(&self, time: Duration) {
        let (done, waits) = sync_channel(1);
        self.push(Job::Flush(done));
        // Late or never: then the page is not known to be there.
        let _ = waits.recv_timeout(time);
    }

    pub(crate) fn read(&self, slot: u64, page: &mut Page) -> Result<(), StorageError> {
        self.storage.read(slot, &mut [page])
    }

    fn push(&self, job: Job) {
        if let Some(queue) = &self.queue {
            // It fails only when the thread has gone; then nothing is known to be in the backup.
            let _ = queue.send(job);
        }
    }
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Backup").field(&self.storage).finish()
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

fn work(area: &Area, storage: &dyn Storage, jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Write {
                slot,
                payloads,
                fields,
            } => match write(area, storage, slot, &payloads) {
                Ok(()) => {
                    for (home, field) in fields {
                        area.slots.note_backed(home, field);
                    }
                }
                Err(_) => {
                    let pages = payloads.len() as u64;
                    let failed = &area.counts.backup_failed;
                    failed.fetch_add(pages, Ordering::Relaxed);
                }
            },
            // What it keeps in vain is written over some day.
            Job::Discard(slots) => drop(storage.discard(slots)),
            Job::Flush(done) => drop(done.send(())),
        }
    }
}

fn write(
    area: &Area,
    storage: &dyn Storage,
    slot: u64,
    payloads: &[Plain],
) -> Result<(), StorageError> {
    if storage.keeps_packed() {
        let payloads: Vec<&[u8]> = payloads.iter().map(|payload| payload.as_slice()).collect();
        return storage.write_packed(slot, &payloads);
    }
    let mut pages = vec![Page::zeroed(); payloads.len()];
    area.with_scratch(|scratch| {
        for (payload, page) in payloads.iter().zip(&mut pages) {
            let unpacked = scratch.decompress(payload, page);
            unpacked.map_err(|_| StorageError::Altered)?;
        }
        Ok(())
    })?;
    storage.write(slot, &pages.iter().collect::<Vec<_>>())
}
