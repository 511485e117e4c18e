//! userfaultfd: faults and layout events of a process, and the calls that answer them.
//!
//! A `Userfaultfd` belongs to the address space of the process that made it. Any other process that holds a descriptor
//! may use it. Every call is one system call, allocates nothing and touches no errno or thread-local storage. All calls
//! may run concurrently. Addresses are those of the owning address space, in bytes, page aligned; lengths are in bytes,
//! multiples of the page size.
//!
//! This module decides nothing. Retrying, waking and forgetting are for the pager.
//!
//! Unsafe is needed here because rustix has no wrappers for these ioctls. The number of each ioctl fixes the size of
//! its record, and the kernel checks all addresses in it. They are those of the owning address space, where Rust has no
//! references.

mod error;
mod message;
mod open;
mod wait;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use linux_raw_sys::general as raw;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, Updater, opcode};

use crate::kind::{self, Kind};
use crate::memory;
use crate::memory::pagemap::PAGE_BYTES;

pub use error::{ReadError, UffdError};
pub use message::{MESSAGES_MAX, Message, Messages};
pub use open::{DEVICE, Faults, OpenError, Source, shake_hands};
pub use wait::{Ready, Waiter};

/// Feature bits for the handshake.
pub mod feature {
    use linux_raw_sys::general as raw;

    /// Messages tell write-protect faults from missing pages.
    pub const PAGEFAULT_FLAG_WP: u64 = raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64;
    /// Fork events; needs CAP_SYS_PTRACE.
    pub const EVENT_FORK: u64 = raw::UFFD_FEATURE_EVENT_FORK as u64;
    /// mremap events.
    pub const EVENT_REMAP: u64 = raw::UFFD_FEATURE_EVENT_REMAP as u64;
    /// madvise(DONTNEED, FREE, REMOVE) events.
    pub const EVENT_REMOVE: u64 = raw::UFFD_FEATURE_EVENT_REMOVE as u64;
    /// munmap events.
    pub const EVENT_UNMAP: u64 = raw::UFFD_FEATURE_EVENT_UNMAP as u64;
    /// SIGBUS in the faulting thread in place of a message.
    pub const SIGBUS: u64 = raw::UFFD_FEATURE_SIGBUS as u64;
    /// Faults name their thread.
    pub const THREAD_ID: u64 = raw::UFFD_FEATURE_THREAD_ID as u64;
    /// Faults carry the exact address.
    pub const EXACT_ADDRESS: u64 = raw::UFFD_FEATURE_EXACT_ADDRESS as u64;
    /// Write protection also marks pages that are not there yet (Linux 6.4).
    pub const WP_UNPOPULATED: u64 = raw::UFFD_FEATURE_WP_UNPOPULATED as u64;
    /// UFFDIO_POISON (Linux 6.6).
    pub const POISON: u64 = raw::UFFD_FEATURE_POISON as u64;
    /// The kernel resolves write-protect faults itself, and PAGEMAP_SCAN finds the written pages (Linux 6.7).
    pub const WP_ASYNC: u64 = raw::UFFD_FEATURE_WP_ASYNC as u64;
    /// UFFDIO_MOVE (Linux 6.8).
    pub const MOVE: u64 = raw::UFFD_FEATURE_MOVE as u64;
}

/// What `Userfaultfd::is_registered` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registered {
    /// One registered mapping spans the range.
    Yes,
    /// There is a hole, an unregistered mapping, or more than one mapping in the range.
    No,
    /// A layout event is under way. Ask again after it was read and its thread has gone on.
    Unknown,
}

/// Modes of `Userfaultfd::register`, to be or-ed.
pub mod mode {
    use linux_raw_sys::general as raw;

    /// Faults on pages that are not there.
    pub const MISSING: u64 = raw::UFFDIO_REGISTER_MODE_MISSING as u64;
    /// Faults on writes to write-protected pages.
    pub const WP: u64 = raw::UFFDIO_REGISTER_MODE_WP as u64;
}

/// Modes of `Userfaultfd::copy`, to be or-ed.
pub mod copy_mode {
    use linux_raw_sys::general as raw;

