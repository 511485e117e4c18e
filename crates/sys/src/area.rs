//! A file or block device that becomes a swap area: opening it, looking at what it holds, giving it room, writing its
//! first page.
//!
//! Nothing half made stays: what was changed is taken back when an [`Area`] is dropped before [`Area::keep`]. Only a
//! process that is killed in between leaves a file behind, without a header. For one thread.

use std::fs::{File, FileType, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};
use rustix::io::{Errno, retry_on_intr};

use crate::procfs;

/// What is looked at from the start: file systems, partition tables and volumes have what they are known by in there.
const HEAD_BYTES: u64 = 1 << 20;
/// What is looked at before the end: copies of partition tables and the labels of volumes.
const TAIL_BYTES: u64 = 64 << 10;
/// Bytes of a page, and of the header.
const PAGE_BYTES: usize = 4096;
/// Zeros that are written at once where a file system cannot reserve blocks.
const ZEROS_BYTES: usize = 1 << 20;
/// The unit in which the size of files on disk is told, whatever the file system's blocks are.
const STAT_BLOCK_BYTES: u64 = 512;
/// Mode of a new file: what was in memory is nobody else's business.
const MODE: u32 = 0o600;
/// Bits of a mode that let group and others do something.
const MODE_OTHERS: u32 = 0o077;

/// What holds an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    RegularFile,
    /// A block device.
    BlockDevice,
}

/// Why something cannot become a swap area.
#[derive(Debug, thiserror::Error)]
pub enum AreaError {
    /// No such file.
    #[error("there is no such file or device")]
    Missing,
    /// Neither a regular file nor a block device.
    #[error("it is a {what}: a swap area is made in a regular file or block device")]
    OtherKind {
        /// What it is.
        what: &'static str,
    },
    /// The name is taken, though no file is to be found there.
    #[error("it is a symbolic link to nothing: remove the link, or make what it points to")]
    Dangling,
    /// The kernel swaps to it.
    #[error("the kernel is swapping to it at this moment: end that with swapoff first")]
    ActiveSwap,
    /// Somebody has it for himself.
    #[error(
        "it is in use, mounted or part of a volume perhaps: end that first (lsblk shows what holds a device)"
    )]
    Busy,
    /// No room.
    #[error(
        "{bytes} bytes do not fit, the file system or the user's quota is full: make room or choose a smaller size"
    )]
    Full {
        /// How many were wanted.
        bytes: u64,
    },
    /// Anything else.
    #[error("it cannot be {action}: {error}")]
    Io {
        /// What was tried: "it cannot be ...".
        action: &'static str,
        /// Why not.
        error: io::Error,
    },
}

/// Turns an error of the kernel into one of ours; `action` completes "it cannot be ...".
fn cannot(action: &'static str) -> impl Fn(io::Error) -> AreaError {
    move |error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        // Only for the kernel's own swap files is a write refused so.
        Some(Errno::TXTBSY) => AreaError::ActiveSwap,
        _ => AreaError::Io { action, error },
    }
}

/// How a file was given its room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// All blocks are reserved.
    Allocated,
    /// The file system cannot reserve blocks: zeros were written behind the old end.
    Written,
}

/// What a file or device holds at its two ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// The first MiB, or less where there is less.
    pub head: Vec<u8>,
    /// The last 64 KiB, or less where there is less.
    pub tail: Vec<u8>,
}

impl Ends {
    /// Whether there are only zeros: nothing that is known by what stands at either end.
    pub fn are_blank(&self) -> bool {
        self.head.iter().chain(&self.tail).all(|byte| *byte == 0)
    }
}

/// A file or block device, open for reading and writing. Dropping it takes back every change, unless it is kept.
#[derive(Debug)]
pub struct Area {
    file: File,
    path: PathBuf,
    kind: Kind,
    bytes: u64,
    undo: Undo,
}

/// What takes the changes back.
#[derive(Debug, Default)]
struct Undo {
    /// The file was made here.
    remove: bool,
    /// The length that a file had.
    truncate_to: Option<u64>,
    /// What the first page was.
    first_page: Option<Box<[u8; PAGE_BYTES]>>,
}

