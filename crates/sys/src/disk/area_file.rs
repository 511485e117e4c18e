//! A file or block device that holds a swap area, or will hold one: opening it for one user, looking at what it holds.
//!
//! Nothing is changed here: [`NewArea`](crate::disk::new_area::NewArea) makes areas, [`Disk`](crate::disk::Disk) uses
//! them. An open one has no second user: a device is opened exclusively, and a file is locked. For one thread.

use std::fs::{File, FileType, Metadata};
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, SeekFrom, flock, seek};
use rustix::io::Errno;

use crate::process::procfs;

/// Bytes looked at from the start. File systems, partition tables and volumes have their marks in there.
const HEAD_BYTES: u64 = 1 << 20;
/// Bytes looked at before the end: copies of partition tables and the labels of volumes.
const TAIL_BYTES: u64 = 64 << 10;
/// The unit in which stat tells the size of files on disk, whatever the file system's blocks are.
const STAT_BLOCK_BYTES: u64 = 512;
/// Bits of a mode that permit something to group and others.
const MODE_OTHERS: u32 = 0o077;

/// What holds an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    RegularFile,
    /// A block device.
    BlockDevice,
}

/// Why something cannot be a swap area, or become one.
#[derive(Debug, thiserror::Error)]
pub enum AreaError {
    /// No such file.
    #[error("there is no such file or device")]
    Missing,
    /// Neither a regular file nor a block device.
    #[error("it is a {what}: a swap area lies in a regular file or block device")]
    OtherKind {
        /// What it is.
        what: &'static str,
    },
    /// The name is taken, but there is no file.
    #[error("it is a symbolic link to nothing: remove the link, or make what it points to")]
    Dangling,
    /// The kernel swaps to it.
    #[error("the kernel is swapping to it at this moment: end that with swapoff first")]
    ActiveSwap,
    /// Somebody has it exclusively.
    #[error(
        "it is in use, mounted or part of a volume perhaps: end that first (lsblk shows what holds a device)"
    )]
    Busy,
    /// A file that is locked.
    #[error("another vswap uses it: wait until that has ended, or choose another file")]
    Locked,
    /// A file with places that have no blocks.
    #[error(
        "it has holes, so the disk may be full when they are written: fill them with vswap mkswap --size {bytes}"
    )]
    Holes {
        /// Its length.
        bytes: u64,
    },
    /// A device that cannot take a single page.
    #[error(
        "its logical blocks have {block_bytes} bytes and pages 4096: choose a device with smaller blocks, or a file on \
         this one"
    )]
    LargeBlocks {
        /// Bytes of its blocks.
        block_bytes: u32,
    },
    /// A file that is longer than this process may write.
    #[error(
        "it has {bytes} bytes, and files may have {limit_bytes} here (ulimit -f): raise that limit, or choose less"
    )]
    FileLimit {
        /// Its length.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// No room.
    #[error(
        "{bytes} bytes do not fit, the file system or the user's quota is full: make room or choose a smaller size"
    )]
    Full {
        /// How many bytes were wanted.
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
pub(crate) fn cannot(action: &'static str) -> impl Fn(io::Error) -> AreaError {
    move |error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        // Only for the kernel's own swap files is a write refused in this way.
        Some(Errno::TXTBSY) => AreaError::ActiveSwap,
        _ => AreaError::Io { action, error },
    }
}

/// What a file or device holds at its two ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// The first MiB, or everything if it is shorter.
    pub head: Vec<u8>,
    /// The last 64 KiB, or everything if it is shorter.
    pub tail: Vec<u8>,
}

impl Ends {
    /// Are there only zeros? Then neither end has a mark of anything.
    pub fn are_blank(&self) -> bool {
        self.head.iter().chain(&self.tail).all(|byte| *byte == 0)
    }
}

/// An open file whose lock ends with this value. A forked child that has not yet reached its own program, or never
/// will, may have a copy of the descriptor; the lock ends all the same.
#[derive(Debug)]
pub(crate) struct Held(pub(crate) File);

