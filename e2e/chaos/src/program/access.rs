//! The ways in which bytes come into memory and out of it.
//!
//! Nothing here allocates: the pipe and the files were opened before. Unsafe is needed because these system calls get
//! raw addresses of pages that the plan maps and unmaps, for which no reference could be valid.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::program::calls::{Answer, PAGE_BYTES, Span, answer, submit};
use crate::program::content::{PAGE_WORDS, Words, word};
use crate::step::Access;

/// The open descriptors of an actor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels {
    /// The reading end and the writing end.
    pub(crate) pipe: [i32; 2],
    /// A file opened with `O_DIRECT`, or -1 if the file system does not support it.
    pub(crate) direct: i32,
    /// The offset of this actor's page in that file.
    pub(crate) offset: i64,
    /// `/proc/self/mem`.
    pub(crate) memory: i32,
}

/// A page of this process.
fn span(address: usize) -> Span {
    Span {
        start: address,
        bytes: PAGE_BYTES,
    }
}

fn own(words: &Words) -> Span {
    span((&raw const *words).addr())
}

impl Channels {
    /// Reads the page at `address`. Returns the number of bytes or an error.
    pub(crate) fn read(&self, address: usize, into: &mut Words, by: Access) -> Answer {
        // SAFETY: for all calls below: the buffer is a page, and the page is the caller's own. The kernel answers with
        // an error if it cannot be read.
        unsafe {
            match by {
                Access::Touch => {
                    for index in 0..PAGE_WORDS {
                        let at =
                            std::ptr::with_exposed_provenance::<AtomicU64>(address + index * 8);
                        into.0[index] = (*at).load(Ordering::Relaxed);
                    }
                    (PAGE_BYTES as i64, 0)
                }
                Access::ProcessVm => {
                    let (local, remote) = (own(into).vector(), span(address).vector());
                    let pid = libc::getpid();
                    let (local, remote) = (&raw const local, &raw const remote);
                    answer(libc::process_vm_readv(pid, local, 1, remote, 1, 0) as i64)
                }
                Access::ProcMem => pread(self.memory, into, address as i64),
                Access::DirectIo if self.direct >= 0 => {
                    let buffer = std::ptr::with_exposed_provenance(address);
                    let (fd, at) = (self.direct, self.offset);
                    let wrote = answer(libc::pwrite(fd, buffer, PAGE_BYTES, at) as i64);
                    if wrote.1 != 0 {
                        return wrote;
                    }
                    pread(self.direct, into, self.offset)
                }
                Access::IoUringFixed => {
                    let wrote = self.fixed(address, true);
                    if wrote.0 == PAGE_BYTES as i64 {
                        read_all(self.pipe[0], own(into).start);
                    }
                    wrote
                }
                Access::Pipe | Access::DirectIo => {
                    let buffer = std::ptr::with_exposed_provenance(address);
                    let wrote = answer(libc::write(self.pipe[1], buffer, PAGE_BYTES) as i64);
                    if wrote.0 > 0 {
                        let got =
                            libc::read(self.pipe[0], into.0.as_mut_ptr().cast(), wrote.0 as usize);
                        return answer(got as i64);
                    }
                    wrote
                }
            }
        }
    }

