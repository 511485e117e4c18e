//! Memory of this process whose missing and protected pages raise SIGBUS in the thread that touches them.
//!
//! A [`Watched`] is one mapping with one userfaultfd. Faults of the user mode alone are asked for, which needs no
//! privilege: a system call that meets a missing page fails with EFAULT. A child of a fork does not have the memory:
//! it has no userfaultfd, and would read zeros. Its addresses stay reserved there (`left_out.rs`). Pages are named by
//! number. Every call may be made by any thread at any time, allocates nothing and takes no lock.
//!
//! One that is *observed*, to find mistakes, raises no signal. Whoever touches a page waits, a system call too, until
//! somebody who reads its faults has served this one. That needs privilege.
//!
//! Unsafe is needed here because pages are taken away and copied by address, while references of the program to them
//! live on: they find the same bytes when they are used next.

use core::ops::Range;
use core::ptr::NonNull;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::process::PidfdFlags;

use crate::eventfd::{PollFd, PollFlags, poll};
use crate::left_out::LeftOut;
use crate::memory::{HugePages, Mapping, MemoryError};
use crate::uffd::{
    Faults, Message, Messages, OpenError, UffdError, Userfaultfd, copy_mode, feature, mode,
};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Rows of pages that one call takes away.
const ROWS_AT_ONCE: usize = 64;
/// Without these there is nobody to serve a fault.
const FEATURES: u64 = feature::SIGBUS | feature::PAGEFAULT_FLAG_WP;

/// Without these nobody could serve the faults of memory that is observed, and say whose they are.
const FEATURES_OBSERVED: u64 = feature::THREAD_ID | feature::PAGEFAULT_FLAG_WP;

/// A touch of memory that is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// The page.
    pub page: usize,
    /// It is to be written to.
    pub is_write: bool,
    /// The thread that waits, which may be in a system call.
    pub tid: u32,
}

/// Why there is no such memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// No mapping.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// No userfaultfd.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The kernel is too old.
    #[error(
        "the kernel offers userfaultfd features {on:#x} of {wanted:#x}: Linux 5.11 or newer is needed"
    )]
    Features {
        /// Those that it offers.
        on: u64,
        /// Those that are needed.
        wanted: u64,
    },
    /// Children of forks cannot be kept from its addresses.
    #[error("no handler of forks can be installed, errno {errno}")]
    Forks {
        /// The errno.
        errno: i32,
    },
    /// The mapping cannot be watched.
    #[error("the memory cannot be watched: {0}")]
    Register(UffdError),
}

/// The memory. Dropping it unmaps it.
#[derive(Debug)]
pub struct Watched {
    /// Before the userfaultfd, so that it is gone when nobody watches any more.
    mapping: Mapping,
    /// After the mapping, so that the addresses are never free in a child while others hold references to them.
    #[expect(dead_code, reason = "it is there to be dropped")]
    left_out: LeftOut,
    uffd: Userfaultfd,
    /// This process, for calls that take several ranges. `None` if there is no descriptor to be had.
    own: Option<OwnedFd>,
}