    /// Do not wake the threads that wait for the pages.
    pub const DONTWAKE: u64 = raw::UFFDIO_COPY_MODE_DONTWAKE as u64;
    /// Map the pages write-protected.
    pub const WP: u64 = raw::UFFDIO_COPY_MODE_WP as u64;
}

/// Modes of `Userfaultfd::move_pages`, to be or-ed. linux-raw-sys 0.12 lacks them.
pub mod move_mode {
    /// Do not wake the threads that wait at the destination.
    pub const DONTWAKE: u64 = 1 << 0;
    /// Skip holes of the source. Without it the call ends with ENOENT at a hole.
    pub const ALLOW_SRC_HOLES: u64 = 1 << 1;
}

const GROUP: u8 = 0xAA;
/// Above the lowest address at which anything may be mapped.
const SOMEWHERE: u64 = 1 << 32;
const REGISTER: Opcode = opcode::read_write::<raw::uffdio_register>(GROUP, 0x00);
const UNREGISTER: Opcode = opcode::read::<raw::uffdio_range>(GROUP, 0x01);
const WAKE: Opcode = opcode::read::<raw::uffdio_range>(GROUP, 0x02);
const COPY: Opcode = opcode::read_write::<raw::uffdio_copy>(GROUP, 0x03);
const ZEROPAGE: Opcode = opcode::read_write::<raw::uffdio_zeropage>(GROUP, 0x04);
const MOVE: Opcode = opcode::read_write::<raw::uffdio_move>(GROUP, 0x05);
const WRITEPROTECT: Opcode = opcode::read_write::<raw::uffdio_writeprotect>(GROUP, 0x06);
const CONTINUE: Opcode = opcode::read_write::<raw::uffdio_continue>(GROUP, 0x07);
const POISON: Opcode = opcode::read_write::<raw::uffdio_poison>(GROUP, 0x08);

const _: () = assert!(GROUP as u32 == raw::USERFAULTFD_IOC);
const _: () = assert!(REGISTER == linux_raw_sys::ioctl::UFFDIO_REGISTER);
const _: () = assert!(UNREGISTER == linux_raw_sys::ioctl::UFFDIO_UNREGISTER);
const _: () = assert!(WAKE == linux_raw_sys::ioctl::UFFDIO_WAKE);
const _: () = assert!(COPY == linux_raw_sys::ioctl::UFFDIO_COPY);
const _: () = assert!(ZEROPAGE == linux_raw_sys::ioctl::UFFDIO_ZEROPAGE);
const _: () = assert!(WRITEPROTECT == linux_raw_sys::ioctl::UFFDIO_WRITEPROTECT);
const _: () = assert!(CONTINUE == linux_raw_sys::ioctl::UFFDIO_CONTINUE);
const _: () = assert!(MOVE == 0xc028_aa05 && size_of::<raw::uffdio_move>() == 40);
const _: () = assert!(POISON == 0xc020_aa08 && size_of::<raw::uffdio_poison>() == 32);

// linux-raw-sys 0.12 lacks the modes of UFFDIO_WRITEPROTECT.
const WRITEPROTECT_WP: u64 = 1 << 0;
const WRITEPROTECT_DONTWAKE: u64 = 1 << 1;

/// An owned userfaultfd descriptor.
#[derive(Debug)]
pub struct Userfaultfd {
    fd: OwnedFd,
}

impl AsFd for Userfaultfd {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Userfaultfd {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl From<Userfaultfd> for OwnedFd {
    fn from(uffd: Userfaultfd) -> OwnedFd {
        uffd.fd
    }
}

impl IntoRawFd for Userfaultfd {
    fn into_raw_fd(self) -> RawFd {
        self.fd.into_raw_fd()
    }
}

impl Userfaultfd {
    /// Takes a descriptor that is known to be a userfaultfd.
    pub fn from_fd(fd: OwnedFd) -> Userfaultfd {
        Userfaultfd { fd }
    }

    /// Takes a descriptor that came from a program. None if it is something else: what is read from a pipe, say, would
    /// pass for the kernel's messages, and a forged one makes this process close any of its descriptors.
    pub fn received(fd: OwnedFd) -> Option<Userfaultfd> {
        kind::is(&fd, Kind::Userfaultfd).then(|| Userfaultfd { fd })
    }

