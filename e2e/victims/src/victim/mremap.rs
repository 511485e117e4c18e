//! Mappings that grow, shrink and move while other threads' mappings do the same.
//!
//! Where possible, the kernel chooses the targets. So one thread's mapping lands where another thread's was a moment
//! ago. Pages that a mapping gained must read as zeros. Half of the mappings are small, so that moves follow each other
//! closely. And `realloc` moves large blocks by mremap from inside the C library.

use crate::content::{self, PAGE_BYTES, Random};
use crate::run::Options;
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong};

/// Mappings of a thread.
const SEGMENTS: usize = 8;
/// Most pages of a small mapping.
const SMALL_PAGES_MAX: usize = 8;
/// Words of a block on the heap: so many that the allocator maps the block separately.
const BLOCK_WORDS_MIN: usize = 1 << 15;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 3);
        let pages_max = (options.pages_per_thread() / SEGMENTS / 2).max(4);
        let pages_max = |pick: usize| {
            if pick.is_multiple_of(2) {
                pages_max
            } else {
                SMALL_PAGES_MAX
            }
        };
        let mut segments = Vec::new();
        for pick in 0..SEGMENTS {
            segments.push(Segment::new(
                1 + random.index(pages_max(pick)),
                &mut random,
            )?);
        }
        let mut block = Block::new(random.next());
        loop {
            for _ in 0..64 {
                let pick = random.index(SEGMENTS);
                step(&mut segments[pick], &mut random, pages_max(pick))?;
                if random.index(4) == 0 {
                    block.resize(BLOCK_WORDS_MIN + random.index(BLOCK_WORDS_MIN * 3))?;
                }
            }
            for segment in &segments {
                segment.check_all("segment")?;
            }
            if !clock.running() {
                break;
            }
        }
        segments.into_iter().try_for_each(Segment::unmap)
    })
}

/// One operation of any kind on a mapping.
pub(crate) fn step(segment: &mut Segment, random: &mut Random, pages_max: usize) -> Checked {
    let len = segment.pages.len();
    match random.index(8) {
        0 | 1 if len < pages_max => {
            let pages = len + 1 + random.index(len);
            segment.resize(pages.min(pages_max), libc::MREMAP_MAYMOVE, random)?;
        }
        2 if len > 1 => segment.resize(1 + random.index(len - 1), 0, random)?,
        3 | 4 => segment.move_fixed(random)?,
        5 => segment.move_dontunmap(random)?,
        6 => {
            let fresh = Segment::new(1 + random.index(pages_max), random)?;
            let old = std::mem::replace(segment, fresh);
            old.check_all("mapping before it goes")?;
            old.unmap()?;
        }
        _ => segment.rewrite_some(random)?,
    }
    segment.check_some("after a step", random)
}

/// A block from the allocator. The content of every word is known.
struct Block {
    words: *mut u64,
    len: usize,
    tag: u64,
}

impl Block {
    const fn new(tag: u64) -> Self {
        let words = std::ptr::null_mut();
        Self { words, len: 0, tag }
    }

    /// Checks the block, changes its size, checks what it kept and fills the rest.
    fn resize(&mut self, len: usize) -> Checked {
        self.check("block before realloc", self.len)?;
        // SAFETY: the block belongs to this value, and the old address is not used afterwards.
        let moved = unsafe { libc::realloc(self.words.cast(), len * 8) };
        if moved.is_null() {
            return Err(Wrong::last("realloc"));
        }
        self.words = moved.cast();
        let kept = self.len.min(len);
        self.len = len;
        self.check("block after realloc", kept)?;
        for index in kept..len {
            // SAFETY: the word is inside the block.
            unsafe {
                self.words
                    .add(index)
                    .write_volatile(content::word(self.tag, 1, index));
            };
        }
        Ok(())
    }

    fn check(&self, what: &'static str, len: usize) -> Checked {
        for word in 0..len {
            let expected = content::word(self.tag, 1, word);
            let address = self.words.addr() + word * 8;
            // SAFETY: the word is inside the block.
            let found = unsafe { self.words.add(word).read_volatile() };
            if found != expected {
                let page = address / PAGE_BYTES;
                return Err(Wrong::Content {
                    what,
                    address,
                    page,
                    word,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block belongs to this value and comes from realloc; null is permitted.
        unsafe { libc::free(self.words.cast()) };
    }
}

impl Segment {
    pub(crate) fn mremap(&mut self, pages: usize, flags: i32, target: *mut u64) -> Checked {
        // SAFETY: the old range is this segment's mapping. A fixed target is a mapping of this thread that nothing else
        // uses.
        let moved = unsafe {
            libc::mremap(
                self.start.cast(),
                self.pages.len() * PAGE_BYTES,
                pages * PAGE_BYTES,
                flags,
                target,
            )
        };
        if moved == libc::MAP_FAILED {
            return Err(Wrong::last("mremap"));
        }
        self.start = moved.cast();
        Ok(())
    }

    pub(crate) fn resize(&mut self, pages: usize, flags: i32, random: &mut Random) -> Checked {
        for index in pages..self.pages.len() {
            self.check("page before a shrink", index)?;
        }
        self.mremap(pages, flags, std::ptr::null_mut())?;
        let kept = self.pages.len().min(pages);
        self.pages.resize(pages, (0, 0));
        self.fill_from(kept, random)
    }

    /// Moves onto a mapping with its own content, which must be gone afterwards.
    fn move_fixed(&mut self, random: &mut Random) -> Checked {
        let target = Self::new(self.pages.len(), random)?;
        self.mremap(
            self.pages.len(),
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            target.start,
        )
    }

    /// Moves the pages and keeps the old mapping, which must then read as zeros.
    fn move_dontunmap(&mut self, random: &mut Random) -> Checked {
        let len = self.pages.len();
        let old = self.start;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        self.mremap(len, flags, std::ptr::null_mut())?;
        let mut left = Self {
            start: old,
            pages: vec![(0, 0); len],
        };
        left.fill_from(0, random)?;
        left.check_all("mapping left behind by a move")?;
        left.unmap()
    }
}
