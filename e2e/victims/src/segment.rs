//! A mapping whose size and place may change, with a model of what each page must contain.

use crate::content::{self, PAGE_WORDS, Random};
use crate::pages::{map_raw, unmap_raw};
use crate::wrong::Checked;

/// How many pages a partial check looks at.
const CHECK_PAGES: usize = 8;

/// A private mapping of one thread. Only [`Segment::unmap`] unmaps it, so that the victim decides when its addresses
/// are given back.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) start: *mut u64,
    /// Tag and version of each page. Version 0 is a zero page.
    pub(crate) pages: Vec<(u64, u32)>,
}

// SAFETY: a segment is only an address range and a model. Whoever has it is the only one to use the range.
unsafe impl Send for Segment {}

impl Segment {
    /// Maps fresh pages, checks that they are zero, and writes most of them.
    pub(crate) fn new(pages: usize, random: &mut Random) -> Checked<Self> {
        Self::with(pages, libc::MAP_PRIVATE, random)
    }

    /// With flags that the caller chooses.
    pub(crate) fn with(pages: usize, flags: i32, random: &mut Random) -> Checked<Self> {
        let start = map_raw(pages, libc::PROT_READ | libc::PROT_WRITE, flags)?;
        let mut segment = Self {
            start,
            pages: vec![(0, 0); pages],
        };
        segment.fill_from(0, random)?;
        content::strike(segment.start);
        Ok(segment)
    }

    pub(crate) fn page(&self, index: usize) -> *mut u64 {
        assert!(index < self.pages.len());
        // SAFETY: the page is inside the mapping, by the assertion.
        unsafe { self.start.add(index * PAGE_WORDS) }
    }

    pub(crate) fn check(&self, what: &'static str, index: usize) -> Checked {
        let (tag, version) = self.pages[index];
        // SAFETY: the page is mapped and readable, and belongs to this thread.
        unsafe { content::check(what, self.page(index), tag, version) }
    }

    pub(crate) fn check_all(&self, what: &'static str) -> Checked {
        (0..self.pages.len()).try_for_each(|index| self.check(what, index))
    }

    pub(crate) fn check_some(&self, what: &'static str, random: &mut Random) -> Checked {
        (0..CHECK_PAGES).try_for_each(|_| self.check(what, random.index(self.pages.len())))
    }

    pub(crate) fn rewrite(&mut self, index: usize, random: &mut Random) {
        self.write(index, random.next(), self.pages[index].1 + 1);
    }

    /// Writes a page with a content that others may have too.
    pub(crate) fn write(&mut self, index: usize, tag: u64, version: u32) {
        self.pages[index] = (tag, version);
        // SAFETY: the page is mapped and writable, and belongs to this thread.
        unsafe { content::fill(self.page(index), tag, version) };
    }

    /// Checks pages and writes their next version.
    pub(crate) fn rewrite_some(&mut self, random: &mut Random) -> Checked {
        for _ in 0..CHECK_PAGES {
            let index = random.index(self.pages.len());
            self.check("page to be written again", index)?;
            self.rewrite(index, random);
        }
        Ok(())
    }

    /// Pages from `first` on are new and zero. Writes seven in eight of them now.
    pub(crate) fn fill_from(&mut self, first: usize, random: &mut Random) -> Checked {
        for index in first..self.pages.len() {
            self.check("fresh page", index)?;
            if random.index(8) != 0 {
                self.rewrite(index, random);
            }
        }
        Ok(())
    }

    pub(crate) fn unmap(self) -> Checked {
        // SAFETY: the mapping is this segment's own and ends with it.
        unsafe { unmap_raw(self.start, self.pages.len()) }
    }
}
