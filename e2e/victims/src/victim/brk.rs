//! The end of the heap is moved up and down by `sbrk`. What comes back after a shrink reads as zeros. Now and then all
//! memory is locked meanwhile, so that the kernel fills what the heap gains.
//!
//! The allocator uses the same break. So nothing is allocated between the moves, everything runs on one thread, and
//! each move checks that the break is where the victim left it.

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::pages::Pages;
use crate::run::Options;
use crate::wrong::{Checked, Wrong, call};

/// The part of the heap above the allocator's.
struct Heap {
    start: *mut u64,
    pages: usize,
    /// The version of each page, up to the most pages that the heap may have.
    versions: Vec<u32>,
    last_version: u32,
    tag: u64,
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let mut beside = Pages::filled(options.pages() / 2, options.tag(0))?;
    let mut random = options.random(0, 9);
    let mut heap = Heap::new((options.pages() / 2).max(8), options.tag(1))?;
    loop {
        for _ in 0..16 {
            let target = random.below(heap.versions.len());
            let is_locked = random.below(4) == 0;
            if is_locked {
                // SAFETY: locking changes no content.
                let locked = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
                call("mlockall", locked)?;
            }
            heap.resize(target)?;
            if is_locked {
                // SAFETY: unlocking changes no content.
                call("munlockall", unsafe { libc::munlockall() })?;
            }
            heap.stir(&mut random)?;
            beside.stir("page beside the heap", &mut random, 16)?;
        }
        (0..heap.pages).try_for_each(|index| heap.check("heap", index))?;
        if !clock.running() {
            break;
        }
    }
    heap.resize(0)?;
    beside.check_all("page beside the heap")
}

fn sbrk(bytes: isize) -> Checked<*mut u8> {
    // SAFETY: moving the break up makes memory that belongs to nobody else. Only `Heap::resize` moves it down, over its
    // own pages.
    let old = unsafe { libc::sbrk(bytes) };
    if old.addr() == usize::MAX {
        Err(Wrong::last("sbrk"))
    } else {
        Ok(old.cast())
    }
}

impl Heap {
    fn new(pages_max: usize, tag: u64) -> Checked<Self> {
        let versions = vec![0; pages_max];
        let end = sbrk(0)?;
        let pad = end.align_offset(PAGE_BYTES);
        sbrk(pad.cast_signed())?;
        let start = end.wrapping_add(pad).cast();
        Ok(Self {
            start,
            pages: 0,
            versions,
            last_version: 0,
            tag,
        })
    }

    fn page(&self, index: usize) -> *mut u64 {
        assert!(index < self.pages);
        self.start.wrapping_add(index * PAGE_WORDS)
    }

    fn check(&self, what: &'static str, index: usize) -> Checked {
        let version = self.versions[index];
        // SAFETY: the page is below the break and belongs to the heap.
        unsafe { content::check(what, self.page(index), self.tag ^ index as u64, version) }
    }

    fn rewrite(&mut self, index: usize) {
        self.last_version += 1;
        self.versions[index] = self.last_version;
        // SAFETY: the page is below the break and belongs to the heap.
        unsafe {
            content::fill(self.page(index), self.tag ^ index as u64, self.last_version);
        }
    }

    fn resize(&mut self, pages: usize) -> Checked {
        let end = self.start.wrapping_add(self.pages * PAGE_WORDS);
        let bytes = (pages.cast_signed() - self.pages.cast_signed()) * PAGE_BYTES.cast_signed();
        if sbrk(0)?.addr() != end.addr() {
            let what = "break moved by somebody else";
            let signed = |n| i64::try_from(n).unwrap_or(i64::MAX);
            let (expected, found) = (signed(end.addr()), signed(sbrk(0)?.addr()));
            return Err(Wrong::Result {
                what,
                expected,
                found,
            });
        }
        sbrk(bytes)?;
        let kept = self.pages.min(pages);
        self.pages = pages;
        for index in kept..pages {
            self.versions[index] = 0;
            self.check("page that the heap gained", index)?;
            if index % 8 != 7 {
                self.rewrite(index);
            }
        }
        if pages > 0 {
            content::strike(self.page(0));
        }
        Ok(())
    }

    fn stir(&mut self, random: &mut Random) -> Checked {
        for _ in 0..self.pages.min(32) {
            let index = random.below(self.pages);
            self.check("heap", index)?;
            self.rewrite(index);
        }
        Ok(())
    }
}
