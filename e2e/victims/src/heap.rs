//! The pages below a break that a victim moves, and what each of them holds.

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::wrong::Checked;

/// One page in this many that the heap gains stays zeros.
const ZEROS_PART: usize = 8;

/// Pages from `start` to the break. Whoever moves the break says so with [`Heap::resized`].
pub(crate) struct Heap {
    start: *mut u64,
    pub(crate) pages: usize,
    /// The version of each page, up to the most pages that the heap may have.
    pub(crate) versions: Vec<u32>,
    last_version: u32,
    pub(crate) tag: u64,
}

impl Heap {
    /// An empty heap that may have up to `pages_max` pages.
    pub(crate) fn new(start: *mut u64, pages_max: usize, tag: u64) -> Self {
        Self {
            start,
            pages: 0,
            versions: vec![0; pages_max],
            last_version: 0,
            tag,
        }
    }

    /// Where the break is, if the heap has so many pages.
    pub(crate) fn end(&self, pages: usize) -> *mut u64 {
        self.start.wrapping_add(pages * PAGE_WORDS)
    }

    pub(crate) fn page(&self, index: usize) -> *mut u64 {
        assert!(index < self.pages);
        self.start.wrapping_byte_add(index * PAGE_BYTES)
    }

    pub(crate) fn check(&self, what: &'static str, index: usize) -> Checked {
        let version = self.versions[index];
        // SAFETY: the page is below the break and belongs to the heap.
        unsafe { content::check(what, self.page(index), self.tag ^ index as u64, version) }
    }

    pub(crate) fn check_all(&self, what: &'static str) -> Checked {
        (0..self.pages).try_for_each(|index| self.check(what, index))
    }

    fn rewrite(&mut self, index: usize) {
        self.last_version += 1;
        self.versions[index] = self.last_version;
        // SAFETY: the page is below the break and belongs to the heap.
        unsafe { content::fill(self.page(index), self.tag ^ index as u64, self.last_version) };
    }

    /// The break has moved: the heap has `pages` pages now. What it gained must be zeros, and most of it is written.
    pub(crate) fn resized(&mut self, pages: usize) -> Checked {
        let kept = self.pages.min(pages);
        self.pages = pages;
        for index in kept..pages {
            self.versions[index] = 0;
            self.check("page that the heap gained", index)?;
            if index % ZEROS_PART != ZEROS_PART - 1 {
                self.rewrite(index);
            }
        }
        if pages > 0 {
            content::strike(self.page(0));
        }
        Ok(())
    }

    /// Checks and rewrites up to `pages` pages.
    pub(crate) fn stir(
        &mut self,
        what: &'static str,
        random: &mut Random,
        pages: usize,
    ) -> Checked {
        for _ in 0..self.pages.min(pages) {
            let index = random.index(self.pages);
            self.check(what, index)?;
            self.rewrite(index);
        }
        Ok(())
    }
}
