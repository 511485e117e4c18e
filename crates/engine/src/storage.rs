//! Where the bytes of a physical area are: a file, a block device, memory.
//!
//! The engine makes no system call, so it is given its storage as it is given its memory. Slots are numbered as in the
//! area: a slot's bytes lie at its number times the page size.

use std::fmt;
use std::io;
use std::sync::{PoisonError, RwLock};

use crate::pages::Page;

/// Why storage did not do what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// No room behind the storage: a file that grows has met the end of its file system.
    #[error("no space is left on it")]
    Full,
    /// It ends before the slot.
    #[error("it is shorter than it was: it was cut, or the device has gone")]
    Short,
    /// The system said no.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Failed {
        /// The system's number for what was wrong.
        errno: i32,
    },
}

/// The bytes of an area. Reads and writes of different slots may come from many threads at once; nobody reads a slot
/// that is being written.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Copies a slot that was written into `page`. May block.
    ///
    /// # Errors
    /// [`StorageError`]; `page` may have been written to.
    fn read(&self, slot: u64, page: &mut Page) -> Result<(), StorageError>;

    /// Writes neighbouring slots from `slot` on, one a page, with as few requests as it can. May block.
    ///
    /// # Errors
    /// [`StorageError`]; the slots then hold anything.
    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError>;
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
}

impl Storage for RamStorage {
    fn read(&self, slot: u64, page: &mut Page) -> Result<(), StorageError> {
        let stored = self.slot(slot)?;
        let stored = stored.read().unwrap_or_else(PoisonError::into_inner);
        page.0 = stored.as_ref().ok_or(StorageError::Short)?.0;
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
}
