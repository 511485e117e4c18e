//! A private file as the engine's storage. For any number of threads; blocks.

use std::ops::Range;

use vswap_engine::{Page, ReadRun, Storage, StorageError};
use vswap_sys::disk::{self, Disk, DiskError, PageBytes};

/// Bytes of a slot.
pub const SLOT_BYTES: u64 = 4096;

/// Slot n lies at byte n * 4096.
#[derive(Debug)]
pub struct OnDisk(pub Disk);

impl Storage for OnDisk {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        let mut pages: Vec<&mut PageBytes> = pages.iter_mut().map(|page| &mut page.0).collect();
        self.0.read(slot * SLOT_BYTES, &mut pages).map_err(error)
    }

    fn read_runs(&self, runs: &mut [ReadRun<'_>]) {
        let mut on_disk: Vec<disk::ReadRun<'_>> = runs
            .iter_mut()
            .map(|run| disk::ReadRun {
                at: run.slot * SLOT_BYTES,
                pages: run.pages.iter_mut().map(|page| &mut page.0).collect(),
                outcome: Ok(()),
            })
            .collect();
        self.0.read_runs(&mut on_disk);
        let outcomes: Vec<_> = on_disk.into_iter().map(|run| run.outcome).collect();
        for (run, outcome) in runs.iter_mut().zip(outcomes) {
            run.outcome = outcome.map_err(error);
        }
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        let pages: Vec<&PageBytes> = pages.iter().map(|page| &page.0).collect();
        self.0.write(slot * SLOT_BYTES, &pages).map_err(error)
    }

    fn discard(&self, slots: Range<u64>) -> Result<(), StorageError> {
        let bytes = slots.start * SLOT_BYTES..slots.end * SLOT_BYTES;
        self.0.discard(bytes).map_err(error)
    }
}

fn error(error: DiskError) -> StorageError {
    match error {
        DiskError::Full => StorageError::Full,
        DiskError::Short => StorageError::Short,
        DiskError::Failed { errno } => StorageError::Failed { errno },
    }
}
