//! What an actor opens before its first step: the objects behind its mappings, a pipe, and files for I/O.
//!
//! Unsafe is needed here because this crate calls libc directly, and a forked child may not allocate.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{FromRawFd as _, IntoRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::program::access::Channels;
use crate::program::calls::PAGE_BYTES;
use crate::program::content;
use crate::program::model::{FILE, MEMFD, Model, OBJECT_PAGES, SHARED_FILE, SHARED_MEMFD};

/// Descriptors of the objects that have one.
pub(crate) type Objects = [i32; SHARED_MEMFD as usize + 1];

/// An actor's pages of the file for direct I/O: one for itself, the others for its children.
const DIRECT_PAGES: u32 = 64;

/// Makes the objects and records in the model what they hold.
///
/// # Errors
/// A file cannot be made.
pub(crate) fn objects(model: &mut Model, actor: u32) -> io::Result<Objects> {
    let mut descriptors = [-1; SHARED_MEMFD as usize + 1];
    for object in [FILE, MEMFD, SHARED_FILE, SHARED_MEMFD] {
        let mut file = if object == FILE || object == SHARED_FILE {
            nameless(0)?
        } else {
            // SAFETY: makes a descriptor. The file below owns it.
            let fd = unsafe { libc::memfd_create(c"chaos".as_ptr(), libc::MFD_CLOEXEC) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the descriptor was just made, and nobody else owns it.
            unsafe { File::from_raw_fd(fd) }
        };
        for page in 0..OBJECT_PAGES {
            let stamp = content::stamp(usize::from(object) << 24 | actor as usize, page);
            let words = content::page(stamp).0;
            file.write_all(&words.map(u64::to_ne_bytes).concat())?;
            model.objects[object as usize][page] = stamp;
        }
        descriptors[object as usize] = file.into_raw_fd();
    }
    Ok(descriptors)
}

/// A file in the working directory whose name was removed.
fn nameless(flags: i32) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE | flags)
        .open(".")
}

/// Opens the descriptors for transfers. On a file system without `O_DIRECT` the pipe is used instead.
///
/// # Errors
/// The pipe or `/proc/self/mem` cannot be opened.
pub(crate) fn channels(actor: u32) -> io::Result<Channels> {
    let direct = nameless(libc::O_DIRECT).and_then(|file| {
        file.set_len(u64::from(DIRECT_PAGES) * PAGE_BYTES as u64)?;
        Ok(file.into_raw_fd())
    });
    let mut channels = Channels {
        pipe: [-1; 2],
        direct: direct.unwrap_or(-1),
        offset: 0,
        memory: -1,
    };
    channels.own(actor)?;
    Ok(channels)
}

impl Channels {
    /// Opens the descriptors again that a forked child must not share with its parent. Allocates nothing.
    ///
    /// # Errors
    /// The pipe or `/proc/self/mem` cannot be opened.
    pub(crate) fn own(&mut self, actor: u32) -> io::Result<()> {
        let path = c"/proc/self/mem".as_ptr();
        // SAFETY: both calls make descriptors and write into arrays of the right size. The path ends with a zero.
        unsafe {
            self.memory = libc::open(path, libc::O_RDWR | libc::O_CLOEXEC);
            if self.memory < 0 || libc::pipe2(self.pipe.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        self.offset = i64::from(actor % DIRECT_PAGES) * PAGE_BYTES as i64;
        Ok(())
    }
}
