//! Where the bytes of a physical area are: a file, a block device, memory.
//!
//! The engine makes no system call, so it is given its storage as it is given its memory. Slots are numbered as in the
//! area: a slot's bytes lie at its number times the page size.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use super::pages::Page;

/// Why storage did not do what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// No room behind the storage: a file that grows has met the end of its file system.
    #[error("no space is left on it")]
    Full,
    /// It ends before the slot.
    #[error("it is shorter than it was: it was cut, or the device has gone")]
    Short,
    /// It has no such operation.
    #[error("it cannot do that")]
    Unsupported,
    /// The system said no.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Failed {
        /// The system's number for what was wrong.
        errno: i32,
    },
}

/// Neighbouring slots to be read, one of several such runs.
#[derive(Debug)]
pub struct ReadRun<'a> {
    /// The first of them.
    pub slot: u64,
    /// Where they are read to, one each.
    pub pages: Vec<&'a mut Page>,
    /// How it went.
    pub outcome: Result<(), StorageError>,
}

/// The bytes of an area. Reads and writes of different slots may come from many threads at once; nobody reads a slot
/// that is being written.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Copies neighbouring slots that were written, from `slot` on, one into each page, with as few requests as it can.
    /// May block.
    ///
    /// # Errors
    /// [`StorageError`]; the pages may have been written to.
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError>;

    /// Reads several runs of neighbouring slots, each as [`Storage::read`] does. Storage that can be at more than one
    /// place does so at the same time. May block.
    fn read_runs(&self, runs: &mut [ReadRun<'_>]) {
        for run in runs {
            run.outcome = self.read(run.slot, &mut run.pages);
        }
    }

    /// Writes neighbouring slots from `slot` on, one a page, with as few requests as it can. May block.
    ///
    /// # Errors
    /// [`StorageError`]; the slots then hold anything.
    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError>;

    /// Whether a page is there at once, as from memory: then reading more than is asked for does not pay. The kernel
    /// says `SWP_SYNCHRONOUS_IO`.
    fn is_quick(&self) -> bool {
        false
    }

    /// Forgets what slots hold, so that what is behind them can be used for something else. Nobody reads one of them
    /// before it is written again. May block. Storage that cannot do this does nothing.
    ///
    /// # Errors
    /// [`StorageError`]; the slots then hold anything, and can be written. With [`StorageError::Unsupported`] it is not
    /// asked again.
    fn discard(&self, slots: Range<u64>) -> Result<(), StorageError> {
        let _ = slots;
        Ok(())
    }
}

/// An area in memory, whose pages are made when they are first written: the fastest storage there is, for tests and
/// for comparing areas without a device between.
#[derive(Debug)]
pub struct RamStorage {
    slots: Box<[RwLock<Option<Box<Page>>>]>,
}

impl RamStorage {
    /// Storage of `slots` slots, none of them written.
    #[must_use]
    pub fn new(slots: usize) -> RamStorage {
        RamStorage {
            slots: (0..slots).map(|_| RwLock::new(None)).collect(),
        }
    }

    fn slot(&self, slot: u64) -> Result<&RwLock<Option<Box<Page>>>, StorageError> {
        let index = usize::try_from(slot).map_err(|_| StorageError::Short)?;
        self.slots.get(index).ok_or(StorageError::Short)
    }

    /// How many slots hold a page.
    #[must_use]
    pub fn pages(&self) -> usize {
        let holds = |slot: &&RwLock<Option<Box<Page>>>| {
            let slot = slot.read().unwrap_or_else(PoisonError::into_inner);
            slot.is_some()
        };
        self.slots.iter().filter(holds).count()
    }
}

impl Storage for RamStorage {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        for (slot, page) in (slot..).zip(pages) {
            let stored = self.slot(slot)?;
            let stored = stored.read().unwrap_or_else(PoisonError::into_inner);
            page.0 = stored.as_ref().ok_or(StorageError::Short)?.0;
        }
        Ok(())
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        for (slot, page) in (slot..).zip(pages) {
            let mut stored = self
                .slot(slot)?
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            match stored.as_mut() {
                Some(stored) => stored.0 = page.0,
                None => *stored = Some(Box::new((*page).clone())),
            }
        }
        Ok(())
    }

    fn is_quick(&self) -> bool {
        true
    }

    fn discard(&self, slots: Range<u64>) -> Result<(), StorageError> {
        for slot in slots {
            let slot = self.slot(slot)?;
            *slot.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::base::pages::PAGE_BYTES;

    #[test]
    fn a_run_is_read_as_it_was_written_and_is_gone_after_a_discard() {
        let storage = RamStorage::new(4);
        let [one, two] = [1, 2].map(|byte| Page([byte; PAGE_BYTES]));
        storage.write(1, &[&one, &two]).expect("room");
        let (mut first, mut second) = (Page::zeroed(), Page::zeroed());
        let read = storage.read(1, &mut [&mut first, &mut second]);
        assert_eq!(read, Ok(()));
        assert!(first == one && second == two);
        assert_eq!(storage.pages(), 2);
        let short = Err(StorageError::Short);
        assert_eq!(storage.read(2, &mut [&mut first, &mut second]), short);
        assert_eq!(storage.discard(0..2), Ok(()));
        assert_eq!(storage.pages(), 1);
        assert_eq!(storage.read(1, &mut [&mut first]), short);
        assert_eq!(storage.discard(3..5), short);
    }
}
