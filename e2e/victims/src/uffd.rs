//! The part of userfaultfd that a program needs to serve its own faults.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::content::PAGE_BYTES;
use crate::wrong::{Checked, Wrong, call};

const UFFDIO_API: libc::Ioctl = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00;
const UFFDIO_UNREGISTER: libc::Ioctl = 0x8010_aa01;
const UFFDIO_WAKE: libc::Ioctl = 0x8010_aa02;
const UFFDIO_COPY: libc::Ioctl = 0xc028_aa03;
const UFFD_API: u64 = 0xaa;
const REGISTER_MODE_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;
/// Bytes of a message, and the place of a fault's address in it.
const MESSAGE_BYTES: usize = 32;
const MESSAGE_ADDRESS: usize = 16;
/// How long a read waits for a fault.
const POLL_MS: i32 = 20;

/// The program's own userfaultfd.
#[derive(Debug)]
pub(crate) struct Uffd(OwnedFd);

impl Uffd {
    pub(crate) fn open() -> Checked<Self> {
        // SAFETY: makes a descriptor and touches no memory.
        let fd =
            unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            return Err(Wrong::Unavailable {
                what: "userfaultfd",
                error,
            });
        }
        // SAFETY: the descriptor is new, and nobody else owns it.
        let this = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        this.ioctl("UFFDIO_API", UFFDIO_API, &mut [UFFD_API, 0, 0])?;
        Ok(this)
    }

    fn ioctl<const N: usize>(
        &self,
        what: &'static str,
        request: libc::Ioctl,
        argument: &mut [u64; N],
    ) -> Checked {
        // SAFETY: each request gets an argument of its own size; see the callers.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument.as_mut_ptr()) };
        call(what, result).map(drop)
    }

    pub(crate) fn register(&self, start: *mut u64, pages: usize) -> Checked {
        let range = [start.addr() as u64, (pages * PAGE_BYTES) as u64];
        let mut argument = [range[0], range[1], REGISTER_MODE_MISSING, 0];
        self.ioctl("UFFDIO_REGISTER", UFFDIO_REGISTER, &mut argument)
    }

    pub(crate) fn unregister(&self, start: *mut u64, pages: usize) -> Checked {
        let mut argument = [start.addr() as u64, (pages * PAGE_BYTES) as u64];
        self.ioctl("UFFDIO_UNREGISTER", UFFDIO_UNREGISTER, &mut argument)
    }

    /// Puts a copy of `source` at `target` and wakes those that wait for it.
    pub(crate) fn copy(&self, target: usize, source: *const u64) -> Checked {
        loop {
            let page = PAGE_BYTES as u64;
            let mut argument = [target as u64, source.addr() as u64, page, 0, 0];
            let result = self.ioctl("UFFDIO_COPY", UFFDIO_COPY, &mut argument);
            match result {
                Err(Wrong::Call { ref error, .. }) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => std::thread::yield_now(),
                    // Another thread was faster, but those that wait must still be woken.
                    Some(libc::EEXIST) => {
                        let mut range = [target as u64, page];
                        return self.ioctl("UFFDIO_WAKE", UFFDIO_WAKE, &mut range);
                    }
                    _ => return result,
                },
                _ => return result,
            }
        }
    }

    /// The page address of the next fault. `None` if there is none for a while.
    pub(crate) fn next_fault(&self) -> Checked<Option<usize>> {
        let fd = self.0.as_raw_fd();
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, valid for the call.
        call("poll", unsafe { libc::poll(&raw mut poll, 1, POLL_MS) })?;
        let mut message = [0u8; MESSAGE_BYTES];
        // SAFETY: the buffer is valid for its length.
        let len = unsafe { libc::read(fd, message.as_mut_ptr().cast(), message.len()) };
        if len != MESSAGE_BYTES.cast_signed() {
            let error = std::io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN) if len < 0 => Ok(None),
                _ => Err(Wrong::Call {
                    what: "read of a userfaultfd",
                    error,
                }),
            };
        }
        if message[0] != EVENT_PAGEFAULT {
            let found = message[0].into();
            let expected = EVENT_PAGEFAULT.into();
            return Err(Wrong::Result {
                what: "event of a userfaultfd",
                expected,
                found,
            });
        }
        let mut address = [0; 8];
        address.copy_from_slice(&message[MESSAGE_ADDRESS..MESSAGE_ADDRESS + 8]);
        let address = usize::from_le_bytes(address);
        Ok(Some(address & !(PAGE_BYTES - 1)))
    }
}
