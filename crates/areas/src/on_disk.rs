//! A file or block device as the engine's storage. For any number of threads; blocks.

use vswap_engine::{Page, ReadRun, Storage, StorageError};
use vswap_sys::disk::{self, Disk, DiskError, PageBytes};

use crate::units::PAGE_BYTES;

/// A file or block device as the engine's storage: slot n lies at byte n * 4096.
#[derive(Debug)]
pub struct OnDisk {
    disk: Disk,
}

impl OnDisk {
    /// A disk from which nothing was read yet.
    #[must_use]
    pub fn new(disk: Disk) -> OnDisk {
        OnDisk { disk }
    }
}

impl Storage for OnDisk {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        let mut pages: Vec<&mut PageBytes> = pages.iter_mut().map(|page| &mut page.0).collect();
        let read = self.disk.read(slot * PAGE_BYTES, &mut pages);
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

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        let pages: Vec<&PageBytes> = pages.iter().map(|page| &page.0).collect();
        self.disk.write(slot * PAGE_BYTES, &pages).map_err(error)
    }

    fn discard(&self, slots: std::ops::Range<u64>) -> Result<(), StorageError> {
        let bytes = slots.start * PAGE_BYTES..slots.end * PAGE_BYTES;
        self.disk.discard(bytes).map_err(error)
    }
}

/// What a disk says, as storage says it.
pub(crate) fn error(error: DiskError) -> StorageError {
    match error {
        DiskError::Full => StorageError::Full,
        DiskError::Short => StorageError::Short,
        DiskError::Failed { errno } => StorageError::Failed { errno },
    }
}