    /// Has the handshake been made? Before that every call fails, so nobody could tell that the memory has gone. Takes
    /// no descriptor.
    pub fn is_ready(&self) -> bool {
        // Nobody waits there, or is the worse for being woken.
        self.wake(SOMEWHERE, PAGE_BYTES).is_ok()
    }

    /// Another descriptor, close-on-exec, of the same userfaultfd.
    ///
    /// # Errors
    /// The errno of the dup, EMFILE among them.
    pub fn try_clone(&self) -> Result<Userfaultfd, Errno> {
        Ok(Userfaultfd {
            fd: rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?,
        })
    }

    /// Closes the userfaultfd for everybody who uses this value, and keeps one more of `other` in its place. Whoever
    /// waits for an answer to a fault waits no longer, unless another process has the userfaultfd too. Needs no
    /// descriptor. From then on every call fails.
    pub fn retire(&self, other: BorrowedFd<'_>) {
        // SAFETY: both numbers are descriptors that live as long as the borrows, and `self` stays the owner of its
        // number. rustix wants an exclusive borrow for this, but the kernel exchanges the file in one step.
        let _ = unsafe { libc::dup3(other.as_raw_fd(), self.as_raw_fd(), libc::O_CLOEXEC) };
    }

    /// Turns nonblocking reads on or off, for all descriptors of this userfaultfd. A blocking userfaultfd cannot be
    /// polled.
    ///
    /// # Errors
    /// The errno of fcntl.
    pub fn set_nonblocking(&self, on: bool) -> Result<(), Errno> {
        rustix::io::ioctl_fionbio(&self.fd, on)
    }

    /// Registers [start, start + bytes) in `mode::*`. Returns a bit mask of the calls that work on the range.
    ///
    /// # Errors
    /// `Busy` when another userfaultfd watches part of it, `Invalid` for a range or mapping that cannot be
    /// registered, `Gone`.
    ///
    /// # Safety
    /// When the range belongs to this process: nothing refers to it by reference, nothing the faults of which nobody
    /// answers lies in it, and all other calls on the range are answers that its users expect.
    pub unsafe fn register(&self, start: u64, bytes: u64, modes: u64) -> Result<u64, UffdError> {
        let range = raw::uffdio_range { start, len: bytes };
        let mut arg = raw::uffdio_register {
            range,
            mode: modes,
            ioctls: 0,
        };
        // SAFETY: the ioctl reads and writes one uffdio_register. The caller answers for the range.
        let done = unsafe { rustix::ioctl::ioctl(&self.fd, Updater::<REGISTER, _>::new(&mut arg)) };
        match done {
            Ok(()) => Ok(arg.ioctls),
            Err(errno) => Err(UffdError::new(errno, 0)),
        }
    }

    /// Unregisters [start, start + bytes) and wakes its waiters. Missing pages then read as zeros.
    ///
    /// # Errors
    /// `Invalid` when part of the range has no mapping, `Gone`.
    #[inline]
    pub fn unregister(&self, start: u64, bytes: u64) -> Result<(), UffdError> {
        let range = raw::uffdio_range { start, len: bytes };
        // SAFETY: the ioctl reads one uffdio_range.
        let done = unsafe { rustix::ioctl::ioctl(&self.fd, Setter::<UNREGISTER, _>::new(range)) };
        done.map_err(|errno| UffdError::new(errno, 0))
    }

    /// Fills missing pages at `destination` from `bytes` of this process's memory at `source`, in `copy_mode::*`.
    ///
    /// The kernel reads the source; an unreadable one gives `Other { EFAULT }`. Never overwrites a page.
    ///
    /// # Errors
    /// `Exists` when a page is there, `NoEntry` when nothing is registered there, `Again`, `Gone`, `NoMemory`.
    #[inline]
    pub fn copy(
        &self,
        destination: u64,
        source: *const u8,
        bytes: u64,
        modes: u64,
    ) -> Result<(), UffdError> {
        let src = source.expose_provenance() as u64;
        let mut arg = raw::uffdio_copy {
            dst: destination,
            src,
            len: bytes,
            mode: modes,
            copy: 0,
        };
        // SAFETY: the ioctl reads and writes one uffdio_copy. The kernel checks both addresses, and fills only missing
        // pages.
        let done = unsafe { rustix::ioctl::ioctl(&self.fd, Updater::<COPY, _>::new(&mut arg)) };
        done.map_err(|errno| UffdError::new(errno, arg.copy))
    }

