//! Where the bytes of a physical area are: a file, a block device or memory.
//!
//! The engine makes no system call, so its caller gives it storage, as it gives it memory. Slots have the same numbers
//! as in the area: the bytes of a slot start at its number times the page size.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use super::pages::Page;

/// Why storage could not do what it was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// No room: a growing file has met the end of its file system.
    #[error("no space is left on it")]
    Full,
    /// The storage ends before the slot.
    #[error("it is shorter than it was: it was cut, or the device has gone")]
    Short,
    /// The storage has no such operation.
    #[error("it cannot do that")]
    Unsupported,
    /// What was written to the slot is not there any more: somebody deleted it, or whoever kept it has gone for good.
    #[error("what was written to it is not there any more")]
    Lost,
    /// The slot holds something else than what was written to it last: somebody changed it, or it is an older content.
    #[error("it holds something else than what was written to it")]
    Altered,
    /// Nobody answered in time. A later request may succeed.
    #[error("it has not answered in time")]
    TimedOut,
    /// The system reported an error.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Failed {
        /// The system's error number.
        errno: i32,
    },
}

/// A run of neighbouring slots to be read, one of several such runs.
#[derive(Debug)]
pub struct ReadRun<'a> {
    /// The first slot.
    pub slot: u64,
    /// The pages to read into, one for each slot.
    pub pages: Vec<&'a mut Page>,
    /// The result of reading this run.
    pub outcome: Result<(), StorageError>,
}

impl ReadRun<'_> {
    /// Reads one run alone. For storage whose [`Storage::read`] is its [`Storage::read_runs`].
    ///
    /// # Errors
    /// As [`Storage::read`].
    pub fn alone(
        storage: &impl Storage,
        slot: u64,
        pages: &mut [&mut Page],
    ) -> Result<(), StorageError> {
        let mut run = ReadRun {
            slot,
            pages: pages.iter_mut().map(|page| &mut **page).collect(),
            outcome: Ok(()),
        };
        storage.read_runs(std::slice::from_mut(&mut run));
        run.outcome
    }
}

/// How much storage takes up of the medium behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageExtent {
    /// Bytes in use now.
    pub used_bytes: u64,
    /// The most bytes that it may use.
    pub size_bytes: u64,
    /// Bytes that it could still take. Less than what is not in use if some of that cannot be used, and more if there
    /// is room in between that it can make use of.
    pub free_bytes: u64,
}

/// The bytes of an area. Many threads may read and write different slots at once. Nobody reads a slot while it is being
/// written.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Reads neighbouring slots that were written before, from `slot` on, one into each page. Uses as few requests as
    /// possible. May block.
    ///
    /// # Errors
    /// [`StorageError`]; the pages may have been written to.
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError>;

    /// Reads several runs of neighbouring slots, each as [`Storage::read`] does. Storage that can serve several places
    /// at once does so. May block.
    fn read_runs(&self, runs: &mut [ReadRun<'_>]) {
        for run in runs {
            run.outcome = self.read(run.slot, &mut run.pages);
        }
    }

    /// Writes neighbouring slots from `slot` on, one from each page. Uses as few requests as possible. May block.
    ///
    /// # Errors
    /// [`StorageError`]; the slots then hold anything.
    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError>;

    /// Whether the storage keeps content as it is packed, so that less of it travels. [`Engine`](crate::Engine) then
    /// writes what comes out of the pool by [`Storage::write_packed`]. What is read is pages all the same: such storage
    /// [unpacks](crate::Scratch::decompress) them.
    fn keeps_packed(&self) -> bool {
        false
    }

    /// Writes neighbouring slots from `slot` on, one from each payload. Each says by itself how it is packed
    /// ([`codec`](crate::codec)), and several codecs may be among them. May block. Called only if the storage
    /// [keeps them packed](Storage::keeps_packed).
    ///
    /// # Errors
    /// [`StorageError`]; the slots then hold anything.
    fn write_packed(&self, slot: u64, payloads: &[&[u8]]) -> Result<(), StorageError> {
        let _ = (slot, payloads);
        Err(StorageError::Unsupported)
    }

    /// A slot is free again: what it holds is not needed, nobody reads it, and nobody writes it before this returns.
    /// Called for each slot that gets free, also if it was never written, but only if the storage [keeps payloads
    /// packed](Storage::keeps_packed): what others hold is forgotten when it is written over or discarded. The caller
    /// holds the lock of a cluster, so this must not block, and may take innermost locks alone.
    fn freed(&self, slot: u64) {
        let _ = slot;
    }

    /// How much of its medium it takes up. None if that is a page for each slot.
    fn extent(&self) -> Option<StorageExtent> {
        None
    }

    /// Whether a page is available at once, as from memory. Reading ahead does not pay then, and nobody measures it.
    /// The kernel's name for this is `SWP_SYNCHRONOUS_IO`.
    fn is_quick(&self) -> bool {
        false
    }

    /// Whether each request travels over a network, and may wait long until somebody answers again. Who waits for it
    /// had better not be needed elsewhere.
    fn is_far(&self) -> bool {
        false
    }

    /// The process ends, and nobody needs any slot again: what would stay behind elsewhere is removed. Blocks for some
    /// seconds at most. Storage that goes with the process does nothing.
    fn retire(&self) {}

    /// Forgets what slots hold, so that the medium behind them can be reused. Nobody reads these slots before they are
    /// written again. May block. Storage that cannot do this does nothing.
    ///
    /// # Errors
    /// [`StorageError`]; the slots then hold anything, and can be written. After [`StorageError::Unsupported`] the
    /// storage is not asked again.
    fn discard(&self, slots: Range<u64>) -> Result<(), StorageError> {
        let _ = slots;
        Ok(())
    }
}

/// An area in memory. A page is allocated when its slot is first written. This is the fastest storage there is, for
/// tests and for comparing areas without a device in between.
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

    /// Number of slots that hold a page.
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
