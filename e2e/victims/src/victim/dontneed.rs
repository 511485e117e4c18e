//! `madvise(MADV_DONTNEED)`: what was given back reads as zeros, at once and from then on.
//!
//! All threads work in one mapping, in blocks smaller than the windows that eviction takes. So one thread's pages are
//! moved out while its neighbour's pages are given back.

use crate::content::{self, PAGE_BYTES};
use crate::pages::Mapping;
use crate::run::Options;
use crate::wrong::{Checked, call};

/// Pages of a block. A block belongs to one thread.
const BLOCK_PAGES: usize = 16;

/// A thread's view of the mapping: its own blocks, as one row of pages.
struct Share<'a> {
    mapping: &'a Mapping,
    thread: usize,
    threads: usize,
    versions: Vec<u32>,
    tag: u64,
}

impl<'a> Share<'a> {
    fn new(mapping: &'a Mapping, thread: usize, threads: usize, tag: u64) -> Self {
        let blocks = mapping.pages() / BLOCK_PAGES / threads;
        Self {
            mapping,
            thread,
            threads,
            versions: vec![0; blocks * BLOCK_PAGES],
            tag,
        }
    }

    fn page(&self, index: usize) -> *mut u64 {
        let block = index / BLOCK_PAGES * self.threads + self.thread;
        self.mapping.page(block * BLOCK_PAGES + index % BLOCK_PAGES)
    }

    fn rewrite(&mut self, index: usize, version: u32) {
        self.versions[index] = version;
        // SAFETY: the page is mapped, and in a block of this thread.
        unsafe { content::fill(self.page(index), self.tag ^ index as u64, version) };
    }

    fn check(&self, what: &'static str, index: usize) -> Checked {
        let version = self.versions[index];
        // SAFETY: the page is mapped, and in a block of this thread.
        unsafe { content::check(what, self.page(index), self.tag ^ index as u64, version) }
    }

    /// Gives back `pages` pages, which lie within one block.
    fn discard(&mut self, first: usize, pages: usize) -> Checked {
        // SAFETY: the range is within a block of this thread.
        let result = unsafe {
            libc::madvise(
                self.page(first).cast(),
                pages * PAGE_BYTES,
                libc::MADV_DONTNEED,
            )
        };
        call("madvise(DONTNEED)", result)?;
        self.versions[first..first + pages].fill(0);
        Ok(())
    }
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let threads = options.threads.max(1);
    let mapping = Mapping::new(options.pages().max(threads * BLOCK_PAGES))?;
    options.parallel(|thread| {
        let mut share = Share::new(&mapping, thread, threads, options.tag(thread));
        let len = share.versions.len();
        for index in 0..len {
            share.rewrite(index, 1);
        }
        content::strike(share.page(0));
        let mut random = options.random(thread, 4);
        let mut version = 1;
        loop {
            version += 1;
            for _ in 0..512 {
                let first = random.index(len);
                let pages = 1 + random.index(BLOCK_PAGES - first % BLOCK_PAGES);
                // Checking first brings pages back. Otherwise they may be out or on their way.
                if random.index(2) == 0 {
                    (first..first + pages)
                        .try_for_each(|index| share.check("before DONTNEED", index))?;
                }
                share.discard(first, pages)?;
                // Half is checked at once, half some time later. Both must be zeros.
                if random.index(2) == 0 {
                    (first..first + pages)
                        .try_for_each(|index| share.check("right after DONTNEED", index))?;
                }
                for index in first..first + pages {
                    if random.index(4) != 0 {
                        share.rewrite(index, version);
                    }
                }
                share.check("some page", random.index(len))?;
                let index = random.index(len);
                share.check("page to rewrite", index)?;
                share.rewrite(index, version);
            }
            (0..len).try_for_each(|index| share.check("all pages", index))?;
            if !clock.running() {
                return Ok(());
            }
        }
    })
}
