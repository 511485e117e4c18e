//! /proc/PID/pagemap: which pages of a process are present, written or exclusive.
//!
//! One descriptor per process, kept open. Calls may run concurrently and allocate nothing. An answer is true only of
//! the moment of the walk. Needs Linux 6.7 for `scan`, and the right to read the process's pagemap (the same user and
//! dumpable, or CAP_SYS_PTRACE).

use std::os::fd::{AsFd, OwnedFd};

use linux_raw_sys::general as raw;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

const SCAN: Opcode = opcode::read_write::<raw::pm_scan_arg>(b'f', 16);
const _: () = assert!(SCAN == 0xc060_6610);
const _: () = assert!(size_of::<Region>() == size_of::<raw::page_region>());
const _: () = assert!(size_of::<Word>() == 8);

/// Categories of pages, to be or-ed.
pub mod category {
    use linux_raw_sys::general as raw;

    /// The mapping is registered for asynchronous write protection.
    pub const WPALLOWED: u64 = raw::PAGE_IS_WPALLOWED as u64;
    /// Written since it was last write-protected (only with asynchronous write protection).
    pub const WRITTEN: u64 = raw::PAGE_IS_WRITTEN as u64;
    /// A file's page, or shared memory.
    pub const FILE: u64 = raw::PAGE_IS_FILE as u64;
    /// In memory.
    pub const PRESENT: u64 = raw::PAGE_IS_PRESENT as u64;
    /// In the kernel's swap, or a marker such as one of a write-protected hole.
    pub const SWAPPED: u64 = raw::PAGE_IS_SWAPPED as u64;
    /// The shared zero page.
    pub const PFNZERO: u64 = raw::PAGE_IS_PFNZERO as u64;
    /// Part of a huge page mapping.
    pub const HUGE: u64 = raw::PAGE_IS_HUGE as u64;
    /// A guard page (Linux 6.15).
    pub const GUARD: u64 = raw::PAGE_IS_GUARD as u64;
}

/// Consecutive pages of equal categories.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
    /// `category::*` of `Query::report`.
    pub categories: u64,
}

/// What `Pagemap::scan` looks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Query {
    /// Categories that a page must all have.
    pub all_of: u64,
    /// Categories of which a page must have one; 0 = no such condition.
    pub any_of: u64,
    /// Categories that a page must not have.
    pub none_of: u64,
    /// Categories to report (regions are split where these differ).
    pub report: u64,
    /// Most pages to report, 0 = no bound.
    pub pages_max: u64,
}

impl Query {
    /// Pages in memory that are neither a file's nor the zero page. These can be evicted.
    pub const EVICTABLE: Query = Query {
        all_of: category::PRESENT,
        any_of: 0,
        none_of: category::FILE | category::PFNZERO,
        report: category::HUGE,
        pages_max: 0,
    };
}

/// What a scan did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// Regions written to the buffer.
    pub regions: usize,
    /// Where the walk stopped: the end of the range or, if the buffer or the page bound was full, the address to go on
    /// from.
    pub walk_end: u64,
}

/// Why the pagemap could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PagemapError {
    /// The process has no memory any more.
    #[error("the process has exited: forget it")]
    Gone,
    /// The kernel has no PAGEMAP_SCAN.
    #[error("the kernel has no PAGEMAP_SCAN: Linux 6.7 or later is needed")]
    NoScan,
    /// Any other errno.
    #[error("pagemap of the process cannot be read: errno {0}")]
    Other(i32),
}

fn meaning(errno: Errno) -> PagemapError {
    match errno {
        Errno::SRCH | Errno::NOENT => PagemapError::Gone,
        Errno::NOTTY => PagemapError::NoScan,
        other => PagemapError::Other(other.raw_os_error()),
    }
}