impl Watched {
    /// Reserves `bytes`, a multiple of the page size. All pages are missing.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn new(bytes: usize) -> Result<Watched, WatchError> {
        Watched::with(bytes, Faults::UserOnly, FEATURES)
    }

    /// The same, but the memory is observed.
    ///
    /// # Errors
    /// [`WatchError`], also without the privilege.
    pub fn observed(bytes: usize) -> Result<Watched, WatchError> {
        Watched::with(bytes, Faults::All, FEATURES_OBSERVED)
    }

    fn with(bytes: usize, faults: Faults, wanted: u64) -> Result<Watched, WatchError> {
        let mapping = Mapping::anonymous(bytes, HugePages::Never)?;
        let address = mapping.pointer().as_ptr().expose_provenance();
        let left_out =
            LeftOut::new(address, mapping.bytes()).map_err(|errno| WatchError::Forks {
                errno: errno.raw_os_error(),
            })?;
        mapping.keep_out_of_forks()?;
        let (uffd, on) = Userfaultfd::open_with(faults, wanted)?;
        if on & wanted != wanted {
            return Err(WatchError::Features { on, wanted });
        }
        let (start, length) = (mapping.address(), mapping.bytes() as u64);
        // SAFETY: the mapping is new, so nothing refers to it. Whoever has this answers its faults.
        unsafe { uffd.register(start, length, mode::MISSING | mode::WP) }
            .map_err(WatchError::Register)?;
        Ok(Watched {
            mapping,
            left_out,
            uffd,
            own: rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).ok(),
        })
    }

    /// Waits up to `timeout` for touches of memory that is observed, and hands on those that came. After each, whoever
    /// touched the page is woken, and touches it again.
    ///
    /// # Errors
    /// What poll, read or the waking says.
    pub fn hear_touches(
        &self,
        messages: &mut Messages,
        timeout: Duration,
        mut serve: impl FnMut(Touch),
    ) -> Result<(), UffdError> {
        let failed = |errno| UffdError::new(errno, 0);
        let mut fds = [PollFd::new(&self.uffd, PollFlags::IN)];
        poll(&mut fds, Some(timeout)).map_err(failed)?;
        self.uffd
            .read(messages, usize::MAX)
            .map_err(|error| failed(error.0))?;
        for message in messages {
            let Message::Fault {
                address,
                write,
                wp,
                tid,
                ..
            } = message
            else {
                continue;
            };
            let offset = usize::try_from(address.wrapping_sub(self.mapping.address()));
            let page = offset.unwrap_or(usize::MAX) / PAGE;
            serve(Touch {
                page,
                is_write: write || wp,
                tid,
            });
            let (start, bytes) = self.place(&(page..page + 1))?;
            self.uffd.wake(start, bytes)?;
        }
        Ok(())
    }

    /// Its first byte. The bytes behind it may be touched by whoever has somebody to serve the faults.
    pub fn pointer(&self) -> NonNull<u8> {
        self.mapping.pointer()
    }

    /// Number of its pages.
    pub fn pages(&self) -> usize {
        self.mapping.bytes() / PAGE
    }

    fn place(&self, pages: &Range<usize>) -> Result<(u64, u64), UffdError> {
        if pages.start > pages.end || pages.end > self.pages() {
            return Err(UffdError::Invalid { done_bytes: 0 });
        }
        let start = self.mapping.address() + (pages.start * PAGE) as u64;
        Ok((start, (pages.len() * PAGE) as u64))
    }

    /// Gives a missing page this content, write-protected if so `protected`.
    ///
    /// # Errors
    /// As [`Userfaultfd::copy`].
    pub fn fill(
        &self,
        page: usize,
        content: &[u8; PAGE],
        protected: bool,
    ) -> Result<(), UffdError> {
        let (start, bytes) = self.place(&(page..page + 1))?;
        let modes = copy_mode::DONTWAKE | if protected { copy_mode::WP } else { 0 };
        self.uffd.copy(start, content.as_ptr(), bytes, modes)
    }

    /// Lets a missing page read as zeros, without memory of its own until it is written to.
    ///
    /// # Errors
    /// As [`Userfaultfd::zeropage`].
    pub fn zero(&self, page: usize) -> Result<(), UffdError> {
        let (start, bytes) = self.place(&(page..page + 1))?;
        self.uffd.zeropage(start, bytes, true)
    }

    /// Write-protects pages. When this returns no thread can write to them any more.
    ///
    /// # Errors
    /// As [`Userfaultfd::write_protect`].
    pub fn protect(&self, pages: Range<usize>) -> Result<(), UffdError> {
        let (start, bytes) = self.place(&pages)?;
        self.uffd.write_protect(start, bytes)
    }

    /// Lifts the protection.
    ///
    /// # Errors
    /// As [`Userfaultfd::write_unprotect`].
    pub fn unprotect(&self, pages: Range<usize>) -> Result<(), UffdError> {
        let (start, bytes) = self.place(&pages)?;
        self.uffd.write_unprotect(start, bytes, true)
    }

    /// Takes pages away. They are missing afterwards.
    ///
    /// # Errors
    /// As [`Mapping::discard`]: locked memory (`mlock`) stays.
    ///
    /// # Safety
    /// Who touches the pages next gets the content back that they are to have.
    pub unsafe fn discard(&self, pages: Range<usize>) -> Result<(), MemoryError> {
        let bytes = pages.len() * PAGE;
        // SAFETY: the caller makes sure that nobody notices.
        unsafe { self.mapping.discard(pages.start * PAGE, bytes) }
    }

    /// Takes rows of pages away, and tells of each whether it is gone, in their order. Cheaper than one after the other
    /// where the kernel interrupts the other processors once for all of them (Linux 6.16).
    ///
    /// # Safety
    /// As for [`Watched::discard`].
    pub unsafe fn discard_rows(
        &self,
        rows: &[Range<usize>],
        mut tell: impl FnMut(&Range<usize>, bool),
    ) {
        for some in rows.chunks(ROWS_AT_ONCE) {
            // SAFETY: the caller answers for all of them.
            let gone = unsafe { self.discard_together(some) };
            for (at, row) in some.iter().enumerate() {
                // SAFETY: as above.
                let is_gone = at < gone || unsafe { self.discard(row.clone()) }.is_ok();
                tell(row, is_gone);
            }
        }
    }

    /// Takes rows away with one call, at most `ROWS_AT_ONCE`. How many are gone, from the first on: perhaps none.
    ///
    /// # Safety
    /// As for [`Watched::discard`].
    unsafe fn discard_together(&self, rows: &[Range<usize>]) -> usize {
        let (Some(own), true) = (&self.own, rows.len() > 1) else {
            return 0;
        };
        let none = libc::iovec {
            iov_base: core::ptr::null_mut(),
            iov_len: 0,
        };
        let mut vectors = [none; ROWS_AT_ONCE];
        for (vector, row) in vectors.iter_mut().zip(rows) {
            if self.place(row).is_err() {
                return 0;
            }
            vector.iov_base = self
                .pointer()
                .as_ptr()
                .wrapping_add(row.start * PAGE)
                .cast();
            vector.iov_len = row.len() * PAGE;
        }
        // SAFETY: the vectors lie in the mapping, and the caller makes sure that nobody notices. The descriptor is that
        // of the process that made this; in a child, which does not have the memory, the kernel refuses.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                own.as_raw_fd(),
                vectors.as_ptr(),
                rows.len().min(ROWS_AT_ONCE),
                libc::MADV_DONTNEED,
                0,
            )
        };
        // Locked memory ends the call early.
        let mut bytes = usize::try_from(done).unwrap_or(0);
        let is_gone = |row: &&Range<usize>| match bytes.checked_sub(row.len() * PAGE) {
            Some(rest) => {
                bytes = rest;
                true
            }
            None => false,
        };
        rows.iter().take_while(is_gone).count()
    }

    /// Lets pages be discarded that the program has locked (`mlock`).
    ///
    /// # Errors
    /// `Invalid` for pages that are none of this memory; what the kernel says.
    ///
    /// # Safety
    /// Nobody counts on the lock any more.
    pub unsafe fn unlock(&self, pages: Range<usize>) -> Result<(), UffdError> {
        self.place(&pages)?;
        // SAFETY: the pages lie in the mapping. Unlocking changes no content, and the caller answers for the lock.
        let done = unsafe {
            let from = self.mapping.pointer().as_ptr().add(pages.start * PAGE);
            rustix::mm::munlock(from.cast(), pages.len() * PAGE)
        };
        done.map_err(|errno| UffdError::new(errno, 0))
    }

    /// Copies a page.
    ///
    /// # Errors
    /// `Invalid` for a page that is none of this memory.
    ///
    /// # Safety
    /// The page is there, stays during the call, and nobody writes to it meanwhile.
    pub unsafe fn read(&self, page: usize, to: &mut [u8; PAGE]) -> Result<(), UffdError> {
        self.place(&(page..page + 1))?;
        // SAFETY: the page lies in the mapping, and the caller makes sure that it is there and at rest.
        unsafe {
            let from = self.mapping.pointer().as_ptr().add(page * PAGE);
            core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), PAGE);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: usize = 4 * ROWS_AT_ONCE;

    /// Memory in which each page holds its number.
    fn numbered() -> Watched {
        let memory = Watched::new(PAGES * PAGE).expect("watched memory");
        for page in 0..PAGES {
            let number = u8::try_from(page % 251).expect("small");
            memory.fill(page, &[number; PAGE], false).expect("missing");
        }
        memory
    }

    /// The first byte of a page that is there, or 0 for one that is missing.
    fn byte(memory: &Watched, page: usize) -> u8 {
        // One that is there stays as it is.
        let _ = memory.zero(page);
        let mut content = [1; PAGE];
        // SAFETY: the page is there by now, and nobody else has the memory.
        unsafe { memory.read(page, &mut content) }.expect("a page of it");
        assert!(content.iter().all(|byte| *byte == content[0]));
        content[0]
    }

    #[test]
    fn rows_are_taken_away_and_the_rest_stays() {
        let memory = numbered();
        let mut rows: Vec<Range<usize>> = (0..PAGES - 8).step_by(2).map(|at| at..at + 1).collect();
        rows.push(PAGES - 6..PAGES - 2);
        assert!(rows.len() > ROWS_AT_ONCE);
        let mut told = Vec::new();
        // SAFETY: nobody else has the memory.
        unsafe { memory.discard_rows(&rows, |row, is_gone| told.push((row.clone(), is_gone))) };
        let expected: Vec<_> = rows.iter().cloned().map(|row| (row, true)).collect();
        assert_eq!(told, expected);
        for page in 0..PAGES {
            let is_gone = rows.iter().any(|row| row.contains(&page));
            let number = u8::try_from(page % 251).expect("small");
            assert_eq!(byte(&memory, page), if is_gone { 0 } else { number });
        }
    }

    #[test]
    fn what_is_locked_stays_and_what_comes_after_it_goes() {
        let memory = numbered();
        let locked = memory.pointer().as_ptr().wrapping_add(9 * PAGE);
        // SAFETY: a page of the mapping. Locking changes no content.
        unsafe { rustix::mm::mlock(locked.cast(), PAGE) }.expect("a page may be locked");
        let rows = [3..4, 8..11, 20..21, 30..40];
        let mut told = Vec::new();
        // SAFETY: nobody else has the memory.
        unsafe { memory.discard_rows(&rows, |_, is_gone| told.push(is_gone)) };
        assert_eq!(told, [true, false, true, true]);
        assert_eq!([3, 9, 20, 35].map(|page| byte(&memory, page)), [0, 9, 0, 0]);
    }
}