impl Deref for Held {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// A file or block device, open for reading and writing and for nobody else.
#[derive(Debug)]
pub struct AreaFile {
    pub(crate) file: Held,
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
}

impl AreaFile {
    /// Opens a file or block device that exists. Symbolic links are followed.
    ///
    /// # Errors
    /// `Missing`, `OtherKind`, `ActiveSwap`, `Busy`, `Locked`, `Io`.
    pub fn open(path: &Path) -> Result<AreaFile, AreaError> {
        let named = std::fs::metadata(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => AreaError::Missing,
            _ => cannot("looked at")(error),
        })?;
        // Checked before opening: opening some character devices and FIFOs has effects.
        kind_of(named.file_type())?;
        if is_active_swap(&named)? {
            return Err(AreaError::ActiveSwap);
        }
        // On a device O_EXCL demands that nobody else holds it, not even a mount or the kernel's swap.
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(OFlags::EXCL.bits().cast_signed())
            .open(path)
            .map_err(|error| match error.kind() {
                ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => AreaError::Busy,
                _ => cannot("opened for reading and writing")(error),
            })?;
        AreaFile::of(file, path)
    }

    /// Takes a file that is open for reading and writing.
    ///
    /// # Errors
    /// `OtherKind`, `Locked`, `Io`.
    pub(crate) fn of(file: File, path: &Path) -> Result<AreaFile, AreaError> {
        let looked_at = cannot("looked at");
        let metadata = file.metadata().map_err(&looked_at)?;
        let kind = kind_of(metadata.file_type())?;
        let bytes = match kind {
            Kind::RegularFile => {
                lock(&file)?;
                metadata.len()
            }
            Kind::BlockDevice => device_bytes(&file).map_err(&looked_at)?,
        };
        Ok(AreaFile {
            file: Held(file),
            path: path.to_owned(),
            kind,
            bytes,
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

    /// Does a regular file have places without blocks? Room for them may be missing when they are written, and the
    /// kernel's own swap refuses such files. False if the file system does not tell.
    pub fn has_holes(&self) -> bool {
        let Ok(metadata) = self.file.metadata() else {
            return false;
        };
        // Reserved blocks that were never written are reported as a hole too, but they are counted.
        self.kind == Kind::RegularFile
            && metadata.blocks().saturating_mul(STAT_BLOCK_BYTES) < self.bytes
            && seek(&*self.file, SeekFrom::Hole(0)).is_ok_and(|hole| hole < self.bytes)
    }

    /// The mode of a regular file, if group or others may read, write or execute it.
    pub fn mode_for_others(&self) -> Option<u32> {
        let mode = self.file.metadata().ok()?.permissions().mode() & 0o7777;
        (self.kind == Kind::RegularFile && mode & MODE_OTHERS != 0).then_some(mode)
    }

    /// Does the path still name this file?
    pub(crate) fn is_named(&self) -> bool {
        match (std::fs::metadata(&self.path), self.file.metadata()) {
            (Ok(named), Ok(opened)) => is_same(&named, &opened),
            _ => false,
        }
    }
}

/// How long a locked file is tried again. The kernel takes the rings of a vswap that has just ended apart a little
/// later, and they hold its files.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_PACE: Duration = Duration::from_millis(10);

/// Locks a file for as long as it is open. If the file system cannot lock, that is an error: two users of one area
/// would each read the other's memory.
fn lock(file: &File) -> Result<(), AreaError> {
    let until = Instant::now() + LOCK_PATIENCE;
    let done = loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(LOCK_PACE),
            done => break done,
        }
    };
    done.map_err(|errno| match errno {
        Errno::WOULDBLOCK => AreaError::Locked,
        _ => cannot("locked")(errno.into()),
    })
}

/// The length of a device. stat does not tell it, but seeking to the end does.
pub(crate) fn device_bytes(device: &File) -> io::Result<u64> {
    Ok(seek(device, SeekFrom::End(0))?)
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

/// Does the kernel swap to this file or device, whatever its name? Misses one whose path in /proc/swaps leads elsewhere
/// from here; the kernel itself refuses writes to that one.
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

/// Are both the same file, or the same device under any name?
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let device = |metadata: &Metadata| metadata.file_type().is_block_device();
    match (device(one), device(other)) {
        (true, true) => one.rdev() == other.rdev(),
        (false, false) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

#[cfg(test)]
#[path = "area_file_tests.rs"]
pub(crate) mod tests;
