//! Files without a name. Nobody else can open them, and nothing of them stays, however this process ends.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Mode of a file: what was in memory is nobody else's business.
const MODE: u32 = 0o600;
/// Names that are tried where a file must have one for a moment. A name can be taken only by what a process of the same
/// number left behind when it was killed in that moment.
const NAMES_MAX: u32 = 100;

/// Why there is no private file.
#[derive(Debug, thiserror::Error)]
pub enum PrivateError {
    /// The path names a file.
    #[error("it exists and is no directory: give a directory, or a name that does not exist yet")]
    Exists,
    /// There is no such directory.
    #[error("there is no directory {}: make it, or give one that exists", .0.display())]
    NoDirectory(PathBuf),
    /// A file that is longer than this process may write.
    #[error(
        "{bytes} bytes are more than a file may have here, {limit_bytes} (ulimit -f): raise that limit"
    )]
    FileLimit {
        /// What was asked for.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// Longer than the file system permits.
    #[error("{bytes} bytes are more than a file of its file system can have: choose less")]
    TooLong {
        /// What was asked for.
        bytes: u64,
    },
    /// Anything else.
    #[error("no file can be made in it: {0}")]
    Io(io::Error),
}

/// Makes a file of `bytes` in a directory and reserves none of them; see [`Disk::private`](super::Disk::private).
pub(super) fn make(path: &Path, bytes: u64) -> Result<File, PrivateError> {
    let file = in_directory(directory(path)?)?;
    file.set_len(bytes).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge | ErrorKind::InvalidInput => PrivateError::TooLong { bytes },
        _ => PrivateError::Io(error),
    })?;
    Ok(file)
}

/// The directory that `path` names or would lie in.
fn directory(path: &Path) -> Result<&Path, PrivateError> {
    if path.is_dir() {
        return Ok(path);
    }
    // A link to nothing also takes a name.
    if path.symlink_metadata().is_ok() {
        return Err(PrivateError::Exists);
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    };
    if parent.is_dir() {
        Ok(parent)
    } else {
        Err(PrivateError::NoDirectory(parent.to_owned()))
    }
}

fn in_directory(directory: &Path) -> Result<File, PrivateError> {
    match unnamed(directory) {
        // ISDIR is the answer of kernels that do not know the flag for a file system.
        Err(error) if is_unsupported(&error) => named_for_a_moment(directory),
        made => made,
    }
    .map_err(PrivateError::Io)
}

fn is_unsupported(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL))
}

/// A file that never has a name.
fn unnamed(directory: &Path) -> io::Result<File> {
    // With EXCL the file cannot be given a name later.
    let flags = OFlags::TMPFILE | OFlags::EXCL;
    File::options()
        .read(true)
        .write(true)
        .mode(MODE)
        .custom_flags(flags.bits().cast_signed())
        .open(directory)
}

/// A file whose name is removed at once, for file systems that know no other way.
fn named_for_a_moment(directory: &Path) -> io::Result<File> {
    /// Keeps the names of this process's files apart.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut last = io::Error::from(ErrorKind::AlreadyExists);
    for _ in 0..NAMES_MAX {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".vswap-{}-{number}", std::process::id()));
        let mut options = File::options();
        match options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&path)
        {
            Ok(file) => return std::fs::remove_file(&path).map(|()| file),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::area_file::tests::Scratch;

    #[test]
    fn directories_and_new_names_lend_their_directory() {
        let scratch = Scratch::new();
        let taken = scratch.file("taken", b"content");
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert_eq!(directory(&scratch.0).unwrap(), scratch.0);
        assert_eq!(directory(&scratch.0.join("new")).unwrap(), scratch.0);
        assert_eq!(
            directory(Path::new("no-such-name")).unwrap(),
            Path::new(".")
        );
        for path in [&taken, &link] {
            assert!(matches!(directory(path), Err(PrivateError::Exists)));
        }
        for path in [scratch.0.join("no/such"), taken.join("below")] {
            assert!(matches!(
                directory(&path),
                Err(PrivateError::NoDirectory(_))
            ));
        }
    }

    #[test]
    fn both_ways_leave_no_name_and_let_nobody_in() {
        use std::os::unix::fs::{FileExt, MetadataExt};
        let scratch = Scratch::new();
        for made in [unnamed(&scratch.0), named_for_a_moment(&scratch.0)] {
            let file = made.unwrap();
            let metadata = file.metadata().unwrap();
            assert_eq!((metadata.nlink(), metadata.mode() & 0o7777), (0, 0o600));
            file.write_all_at(b"content", 1000).unwrap();
            assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0);
        }
    }

    #[test]
    fn nothing_is_reserved_and_too_much_is_refused() {
        use std::os::unix::fs::MetadataExt;
        let scratch = Scratch::new();
        let file = make(&scratch.0, 1 << 36).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 36);
        assert!(file.metadata().unwrap().blocks() < 64);
        let refused = make(&scratch.0, u64::MAX);
        assert!(
            matches!(refused, Err(PrivateError::TooLong { .. })),
            "{refused:?}"
        );
    }
}
