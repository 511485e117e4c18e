//! A file or block device as the engine's storage.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vswap_engine::{Page, ReadRun, Storage, StorageError};
use vswap_sys::disk::{self, Disk, DiskError, PageBytes};

use crate::base::page_run::PAGE_BYTES;

/// A page read in less than this is there at once. Reading one more along with it costs about as much as it may save.
const QUICK: Duration = Duration::from_micros(10);
/// Weight of the newest read in the average: one part in this many.
const LATENCY_PART: u64 = 8;

/// A file or block device as the engine's storage: slot n lies at byte n * 4096.
#[derive(Debug)]
pub struct OnDisk {
    disk: Disk,
    /// How long reading one page takes on average. 0 if not known yet.
    latency_ns: AtomicU64,
}

impl OnDisk {
    /// A disk from which nothing was read yet.
    pub fn new(disk: Disk) -> OnDisk {
        OnDisk {
            disk,
            latency_ns: AtomicU64::new(0),
        }
    }

    fn note_latency(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        // Two threads may lose each other's change. It is only an average.
        let so_far = self.latency_ns.load(Ordering::Relaxed);
        let average = match so_far {
            0 => took,
            _ => so_far - so_far / LATENCY_PART + took / LATENCY_PART,
        };
        self.latency_ns.store(average, Ordering::Relaxed);
    }
}

impl Storage for OnDisk {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        let mut pages: Vec<&mut PageBytes> = pages.iter_mut().map(|page| &mut page.0).collect();
        let begun = Instant::now();
        let read = self.disk.read(slot * PAGE_BYTES, &mut pages);
        if pages.len() == 1 {
            self.note_latency(begun.elapsed());
        }
        read.map_err(error)
    }

    fn read_runs(&self, runs: &mut [ReadRun<'_>]) {
        if let [one] = runs {
            one.outcome = self.read(one.slot, &mut one.pages);
            return;
        }
        let mut on_disk: Vec<disk::ReadRun<'_>> = runs
            .iter_mut()
            .map(|run| disk::ReadRun {
                at: run.slot * PAGE_BYTES,
                pages: run.pages.iter_mut().map(|page| &mut page.0).collect(),
                outcome: Ok(()),
            })
            .collect();
        self.disk.read_runs(&mut on_disk);
        let outcomes: Vec<_> = on_disk.into_iter().map(|run| run.outcome).collect();
        for (run, outcome) in runs.iter_mut().zip(outcomes) {
            run.outcome = outcome.map_err(error);
        }
    }

    fn is_quick(&self) -> bool {
        self.latency().is_some_and(|known| known < QUICK)
    }

    fn latency(&self) -> Option<Duration> {
        let known = self.latency_ns.load(Ordering::Relaxed);
        (known > 0).then(|| Duration::from_nanos(known))
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        let pages: Vec<&PageBytes> = pages.iter().map(|page| &page.0).collect();
        self.disk.write(slot * PAGE_BYTES, &pages).map_err(error)
    }

    fn discard(&self, slots: std::ops::Range<u64>) -> Result<(), StorageError> {
        let bytes = slots.start * PAGE_BYTES..slots.end * PAGE_BYTES;
        self.disk.discard(bytes).map_err(error)
    }
}

fn error(error: DiskError) -> StorageError {
    match error {
        DiskError::Full => StorageError::Full,
        DiskError::Short => StorageError::Short,
        DiskError::Failed { errno } => StorageError::Failed { errno },
    }
}
