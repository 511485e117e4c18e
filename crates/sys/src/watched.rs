//! Memory of this process whose missing and protected pages raise SIGBUS in the thread that touches them.
//!
//! A [`Watched`] is one mapping with one userfaultfd. Faults of the user mode alone are asked for, which needs no
//! privilege: a system call that meets a missing page fails with EFAULT. A child of a fork does not have the memory:
//! it has no userfaultfd, and would read zeros. Its addresses stay reserved there (`left_out.rs`). Pages are named by
//! number. Every call may be made by any thread at any time, allocates nothing and takes no lock.
//!
//! Unsafe is needed here because pages are taken away and copied by address, while references of the program to them
//! live on: they find the same bytes when they are used next.

use core::ops::Range;
use core::ptr::NonNull;

use crate::left_out::LeftOut;
use crate::memory::{HugePages, Mapping, MemoryError};
use crate::uffd::{Faults, OpenError, UffdError, Userfaultfd, copy_mode, feature, mode};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Without these there is nobody to serve a fault.
const FEATURES: u64 = feature::SIGBUS | feature::PAGEFAULT_FLAG_WP;

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
        "the kernel offers userfaultfd features {on:#x} of {FEATURES:#x}: Linux 5.11 or newer is needed"
    )]
    Features {
        /// Those that it offers.
        on: u64,
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
}

impl Watched {
    /// Reserves `bytes`, a multiple of the page size. All pages are missing.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn new(bytes: usize) -> Result<Watched, WatchError> {
        let mapping = Mapping::anonymous(bytes, HugePages::Never)?;
        let address = mapping.pointer().as_ptr().expose_provenance();
        let left_out =
            LeftOut::new(address, mapping.bytes()).map_err(|errno| WatchError::Forks {
                errno: errno.raw_os_error(),
            })?;
        mapping.keep_out_of_forks()?;
        let (uffd, on) = Userfaultfd::open_with(Faults::UserOnly, FEATURES)?;
        if on & FEATURES != FEATURES {
            return Err(WatchError::Features { on });
        }
        let (start, length) = (mapping.address(), mapping.bytes() as u64);
        // SAFETY: the mapping is new, so nothing refers to it. Whoever has this answers its faults.
        unsafe { uffd.register(start, length, mode::MISSING | mode::WP) }
            .map_err(WatchError::Register)?;
        Ok(Watched {
            mapping,
            left_out,
            uffd,
        })
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