impl Area {
    /// Opens a file or block device that exists, a device for itself alone. Symbolic links are followed.
    ///
    /// # Errors
    /// `Missing`, `OtherKind`, `ActiveSwap`, `Busy`, `Io`. None of them has changed anything.
    pub fn open(path: &Path) -> Result<Area, AreaError> {
        let named = std::fs::metadata(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => AreaError::Missing,
            _ => cannot("looked at")(error),
        })?;
        // Before it is opened: to open may be to act, with some character devices and FIFOs.
        kind_of(named.file_type())?;
        if is_active_swap(&named)? {
            return Err(AreaError::ActiveSwap);
        }
        // On a device O_EXCL says that nobody else may hold it, mounts and the kernel's swap included.
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(OFlags::EXCL.bits().cast_signed())
            .open(path)
            .map_err(|error| match error.kind() {
                ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => AreaError::Busy,
                _ => cannot("opened for reading and writing")(error),
            })?;
        Area::of(file, path, Undo::default())
    }

    /// Makes an empty file that only its owner may read.
    ///
    /// # Errors
    /// `Dangling`, `Full`, `Io`.
    pub fn create(path: &Path) -> Result<Area, AreaError> {
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
        let remove = Undo {
            remove: true,
            ..Undo::default()
        };
        Area::of(file, path, remove)
    }

    fn of(file: File, path: &Path, undo: Undo) -> Result<Area, AreaError> {
        let looked_at = cannot("looked at");
        let metadata = file.metadata().map_err(&looked_at)?;
        let kind = kind_of(metadata.file_type())?;
        let bytes = match kind {
            Kind::RegularFile => metadata.len(),
            // stat tells nothing of a device's length, but its end can be sought.
            Kind::BlockDevice => seek(&file, SeekFrom::End(0))
                .map_err(io::Error::from)
                .map_err(&looked_at)?,
        };
        Ok(Area {
            file,
            path: path.to_owned(),
            kind,
            bytes,
            undo,
        })
    }

    /// File or device.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What it holds at its two ends.
    ///
    /// # Errors
    /// `Io`.
    pub fn ends(&self) -> Result<Ends, AreaError> {
        let tail_bytes = self.bytes.min(TAIL_BYTES);
        Ok(Ends {
            head: self.read(0, self.bytes.min(HEAD_BYTES))?,
            tail: self.read(self.bytes - tail_bytes, tail_bytes)?,
        })
    }

    /// `bytes` bytes from byte `at`; few enough to be kept in memory.
    fn read(&self, at: u64, bytes: u64) -> Result<Vec<u8>, AreaError> {
        let mut content = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        self.file
            .read_exact_at(&mut content, at)
            .map_err(cannot("read"))?;
        Ok(content)
    }

    /// Whether a regular file has places without blocks: room for them may be missing when they are written, and the
    /// kernel's own swap refuses such files. False where the file system does not tell.
    pub fn has_holes(&self) -> bool {
        let Ok(metadata) = self.file.metadata() else {
            return false;
        };
        // Reserved blocks that were never written are reported as a hole too, but they are counted.
        self.kind == Kind::RegularFile
            && metadata.blocks().saturating_mul(STAT_BLOCK_BYTES) < self.bytes
            && seek(&self.file, SeekFrom::Hole(0)).is_ok_and(|hole| hole < self.bytes)
    }

    /// The mode of a regular file that group or others may read, write or execute.
    pub fn mode_for_others(&self) -> Option<u32> {
        let mode = self.file.metadata().ok()?.permissions().mode() & 0o7777;
        (self.kind == Kind::RegularFile && mode & MODE_OTHERS != 0).then_some(mode)
    }

    /// Gives a regular file `bytes` bytes with blocks behind all of them, or behind those that are new where the file
    /// system cannot reserve any. What is in the file stays, and it is never made shorter.
    ///
    /// # Errors
    /// `Full`, `ActiveSwap`, `Io`.
    pub fn reserve(&mut self, bytes: u64) -> Result<Reserved, AreaError> {
        let old_bytes = self.bytes;
        self.undo.truncate_to.get_or_insert(old_bytes);
        let reserved = retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), 0, bytes));
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
        self.bytes = bytes.max(old_bytes);
        Ok(how)
    }

    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        let zeros = vec![0; ZEROS_BYTES];
        let mut at = from;
        while at < to {
            let left = usize::try_from(to - at).unwrap_or(usize::MAX);
            let chunk = &zeros[..left.min(ZEROS_BYTES)];
            self.file.write_all_at(chunk, at)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }

    /// Writes the first page, which must be there, and nothing else, and waits until all is on disk.
    ///
    /// # Errors
    /// `ActiveSwap`, `Io`.
    pub fn write_first_page(&mut self, page: &[u8; PAGE_BYTES]) -> Result<(), AreaError> {
        let mut old = Box::new([0; PAGE_BYTES]);
        self.file
            .read_exact_at(old.as_mut_slice(), 0)
            .map_err(cannot("read"))?;
        self.undo.first_page = Some(old);
        self.file
            .write_all_at(page, 0)
            .and_then(|()| self.file.sync_all())
            .map_err(cannot("written"))
    }

    /// Lets every change stay.
    pub fn keep(mut self) {
        self.undo = Undo::default();
    }

    /// Whether the path still names this file.
    fn is_named(&self) -> bool {
        match (std::fs::metadata(&self.path), self.file.metadata()) {
            (Ok(named), Ok(opened)) => is_same(&named, &opened),
            _ => false,
        }
    }
}

/// As far as the disk lets it: whoever drops an area has an error to report already.
impl Drop for Area {
    fn drop(&mut self) {
        let undo = std::mem::take(&mut self.undo);
        if undo.remove {
            if self.is_named() {
                let _ = std::fs::remove_file(&self.path);
            }
            return;
        }
        if let Some(page) = undo.first_page {
            let _ = self.file.write_all_at(page.as_slice(), 0);
            let _ = self.file.sync_all();
        }
        if let Some(bytes) = undo.truncate_to {
            let _ = self.file.set_len(bytes);
        }
    }
}

fn kind_of(kind: FileType) -> Result<Kind, AreaError> {
    let what = if kind.is_file() {
        return Ok(Kind::RegularFile);
    } else if kind.is_block_device() {
        return Ok(Kind::BlockDevice);
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_char_device() {
        "character device"
    } else if kind.is_fifo() {
        "FIFO"
    } else {
        "socket"
    };
    Err(AreaError::OtherKind { what })
}

/// Whether the kernel swaps to this file or device, whatever it is called. One whose path in /proc/swaps leads
/// elsewhere from here is not found; the kernel itself refuses writes to it.
fn is_active_swap(metadata: &Metadata) -> Result<bool, AreaError> {
    let swaps = procfs::swaps().map_err(|error| AreaError::Io {
        action: "compared with the kernel's own swap",
        error: io::Error::other(error),
    })?;
    Ok(swaps
        .iter()
        .filter_map(|path| std::fs::metadata(path).ok())
        .any(|swap| is_same(&swap, metadata)))
}

/// Whether both are the same file, or the same device under any name.
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let device = |metadata: &Metadata| metadata.file_type().is_block_device();
    match (device(one), device(other)) {
        (true, true) => one.rdev() == other.rdev(),
        (false, false) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

#[cfg(test)]
#[path = "area_tests.rs"]
mod tests;
