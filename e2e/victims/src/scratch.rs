//! Files without a name, in the directory for temporary files.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::wrong::{Checked, Wrong};

/// An empty file that disappears when it is closed.
pub(crate) fn file() -> Checked<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(std::env::temp_dir())
        .map_err(|error| Wrong::Call {
            what: "open(O_TMPFILE) in the temporary directory",
            error,
        })
}

/// The same file opened for access past the page cache. `None` if its file system does not support that.
pub(crate) fn direct(file: &File) -> Option<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .ok()
}
