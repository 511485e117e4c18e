//! Private mappings with a model of what each page must contain.

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::wrong::{Checked, Wrong};

/// An anonymous mapping, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: *mut u64,
    pages: usize,
}

// SAFETY: a mapping is only an address range. Victims order which thread uses which page.
unsafe impl Send for Mapping {}
// SAFETY: as above. `&Mapping` gives out only addresses.
unsafe impl Sync for Mapping {}

/// Maps `pages` pages with this protection, and with these flags besides `MAP_ANONYMOUS`.
pub(crate) fn map_raw(pages: usize, protection: i32, flags: i32) -> Checked<*mut u64> {
    // SAFETY: a mapping at an address that the kernel chooses aliases nothing.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            pages * PAGE_BYTES,
            protection,
            flags | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        Err(Wrong::last("mmap"))
    } else {
        Ok(start.cast())
    }
}

/// Unmaps `pages` pages at `start`.
///
/// # Safety
/// The range belongs to the caller, and nothing uses it any more.
pub(crate) unsafe fn unmap_raw(start: *mut u64, pages: usize) -> Checked {
    // SAFETY: the caller vouches for the range.
    let result = unsafe { libc::munmap(start.cast(), pages * PAGE_BYTES) };
    if result == 0 {
        Ok(())
    } else {
        Err(Wrong::last("munmap"))
    }
}

impl Mapping {
    /// Private, readable and writable.
    pub(crate) fn new(pages: usize) -> Checked<Self> {
        Self::with(pages, libc::MAP_PRIVATE)
    }

    /// With flags that the caller chooses, readable and writable.
    pub(crate) fn with(pages: usize, flags: i32) -> Checked<Self> {
        let pages = pages.max(1);
        let start = map_raw(pages, libc::PROT_READ | libc::PROT_WRITE, flags)?;
        Ok(Self { start, pages })
    }

    pub(crate) const fn pages(&self) -> usize {
        self.pages
    }

    /// The first word of page `index`.
    pub(crate) fn page(&self, index: usize) -> *mut u64 {
        assert!(
            index < self.pages,
            "page {index} of a mapping of {}",
            self.pages
        );
        // SAFETY: the page is inside the mapping, by the assertion.
        unsafe { self.start.add(index * PAGE_WORDS) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping's own. An error would have no consequence here.
        let _ = unsafe { unmap_raw(self.start, self.pages) };
    }
}

/// A mapping of one thread, with the version of each page. Version 0 is a zero page.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) mapping: Mapping,
    pub(crate) versions: Vec<u32>,
    tag: u64,
    /// The version written last. No version is used twice, so that an old page never looks right.
    last_version: u32,
}

impl Pages {
    pub(crate) fn new(pages: usize, tag: u64) -> Checked<Self> {
        let mapping = Mapping::new(pages)?;
        let versions = vec![0; mapping.pages()];
        Ok(Self {
            mapping,
            versions,
            tag,
            last_version: 0,
        })
    }

    /// A new mapping in which every page was written once.
    pub(crate) fn filled(pages: usize, tag: u64) -> Checked<Self> {
        let mut this = Self::new(pages, tag)?;
        for index in 0..this.len() {
            this.rewrite(index);
        }
        content::strike(this.mapping.page(this.len() / 2));
        Ok(this)
    }

    pub(crate) fn len(&self) -> usize {
        self.versions.len()
    }

    pub(crate) fn tag_of(&self, index: usize) -> u64 {
        content::mix(self.tag ^ (index as u64) << 24)
    }

    /// Writes the next version of a page.
    pub(crate) fn rewrite(&mut self, index: usize) {
        self.last_version += 1;
        self.versions[index] = self.last_version;
        // SAFETY: the page is this model's own, mapped and writable, and `&mut self` excludes others.
        unsafe {
            content::fill(
                self.mapping.page(index),
                self.tag_of(index),
                self.versions[index],
            );
        }
    }

    pub(crate) fn check(&self, what: &'static str, index: usize) -> Checked {
        // SAFETY: the page is mapped and readable, and only `&mut self` writes it.
        unsafe {
            content::check(
                what,
                self.mapping.page(index),
                self.tag_of(index),
                self.versions[index],
            )
        }
    }

    pub(crate) fn check_all(&self, what: &'static str) -> Checked {
        (0..self.len()).try_for_each(|index| self.check(what, index))
    }

    /// Checks `count` random pages, and writes the next version of every other one.
    pub(crate) fn stir(
        &mut self,
        what: &'static str,
        random: &mut Random,
        count: usize,
    ) -> Checked {
        for turn in 0..count {
            let index = random.index(self.len());
            self.check(what, index)?;
            if turn & 1 == 0 {
                self.rewrite(index);
            }
        }
        Ok(())
    }
}