    /// Has the memory ceased to exist? Changes nothing, even if the program has mapped something at the address: the
    /// kernel cannot read the page that it is asked to copy.
    pub fn is_gone(&self) -> bool {
        let Some(unreadable) = memory::unreadable_page() else {
            return false;
        };
        self.copy(SOMEWHERE, unreadable, PAGE_BYTES, 0) == Err(UffdError::Gone)
    }

    /// Fills missing pages with the shared zero page; wakes the waiters unless `dont_wake`.
    ///
    /// # Errors
    /// As for `copy`.
    #[inline]
    pub fn zeropage(&self, start: u64, bytes: u64, dont_wake: bool) -> Result<(), UffdError> {
        let range = raw::uffdio_range { start, len: bytes };
        let mode = if dont_wake {
            u64::from(raw::UFFDIO_ZEROPAGE_MODE_DONTWAKE)
        } else {
            0
        };
        let mut arg = raw::uffdio_zeropage {
            range,
            mode,
            zeropage: 0,
        };
        // SAFETY: the ioctl reads and writes one uffdio_zeropage.
        let done = unsafe { rustix::ioctl::ioctl(&self.fd, Updater::<ZEROPAGE, _>::new(&mut arg)) };
        done.map_err(|errno| UffdError::new(errno, arg.zeropage))
    }

    /// Write-protects the pages of a range.
    ///
    /// # Errors
    /// `NoEntry` when part of the range is not registered for WP, `Again`, `Gone`.
    #[inline]
    pub fn write_protect(&self, start: u64, bytes: u64) -> Result<(), UffdError> {
        self.write_protect_mode(start, bytes, WRITEPROTECT_WP)
    }

    /// Lifts write protection; wakes the waiters unless `dont_wake`.
    ///
    /// # Errors
    /// As for `write_protect`.
    #[inline]
    pub fn write_unprotect(
        &self,
        start: u64,
        bytes: u64,
        dont_wake: bool,
    ) -> Result<(), UffdError> {
        let mode = if dont_wake { WRITEPROTECT_DONTWAKE } else { 0 };
        self.write_protect_mode(start, bytes, mode)
    }

    #[inline]
    fn write_protect_mode(&self, start: u64, bytes: u64, mode: u64) -> Result<(), UffdError> {
        let range = raw::uffdio_range { start, len: bytes };
        let mut arg = raw::uffdio_writeprotect { range, mode };
        // SAFETY: the ioctl reads and writes one uffdio_writeprotect.
        let done =
            unsafe { rustix::ioctl::ioctl(&self.fd, Updater::<WRITEPROTECT, _>::new(&mut arg)) };
        done.map_err(|errno| UffdError::new(errno, 0))
    }

    /// Would the kernel answer `Again` now? True while a layout event is unread, or was read so recently that the
    /// thread that raised it has not run since.
    ///
    /// Asks with a write-protect call on an empty range. The kernel looks for changing mappings before it looks at the
    /// range. So the answer is EAGAIN while there are any, and otherwise EINVAL, with nothing done.
    #[inline]
    pub fn events_pending(&self) -> bool {
        matches!(
            self.write_protect_mode(0, 0, 0),
            Err(UffdError::Again { .. })
        )
    }