/// One word of the pagemap.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const FILE: u64 = 1 << 61;
    const UFFD_WP: u64 = 1 << 57;
    const EXCLUSIVE: u64 = 1 << 56;

    /// In memory.
    pub fn present(self) -> bool {
        self.0 & Word::PRESENT != 0
    }

    /// In the kernel's swap, or a marker.
    pub fn swapped(self) -> bool {
        self.0 & Word::SWAPPED != 0
    }

    /// A file's page or shared anonymous memory.
    pub fn file(self) -> bool {
        self.0 & Word::FILE != 0
    }

    /// Write-protected through a userfaultfd.
    pub fn uffd_wp(self) -> bool {
        self.0 & Word::UFFD_WP != 0
    }

    /// Mapped only by this process. After a fork it stays off until the page is written.
    pub fn exclusive(self) -> bool {
        self.0 & Word::EXCLUSIVE != 0
    }
}

struct ScanIoctl<'a>(&'a mut raw::pm_scan_arg);

// SAFETY: PAGEMAP_SCAN takes a pm_scan_arg, writes to it, and returns a number of regions. rustix has no wrapper for
// it.
unsafe impl Ioctl for ScanIoctl<'_> {
    type Output = usize;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        SCAN
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        core::ptr::from_mut(self.0).cast()
    }

    unsafe fn output_from_ptr(
        out: IoctlOutput,
        _: *mut core::ffi::c_void,
    ) -> rustix::io::Result<usize> {
        usize::try_from(out).map_err(|_| Errno::RANGE)
    }
}

/// An open pagemap of one process image. After an exec it still names the old image, which is gone.
///
/// For an image that is gone `words` returns `Gone`, but `scan` finds nothing and gives no error.
#[derive(Debug)]
pub struct Pagemap {
    fd: OwnedFd,
}

impl Pagemap {
    /// Opens the pagemap of `pid`.
    ///
    /// # Errors
    /// `Gone`, or `Other { EACCES }` when the process may not be read.
    pub fn open(pid: u32) -> Result<Pagemap, PagemapError> {
        let path = format!("/proc/{pid}/pagemap");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(meaning)?;
        Ok(Pagemap { fd })
    }

    /// Looks for pages of [start, end) and writes their regions, in address order, to `regions`.
    ///
    /// # Errors
    /// As `PagemapError` says; `Other { EINVAL }` for a range that is not page aligned or categories unknown to the
    /// kernel.
    pub fn scan(
        &self,
        start: u64,
        end: u64,
        query: &Query,
        regions: &mut [Region],
    ) -> Result<Scan, PagemapError> {
        let mut arg = raw::pm_scan_arg {
            size: size_of::<raw::pm_scan_arg>() as u64,
            flags: 0,
            start,
            end,
            walk_end: 0,
            vec: regions.as_mut_ptr().expose_provenance() as u64,
            vec_len: regions.len() as u64,
            max_pages: query.pages_max,
            category_inverted: query.none_of,
            category_mask: query.all_of | query.none_of,
            category_anyof_mask: query.any_of,
            return_mask: query.report,
        };
        // SAFETY: the ioctl reads and writes `arg` and at most `vec_len` regions. Both outlive the call, and `regions`
        // is borrowed for writing.
        let done = unsafe { rustix::ioctl::ioctl(self.fd.as_fd(), ScanIoctl(&mut arg)) };
        let regions = done.map_err(meaning)?;
        Ok(Scan {
            regions,
            walk_end: arg.walk_end,
        })
    }

    /// Reads the words of the pages from `start` (page aligned) on. Returns how many; fewer than asked only where the
    /// address space ends.
    ///
    /// # Errors
    /// As `PagemapError` says.
    pub fn words(&self, start: u64, words: &mut [Word]) -> Result<usize, PagemapError> {
        let bytes = size_of_val(words);
        // SAFETY: Word is a plain u64, any bytes are a value of it, and the slice covers the same memory. Unsafe
        // because a file is read as bytes.
        let buffer =
            unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), bytes) };
        let mut done = 0;
        while done < bytes {
            let offset = start / PAGE_BYTES * 8 + done as u64;
            match rustix::io::pread(&self.fd, &mut buffer[done..], offset) {
                Ok(0) if done == 0 => return Err(PagemapError::Gone),
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(meaning(errno)),
            }
        }
        Ok(done / 8)
    }
}
