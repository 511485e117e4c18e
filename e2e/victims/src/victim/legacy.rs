//! The calls of 32-bit programs (`int 0x80`), made by a 64-bit program: memory below 4 GiB is mapped, moved, grown,
//! shrunk, protected, discarded and unmapped by them.
//!
//! Only one thread does so at a time.

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::int80::{self, MADVISE, MMAP2, MPROTECT, MREMAP, MUNMAP, call32, may_call32};
use crate::pages::Pages;
use crate::run::Options;
use crate::wrong::Checked;

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Regions that come and go.
const REGIONS: usize = 4;

struct Region {
    start: usize,
    versions: Vec<u32>,
    last_version: u32,
    tag: u64,
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    int80::permitted()?;
    let mut random = options.random(0, 79);
    let mut beside = Pages::filled(options.pages() / 4, options.tag(0))?;
    let pages_max = (options.pages() / 2 / REGIONS).max(32);
    let fresh = |random: &mut Random| Region::map(1 + random.index(pages_max), random.next());
    let mut regions = Vec::new();
    for _ in 0..REGIONS {
        regions.push(fresh(&mut random)?);
    }
    content::strike(std::ptr::with_exposed_provenance_mut(regions[0].start));
    loop {
        for _ in 0..32 {
            let region = &mut regions[random.index(REGIONS)];
            match random.index(8) {
                0 => {
                    let next = fresh(&mut random)?;
                    std::mem::replace(region, next).unmap()?;
                }
                1..4 => region.resize(1 + random.index(pages_max))?,
                4 => region.discard(&mut random)?,
                5 => region.protect(&mut random)?,
                _ => {}
            }
            region.stir(&mut random)?;
            beside.stir("page beside calls by int 0x80", &mut random, 16)?;
        }
        regions.iter().try_for_each(Region::check_all)?;
        if !clock.running() {
            regions.into_iter().try_for_each(Region::unmap)?;
            return beside.check_all("page beside calls by int 0x80");
        }
    }
}

impl Region {
    fn map(pages: usize, tag: u64) -> Checked<Region> {
        let flags =
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT).cast_unsigned() as usize;
        let protection = READ_WRITE.cast_unsigned() as usize;
        let none = u32::MAX as usize;
        // SAFETY: a mapping at an address that the kernel chooses aliases nothing.
        let start = unsafe { call32(MMAP2, [0, pages * PAGE_BYTES, protection, flags, none, 0])? };
        let mut region = Region {
            start,
            versions: vec![0; pages],
            last_version: 0,
            tag,
        };
        region.fill_from(0)?;
        Ok(region)
    }

    fn page(&self, index: usize) -> *mut u64 {
        assert!(index < self.versions.len());
        let start: *mut u64 = std::ptr::with_exposed_provenance_mut(self.start);
        start.wrapping_add(index * PAGE_WORDS)
    }

    fn check(&self, what: &'static str, index: usize) -> Checked {
        let (tag, version) = (self.tag ^ index as u64, self.versions[index]);
        // SAFETY: the page is inside the region and readable.
        unsafe { content::check(what, self.page(index), tag, version) }
    }

    fn check_all(&self) -> Checked {
        (0..self.versions.len()).try_for_each(|index| self.check("page below 4 GiB", index))
    }

    fn rewrite(&mut self, index: usize) {
        self.last_version += 1;
        self.versions[index] = self.last_version;
        // SAFETY: the page is inside the region and writable.
        unsafe { content::fill(self.page(index), self.tag ^ index as u64, self.last_version) };
    }

    fn fill_from(&mut self, first: usize) -> Checked {
        for index in first..self.versions.len() {
            self.check("fresh page below 4 GiB", index)?;
            if index % 8 != 7 {
                self.rewrite(index);
            }
        }
        Ok(())
    }

    fn stir(&mut self, random: &mut Random) -> Checked {
        for _ in 0..16 {
            let index = random.index(self.versions.len());
            self.check("page below 4 GiB", index)?;
            self.rewrite(index);
        }
        Ok(())
    }

    /// Grows or shrinks, and moves where there is no room to grow. Nothing changes where such a call is refused.
    fn resize(&mut self, pages: usize) -> Checked {
        let (old, new) = (self.versions.len() * PAGE_BYTES, pages * PAGE_BYTES);
        let flags = libc::MREMAP_MAYMOVE.cast_unsigned() as usize;
        // SAFETY: the region is nobody else's, and its model follows.
        let moved = unsafe { may_call32(MREMAP, [self.start, old, new, flags, 0, 0])? };
        let Some(start) = moved else {
            return self.check_all();
        };
        self.start = start;
        let kept = self.versions.len().min(pages);
        self.versions.resize(pages, 0);
        self.check_all()?;
        self.fill_from(kept)
    }

    fn discard(&mut self, random: &mut Random) -> Checked {
        let first = random.index(self.versions.len());
        let count = 1 + random.index(self.versions.len() - first);
        let advice = libc::MADV_DONTNEED.cast_unsigned() as usize;
        let start = self.page(first).addr();
        // SAFETY: the range is inside the region, and its model follows.
        unsafe { call32(MADVISE, [start, count * PAGE_BYTES, advice, 0, 0, 0])? };
        self.versions[first..first + count].fill(0);
        (first..first + count)
            .try_for_each(|index| self.check("page that int 0x80 discarded", index))
    }

    fn protect(&self, random: &mut Random) -> Checked {
        let first = random.index(self.versions.len());
        let count = 1 + random.index(self.versions.len() - first);
        let (start, bytes) = (self.page(first).addr(), count * PAGE_BYTES);
        for protection in [libc::PROT_READ, READ_WRITE] {
            let protection = protection.cast_unsigned() as usize;
            // SAFETY: the range is inside the region, and may be written again at the end.
            unsafe { call32(MPROTECT, [start, bytes, protection, 0, 0, 0])? };
            for _ in 0..count.min(16) {
                self.check("page that int 0x80 protects", first + random.index(count))?;
            }
        }
        Ok(())
    }

    fn unmap(self) -> Checked {
        let bytes = self.versions.len() * PAGE_BYTES;
        // SAFETY: the region ends with its mapping.
        unsafe { call32(MUNMAP, [self.start, bytes, 0, 0, 0, 0]).map(drop) }
    }
}
