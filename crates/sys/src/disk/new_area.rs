//! Making a swap area in a file or block device: giving it room, writing its first page.
//!
//! Nothing half made stays: a [`NewArea`] that is dropped before [`NewArea::keep`] takes its changes back. Only a
//! process that is killed in between leaves a file behind, without a header. For one thread.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};

use crate::disk::area_file::{AreaError, AreaFile, cannot};

/// Bytes of a page, and of the header.
const PAGE_BYTES: usize = 4096;
/// Zeros that one call writes if the file system cannot reserve blocks.
const ZEROS_BYTES: usize = 1 << 20;
/// Mode of a new file: what was in memory is nobody else's business.
const MODE: u32 = 0o600;

/// How a file got its room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// All blocks are reserved.
    Allocated,
    /// The file system cannot reserve blocks, so zeros were written behind the old end.
    Written,
}

/// A file or block device that becomes an area. Dropping it takes back every change, unless it is kept.
#[derive(Debug)]
pub struct NewArea {
    area: AreaFile,
    undo: Undo,
}

/// What is needed to take the changes back.
#[derive(Debug, Default)]
struct Undo {
    /// The file was made here.
    remove: bool,
    /// The length that a file had.
    truncate_to: Option<u64>,
    /// The old content of the first page.
    first_page: Option<Box<[u8; PAGE_BYTES]>>,
}

impl NewArea {
    /// Opens a file or block device that exists, as [`AreaFile::open`] does.
    ///
    /// # Errors
    /// Those of [`AreaFile::open`]. None of them has changed anything.
    pub fn open(path: &Path) -> Result<NewArea, AreaError> {
        Ok(NewArea {
            area: AreaFile::open(path)?,
            undo: Undo::default(),
        })
    }

    /// Makes an empty file that only its owner may read.
    ///
    /// # Errors
    /// `Dangling`, `Locked`, `Io`.
    pub fn create(path: &Path) -> Result<NewArea, AreaError> {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(path)
            .map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => AreaError::Dangling,
                _ => cannot("made")(error),
            })?;
        let area = AreaFile::of(file, path).inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })?;
        Ok(NewArea {
            area,
            undo: Undo {
                remove: true,
                ..Undo::default()
            },
        })
    }

    /// What the area is made in.
    pub fn file(&self) -> &AreaFile {
        &self.area
    }

    /// Gives a regular file `bytes` bytes, with blocks behind all of them. If the file system cannot reserve blocks,
    /// then only behind those that are new. The content stays, and the file never gets shorter.
    ///
    /// # Errors
    /// `Full`, `ActiveSwap`, `Io`.
    pub fn reserve(&mut self, bytes: u64) -> Result<Reserved, AreaError> {
        let old_bytes = self.area.bytes;
        self.undo.truncate_to.get_or_insert(old_bytes);
        let reserved =
            retry_on_intr(|| fallocate(&*self.area.file, FallocateFlags::empty(), 0, bytes));
        let (how, done) = match reserved {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                (Reserved::Written, self.write_zeros(old_bytes, bytes))
            }
            other => (Reserved::Allocated, other.map_err(io::Error::from)),
        };
        done.map_err(|error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => AreaError::Full { bytes },
            _ => cannot("made longer")(error),
        })?;
        self.area.bytes = bytes.max(old_bytes);
        Ok(how)
    }

    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        let zeros = vec![0; ZEROS_BYTES];
        let mut at = from;
        while at < to {
            let left = usize::try_from(to - at).unwrap_or(usize::MAX);
            let chunk = &zeros[..left.min(ZEROS_BYTES)];
            self.area.file.write_all_at(chunk, at)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }

    /// Writes only the first page, which must be there, and waits until everything is on disk.
    ///
    /// # Errors
    /// `ActiveSwap`, `Io`.
    pub fn write_first_page(&mut self, page: &[u8; PAGE_BYTES]) -> Result<(), AreaError> {
        let mut old = Box::new([0; PAGE_BYTES]);
        self.area
            .file
            .read_exact_at(old.as_mut_slice(), 0)
            .map_err(cannot("read"))?;
        self.undo.first_page = Some(old);
        self.area
            .file
            .write_all_at(page, 0)
            .and_then(|()| self.area.file.sync_all())
            .map_err(cannot("written"))
    }

    /// Keeps every change.
    pub fn keep(mut self) {
        self.undo = Undo::default();
    }
}

/// As far as the disk permits. Errors are dropped: whoever drops an area has an error to report already.
impl Drop for NewArea {
    fn drop(&mut self) {
        let undo = std::mem::take(&mut self.undo);
        if undo.remove {
            if self.area.is_named() {
                let _ = std::fs::remove_file(&self.area.path);
            }
            return;
        }
        if let Some(page) = undo.first_page {
            let _ = self.area.file.write_all_at(page.as_slice(), 0);
            let _ = self.area.file.sync_all();
        }
        if let Some(bytes) = undo.truncate_to {
            let _ = self.area.file.set_len(bytes);
        }
    }
}

#[cfg(test)]
#[path = "new_area_tests.rs"]
mod tests;
