//! Calls on files and devices that rustix lacks, and what `/sys` tells of them. No state.
//!
//! Unsafe is needed here because libc has these calls only as unsafe ones.

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use linux_raw_sys::ioctl::BLKDISCARD;
use rustix::fs::{major, minor};
use rustix::io::Errno;

/// The errno of a call that returned `done`.
fn checked(done: i32) -> Result<(), Errno> {
    if done >= 0 {
        return Ok(());
    }
    let errno = std::io::Error::last_os_error().raw_os_error();
    Err(errno.map_or(Errno::IO, Errno::from_raw_os_error))
}

/// Writes a range from the page cache to disk and waits for that. Reports an error of any page of the file since the
/// last call.
pub fn write_back(file: &File, at: u64, bytes: usize) -> Result<(), Errno> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let (at, bytes) = (at.cast_signed(), (bytes as u64).cast_signed());
    // SAFETY: the call takes only numbers and touches no memory of this process.
    checked(unsafe { libc::sync_file_range(file.as_raw_fd(), at, bytes, flags) })
}

/// Tells a block device that a range is not needed.
pub fn discard(device: &File, at: u64, bytes: u64) -> Result<(), Errno> {
    let range = [at, bytes];
    // SAFETY: BLKDISCARD reads two 64-bit numbers at its address, which is `range`. It removes content of the device,
    // as the caller wants, and touches no other memory of this process.
    checked(unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            libc::Ioctl::from(BLKDISCARD),
            range.as_ptr(),
        )
    })
}

/// Does a device rotate, or the device on which a file lies? False if `/sys` does not tell, as for file systems with
/// several devices or none.
pub fn is_rotating(metadata: &Metadata) -> bool {
    let device = if metadata.file_type().is_block_device() {
        metadata.rdev()
    } else {
        metadata.dev()
    };
    let device = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    // A partition has no such file of its own, but lies in its disk's directory.
    ["queue/rotational", "../queue/rotational"]
        .iter()
        .find_map(|name| std::fs::read(format!("{device}/{name}")).ok())
        .is_some_and(|told| told.first() == Some(&b'1'))
}
