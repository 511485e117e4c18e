//! Memory as pages of words, shared by the threads of a workload: a private anonymous mapping, a shared one of a file,
//! or pages of an arena.
//!
//! Threads agree among themselves who writes which page. The region only hands out addresses that lie inside it.
//!
//! Unsafe is needed here because no safe wrapper exists for `mmap`, `madvise` and `munmap`, and because the compiler
//! cannot check which thread writes which page.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use vswap_arena::{Arena, ArenaError};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// 64-bit words of a page.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;
/// Bytes of a transparent huge page. Regions are aligned to it, so that both settings can be compared.
pub const HUGE_BYTES: usize = 2 << 20;

/// Does the region ask for transparent huge pages?
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum HugePages {
    /// `MADV_NOHUGEPAGE`.
    Never,
    /// `MADV_HUGEPAGE`.
    Always,
}

/// Where the pages of a region lie. Dropping it gives them back.
#[derive(Debug)]
enum Place {
    Mapping { base: NonNull<u8>, bytes: usize },
    File { base: NonNull<u8>, bytes: usize },
    Arena(#[expect(dead_code, reason = "it is there to be dropped")] vswap_arena::Region),
}

/// Whole pages.
#[derive(Debug)]
pub struct Region {
    place: Place,
    start: NonNull<u64>,
    pages: usize,
}

// SAFETY: only the region has its memory, which stays mapped as long as the region lives. Who accesses which page at
// what time is the contract of `page`, `words` and `words_mut`.
unsafe impl Send for Region {}
// SAFETY: as above. Without `unsafe`, `&Region` gives out only addresses, never references.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `pages` zero pages, aligned to 2 MiB.
    ///
    /// # Errors
    /// The error of `mmap` or `madvise`.
    pub fn new(pages: usize, huge: HugePages) -> io::Result<Self> {
        let mapped_bytes = pages * PAGE_BYTES + HUGE_BYTES;
        // SAFETY: a fresh mapping at an address that the kernel chooses aliases nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let advice = match huge {
            HugePages::Never => libc::MADV_NOHUGEPAGE,
            HugePages::Always => libc::MADV_HUGEPAGE,
        };
        // SAFETY: the range is exactly the mapping made above. The result is not needed: a kernel without huge pages
        // refuses the advice and behaves as with `Never`.
        unsafe { libc::madvise(base, mapped_bytes, advice) };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let pad = base.as_ptr().align_offset(HUGE_BYTES);
        // SAFETY: the mapping is HUGE_BYTES longer than the pages, so the aligned start and all pages behind it lie
        // inside.
        let start = unsafe { base.add(pad) }.cast::<u64>();
        Ok(Self {
            place: Place::Mapping {
                base,
                bytes: mapped_bytes,
            },
            start,
            pages,
        })
    }

    /// Maps `pages` zero pages of an empty file that nobody else has. They are shared with it: the kernel keeps what is
    /// used in memory, and writes the rest to the file.
    ///
    /// # Errors
    /// The error of `ftruncate` or `mmap`.
    pub fn of_file(pages: usize, file: &File) -> io::Result<Self> {
        let bytes = pages * PAGE_BYTES;
        file.set_len(bytes as u64)?;
        // SAFETY: a fresh mapping at an address that the kernel chooses aliases nothing, and nobody else has the file.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            place: Place::File { base, bytes },
            start: base.cast(),
            pages,
        })
    }

    /// Says in which order the pages will be used. Only a file is told (`MADV_RANDOM`), as a program with data in a
    /// file would: else the kernel reads the file around each page that is missed, up to the disk's `read_ahead_kb`,
    /// which can be MiB. Programs say nothing of their anonymous memory.
    pub fn expect_random(&self, random: bool) {
        let Place::File { base, bytes } = self.place else {
            return;
        };
        let advice = if random {
            libc::MADV_RANDOM
        } else {
            libc::MADV_NORMAL
        };
        // SAFETY: the range is exactly the mapping, and the advice changes no content. Refused, it changes nothing.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, advice) };
    }

    /// Takes `pages` zero pages of an arena.
    ///
    /// # Errors
    /// Those of [`Arena::allocate`].
    pub fn in_arena(arena: &Arena, pages: usize) -> Result<Self, ArenaError> {
        let memory = arena.allocate(pages * PAGE_BYTES)?;
        Ok(Self {
            start: memory.as_ptr().cast(),
            place: Place::Arena(memory),
            pages,
        })
    }

    /// Cuts the region into this many mappings. Every other one is left out of core dumps, so that the kernel does not
    /// join them. Not for regions in an arena, whose mappings are the arena's to change.
    ///
    /// # Errors
    /// The error of `madvise`: ENOMEM if there would be more than `vm.max_map_count`.
    pub fn cut(&self, mappings: usize) -> io::Result<()> {
        let pages = self.pages.div_ceil(mappings.max(1));
        for first in (pages..self.pages).step_by(2 * pages) {
            let bytes = pages.min(self.pages - first) * PAGE_BYTES;
            // SAFETY: the range lies in the mapping, and the advice changes no content.
            let cut = unsafe { libc::madvise(self.page(first).cast(), bytes, libc::MADV_DONTDUMP) };
            if cut != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Number of pages.
    #[must_use]
    pub const fn pages(&self) -> usize {
        self.pages
    }

    /// The first word of page `index`.
    ///
    /// # Panics
    /// When `index` is not below [`Region::pages`].
    #[must_use]
    pub fn page(&self, index: usize) -> *mut u64 {
        assert!(
            index < self.pages,
            "page {index} of a region of {} pages",
            self.pages
        );
        // SAFETY: the page is inside the mapping, by the assertion above.
        unsafe { self.start.as_ptr().add(index * PAGE_WORDS) }
    }

    /// Is page `index` in memory? A page that is not costs whoever touches it a fault.
    ///
    /// # Errors
    /// The error of `mincore`.
    pub fn is_resident(&self, index: usize) -> io::Result<bool> {
        let mut answer = 0;
        // SAFETY: the range is a page of the mapping, and the answer has a byte for it.
        let asked = unsafe { libc::mincore(self.page(index).cast(), PAGE_BYTES, &raw mut answer) };
        match asked {
            0 => Ok(answer & 1 == 1),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Page `index` as words.
    ///
    /// # Safety
    /// No thread writes the page while the reference lives.
    #[must_use]
    pub unsafe fn words(&self, index: usize) -> &[u64; PAGE_WORDS] {
        // SAFETY: the page is mapped, readable and aligned. By the contract nobody writes it.
        unsafe { &*self.page(index).cast::<[u64; PAGE_WORDS]>() }
    }

    /// Page `index` as words to change.
    ///
    /// # Safety
    /// No other thread reads or writes the page while the reference lives.
    #[must_use]
    #[expect(
        clippy::mut_from_ref,
        reason = "exclusive access per page is the caller's contract"
    )]
    pub unsafe fn words_mut(&self, index: usize) -> &mut [u64; PAGE_WORDS] {
        // SAFETY: the page is mapped, writable and aligned. By the contract nobody else uses it.
        unsafe { &mut *self.page(index).cast::<[u64; PAGE_WORDS]>() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Place::Mapping { base, bytes } | Place::File { base, bytes } = self.place {
            // SAFETY: base and length are those of the mapping, and nothing borrows from it any more.
            unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
        }
    }
}