    /// Is all of a range of anonymous memory registered with some userfaultfd, as one mapping?
    ///
    /// Asks with UFFDIO_CONTINUE, which anonymous memory never supports. The kernel first looks for a registered
    /// mapping that spans the range (ENOENT), then at the kind of the mapping (EINVAL). So nothing is done either way.
    /// The mapping may be registered with any userfaultfd of the address space. Ask a userfaultfd without events, which
    /// always knows. One with events says EAGAIN as long as an event is under way. Costs about 0.3 us.
    #[inline]
    pub fn is_registered(&self, start: u64, bytes: u64) -> Registered {
        let range = raw::uffdio_range { start, len: bytes };
        let mut arg = raw::uffdio_continue {
            range,
            mode: 0,
            mapped: 0,
        };
        // SAFETY: the ioctl reads and writes one uffdio_continue. It maps nothing: it works only on files, which nobody
        // registers here.
        let done = unsafe { rustix::ioctl::ioctl(&self.fd, Updater::<CONTINUE, _>::new(&mut arg)) };
        match done {
            Err(Errno::NOENT | Errno::SRCH) => Registered::No,
            Err(Errno::AGAIN) => Registered::Unknown,
            _ => Registered::Yes,
        }
    }

    /// Wakes the threads that wait for pages of a range. A thread whose page is still missing faults again.
    ///
    /// # Errors
    /// `Invalid` for a range that is not page aligned.
    #[inline]
    pub fn wake(&self, start: u64, bytes: u64) -> Result<(), UffdError> {
        let range = raw::uffdio_range { start, len: bytes };
        // SAFETY: the ioctl reads one uffdio_range.
        let done = unsafe { rustix::ioctl::ioctl(&self.fd, Setter::<WAKE, _>::new(range)) };
        done.map_err(|errno| UffdError::new(errno, 0))
    }

    /// Moves pages within the owning address space, from `source` to missing pages at `destination`, in `move_mode::*`
    /// (Linux 6.8). Only with `ALLOW_SRC_HOLES` are holes of the source skipped and counted as done.
    ///
    /// # Errors
    /// `Busy` for pages that are pinned or shared by a fork, `NoEntry` for a hole or a missing mapping, `Invalid` for
    /// kinds of mappings that cannot take part or a range that crosses mappings, `Exists` at the destination,
    /// `Again`, `Gone`.
    ///
    /// # Safety
    /// The source loses its pages, and the kernel does not check that it is registered anywhere: then they would read
    /// as zeros. The caller knows that the source is registered, or that nobody wants its content.
    #[inline]
    pub unsafe fn move_pages(
        &self,
        destination: u64,
        source: u64,
        bytes: u64,
        modes: u64,
    ) -> Result<(), UffdError> {
        let mut arg = raw::uffdio_move {
            dst: destination,
            src: source,
            len: bytes,
            mode: modes,
            move_: 0,
        };
        // SAFETY: the ioctl reads and writes one uffdio_move. The caller answers for the source.
        let done = unsafe { rustix::ioctl::ioctl(&self.fd, Updater::<MOVE, _>::new(&mut arg)) };
        done.map_err(|errno| UffdError::new(errno, arg.move_))
    }

    /// Makes missing pages raise SIGBUS in every thread that touches them (Linux 6.6). Wakes the waiters unless
    /// `dont_wake`.
    ///
    /// # Errors
    /// As for `copy`.
    pub fn poison(&self, start: u64, bytes: u64, dont_wake: bool) -> Result<(), UffdError> {
        const POISON_DONTWAKE: u64 = 1 << 0;
        let range = raw::uffdio_range { start, len: bytes };
        let mode = if dont_wake { POISON_DONTWAKE } else { 0 };
        let mut arg = raw::uffdio_poison {
            range,
            mode,
            updated: 0,
        };
        // SAFETY: the ioctl reads and writes one uffdio_poison.
        let done = unsafe { rustix::ioctl::ioctl(&self.fd, Updater::<POISON, _>::new(&mut arg)) };
        done.map_err(|errno| UffdError::new(errno, arg.updated))
    }

    /// Reads up to `limit` (at most `MESSAGES_MAX`) messages and returns their number, 0 if there are none.
    ///
    /// Faults come before events in one read. With `limit` 1 several readers can share a burst of faults.
    ///
    /// # Errors
    /// The errno of read: EINTR, EINVAL before the handshake; EMFILE, ENFILE or ENOMEM when a fork message cannot be
    /// given its descriptor, and then it stays unread.
    pub fn read(&self, messages: &mut Messages, limit: usize) -> Result<usize, ReadError> {
        match messages.fill(self, limit) {
            Err(Errno::AGAIN) => Ok(0),
            other => other.map_err(ReadError),
        }
    }
}