    /// Writes the page at `address`. Returns the number of bytes or an error.
    pub(crate) fn write(&self, address: usize, from: &Words, by: Access) -> Answer {
        let source = from.0.as_ptr();
        // SAFETY: as in `read`. The caller knows that the page may be written.
        unsafe {
            match by {
                Access::Touch => {
                    for index in 0..PAGE_WORDS {
                        let at =
                            std::ptr::with_exposed_provenance::<AtomicU64>(address + index * 8);
                        (*at).store(from.0[index], Ordering::Relaxed);
                    }
                    (PAGE_BYTES as i64, 0)
                }
                Access::ProcessVm => {
                    let (local, remote) = (own(from).vector(), span(address).vector());
                    let pid = libc::getpid();
                    let (local, remote) = (&raw const local, &raw const remote);
                    answer(libc::process_vm_writev(pid, local, 1, remote, 1, 0) as i64)
                }
                Access::ProcMem => {
                    let at = address as i64;
                    answer(libc::pwrite(self.memory, source.cast(), PAGE_BYTES, at) as i64)
                }
                Access::DirectIo if self.direct >= 0 => {
                    let (fd, at) = (self.direct, self.offset);
                    let wrote = answer(libc::pwrite(fd, source.cast(), PAGE_BYTES, at) as i64);
                    if wrote.1 != 0 {
                        return wrote;
                    }
                    let buffer = std::ptr::with_exposed_provenance_mut(address);
                    answer(libc::pread(fd, buffer, PAGE_BYTES, at) as i64)
                }
                Access::IoUringFixed => {
                    libc::write(self.pipe[1], source.cast(), PAGE_BYTES);
                    let got = self.fixed(address, false);
                    if got.0 != PAGE_BYTES as i64 {
                        // The pipe must be empty for the next transfer.
                        let mut rest = Words([0; PAGE_WORDS]);
                        libc::read(self.pipe[0], rest.0.as_mut_ptr().cast(), PAGE_BYTES);
                    }
                    got
                }
                Access::Pipe | Access::DirectIo => {
                    libc::write(self.pipe[1], source.cast(), PAGE_BYTES);
                    read_all(self.pipe[0], address)
                }
            }
        }
    }

    /// One transfer between the pipe and a page that is registered as a fixed buffer.
    fn fixed(&self, address: usize, out: bool) -> Answer {
        let Ok(mut ring) = io_uring::IoUring::new(2) else {
            return (-1, libc::ENOSYS);
        };
        let buffer = [span(address).vector()];
        // SAFETY: the page is the caller's own and stays mapped until the ring is gone, at the end of this function.
        if let Err(error) = unsafe { ring.submitter().register_buffers(&buffer) } {
            return (-1, error.raw_os_error().unwrap_or(libc::EIO));
        }
        let [read, write] = self.pipe.map(io_uring::types::Fd);
        let pointer = std::ptr::with_exposed_provenance_mut(address);
        let entry = if out {
            io_uring::opcode::WriteFixed::new(write, pointer, PAGE_BYTES as u32, 0).build()
        } else {
            io_uring::opcode::ReadFixed::new(read, pointer, PAGE_BYTES as u32, 0).build()
        };
        // SAFETY: as above.
        let pushed = unsafe { ring.submission().push(&entry) };
        submit(&mut ring, pushed.is_ok())
    }
}

/// # Safety
/// There is nothing to ensure: the buffer is a page.
unsafe fn pread(fd: i32, into: &mut Words, at: i64) -> Answer {
    let buffer = into.0.as_mut_ptr().cast();
    // SAFETY: the buffer is a page and lives during the call.
    answer(unsafe { libc::pread(fd, buffer, PAGE_BYTES, at) } as i64)
}

/// Reads a page from a pipe that contains one, in as many pieces as necessary.
///
/// # Safety
/// The page at `address` is the caller's own.
unsafe fn read_all(fd: i32, address: usize) -> Answer {
    let mut done = 0;
    while done < PAGE_BYTES {
        let buffer = std::ptr::with_exposed_provenance_mut(address + done);
        // SAFETY: the caller promises that the page is its own, and `done` stays below its size.
        let got = answer(unsafe { libc::read(fd, buffer, PAGE_BYTES - done) } as i64);
        if got.0 <= 0 {
            return got;
        }
        done += got.0 as usize;
    }
    (done as i64, 0)
}

/// Does the page hold the content that `stamp` names? Stops at the first difference.
pub(crate) fn holds(words: &Words, stamp: u64) -> bool {
    (0..PAGE_WORDS).all(|index| words.0[index] == word(stamp, index))
}
