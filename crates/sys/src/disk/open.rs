//! Making a [`Disk`] from an open file or device. For one thread.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl, fstatfs, ioctl_blksszget};
use rustix::process::{Resource, getrlimit};

use super::cipher::Cipher;
use super::cut::Length;
use super::lane::{Way, rings_are_permitted};
use super::lanes::Lanes;
use super::{Disk, PAGE_BYTES, PAGE_BYTES_64, Place, PrivateError, calls, private};
use crate::disk::area_file::{AreaError, AreaFile, Held, Kind, cannot};

/// What a disk is allowed to use. The default is everything: less is for tests and comparisons, and for files that must
/// leave others room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// io_uring, if this process may use it.
    pub io_uring: bool,
    /// Direct I/O, if the file system can do it.
    pub direct: bool,
    /// Encryption of the pages.
    pub encrypt: bool,
    /// Free room of its file system that a private file does not take: it is full before. 0 is to take all.
    pub keep_free_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            io_uring: true,
            direct: true,
            encrypt: true,
            keep_free_bytes: 0,
        }
    }
}

impl Disk {
    /// The storage of an area that exists. The caller reads ([`AreaFile::ends`]) and checks its header, and uses no
    /// page behind [`Disk::bytes`].
    ///
    /// # Errors
    /// `Holes`, `LargeBlocks`, `FileLimit`, `Io`.
    pub fn of_area(area: AreaFile, options: Options) -> Result<Disk, AreaError> {
        let bytes = area.bytes();
        if area.has_holes() {
            return Err(AreaError::Holes { bytes });
        }
        let place = match area.kind() {
            Kind::RegularFile => {
                check_file_limit(bytes)
                    .map_err(|limit_bytes| AreaError::FileLimit { bytes, limit_bytes })?;
                Place::AreaFile
            }
            Kind::BlockDevice => {
                check_blocks(&area.file)?;
                Place::Device
            }
        };
        // What was read while looking at the area is no longer needed in memory.
        let _ = fadvise(&*area.file, 0, None, Advice::DontNeed);
        Disk::new(area.file, place, bytes, options).map_err(cannot("looked at"))
    }

    /// A file without a name that grows with what is written, up to `bytes`, and is gone with this. `path` is the
    /// directory to make it in, or names a file that does not exist and lends its directory.
    ///
    /// # Errors
    /// [`PrivateError`].
    pub fn private(path: &Path, bytes: u64, options: Options) -> Result<Disk, PrivateError> {
        let bytes = bytes.saturating_add(PAGE_BYTES_64);
        check_file_limit(bytes)
            .map_err(|limit_bytes| PrivateError::FileLimit { bytes, limit_bytes })?;
        let file = private::make(path, bytes)?;
        Disk::new(Held(file), Place::Private, bytes, options).map_err(PrivateError::Io)
    }

    /// A disk of `bytes`, with the spare page of a file.
    fn new(file: Held, place: Place, bytes: u64, options: Options) -> io::Result<Disk> {
        let length = (place != Place::Device).then(|| Length::new(bytes));
        let rotating = calls::is_rotating(&file.metadata()?);
        let is_private = place == Place::Private;
        let cipher = options.encrypt.then(Cipher::random);
        // Set now and not when the file was opened: one that cannot is then open all the same.
        let direct = options.direct
            && fcntl_getfl(&*file)
                .is_ok_and(|flags| fcntl_setfl(&*file, flags | OFlags::DIRECT).is_ok());
        let way = if options.io_uring && !is_on_fuse(&file) && rings_are_permitted() {
            Way::Ring
        } else {
            Way::Call
        };
        Ok(Disk {
            lanes: Lanes::new(way),
            file,
            place,
            bytes: length.as_ref().map_or(bytes, Length::usable_bytes),
            length,
            rotating,
            cipher: cipher.transpose()?,
            keep_free_bytes: if is_private {
                options.keep_free_bytes
            } else {
                0
            },
            direct: AtomicBool::new(direct),
            discards: AtomicBool::new(place != Place::AreaFile),
            through_cache: Mutex::new(()),
        })
    }
}

/// Does the file lie in a file system of user space (FUSE)? If such a file system answers a direct read of an io_uring
/// with less than was asked for, the kernel (seen with 6.18) asks for the rest from the place where the whole began.
/// The wrong bytes come, and the request counts as done. Plain calls return what was read.
fn is_on_fuse(file: &File) -> bool {
    const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
    fstatfs(file).is_ok_and(|system| system.f_type == FUSE_SUPER_MAGIC)
}

/// Refuses a device whose blocks are larger than a page.
fn check_blocks(device: &File) -> Result<(), AreaError> {
    let block_bytes = ioctl_blksszget(device).map_err(|errno| cannot("looked at")(errno.into()))?;
    if block_bytes as usize > PAGE_BYTES {
        return Err(AreaError::LargeBlocks { block_bytes });
    }
    Ok(())
}

/// Refuses a file longer than this process may write, and returns the limit. The kernel would end the process
/// (`SIGXFSZ`) when it got there.
fn check_file_limit(bytes: u64) -> Result<(), u64> {
    match getrlimit(Resource::Fsize).current {
        Some(limit_bytes) if limit_bytes < bytes => Err(limit_bytes),
        _ => Ok(()),
    }
}
