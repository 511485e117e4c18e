//! Everything at once: each thread makes random changes of every kind to its own mappings. It forks children that go on
//! with copies of them, while the other threads do the same.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::content::{PAGE_BYTES, Random};
use crate::run::{Child, Options};
use crate::scratch;
use crate::segment::Segment;
use crate::victim::mprotect::{self, Files};
use crate::victim::{mremap, reuse};
use crate::wrong::{Checked, call, call_len};

/// How many mappings a thread begins with, and how many it has at most.
const SEGMENTS: usize = 8;
const SEGMENTS_MAX: usize = 24;
/// Operations between two checks of everything.
const STEPS: usize = 128;
/// Operations of a forked child.
const CHILD_STEPS: usize = 24;
/// One in this many operations is a fork.
const FORK_SHARE: usize = 48;
/// Most pages that go to the file and back in one transfer.
const TRANSFER_PAGES_MAX: usize = 16;
/// The file offset of a child's transfers, behind its parent's.
const CHILD_PLACE: i64 = 1 << 20;
/// Most pages that are given back in one call.
const DROP_PAGES_MAX: usize = 96;

/// The state of a thread, or of a child that inherited it.
struct Chaos<'a> {
    whole: Vec<Segment>,
    /// Mappings that fresh memory was mapped into. To the kernel such a mapping may be more than one, and the kernel
    /// does not move several at once.
    pieced: Vec<Segment>,
    file: File,
    /// The offset in the file where this process writes. A child shares the file with its parent.
    place: i64,
    files: &'a Files,
    random: Random,
    pages_max: usize,
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let files = Files::open()?;
    options.parallel(|thread| {
        let mut random = options.random(thread, 21);
        let pages_max = (options.pages_per_thread() / SEGMENTS).max(4);
        let mut whole = Vec::new();
        for _ in 0..SEGMENTS {
            whole.push(Segment::new(1 + random.index(pages_max), &mut random)?);
        }
        let file = scratch::file()?;
        let pieced = Vec::new();
        let mut chaos = Chaos {
            whole,
            pieced,
            file,
            place: 0,
            files: &files,
            random,
            pages_max,
        };
        loop {
            (0..STEPS).try_for_each(|_| chaos.step(true))?;
            chaos.check_all()?;
            if !clock.running() {
                break;
            }
        }
        chaos
            .whole
            .into_iter()
            .chain(chaos.pieced)
            .try_for_each(Segment::unmap)
    })
}

impl Chaos<'_> {
    fn check_all(&self) -> Checked {
        let mut all = self.whole.iter().chain(&self.pieced);
        all.try_for_each(|segment| segment.check_all("all pages"))
    }

    fn step(&mut self, may_fork: bool) -> Checked {
        if may_fork && self.random.index(FORK_SHARE) == 0 {
            return self.fork();
        }
        let pick = self.random.index(self.whole.len());
        match self.random.index(10) {
            0..3 => mremap::step(&mut self.whole[pick], &mut self.random, self.pages_max),
            3 => self.split(pick),
            4 => self.map_over(pick),
            5 => mprotect::change(&mut self.whole[pick], self.files, &mut self.random),
            6 => self.give_back(pick, libc::MADV_DONTNEED),
            7 => self.give_back(pick, libc::MADV_FREE),
            8 => self.through_file(pick),
            _ => self.whole[pick].rewrite_some(&mut self.random),
        }?;
        let pick = self.random.index(self.whole.len());
        self.whole[pick].check_some("mapping beside", &mut self.random)
    }

    /// The child goes on with a copy, the parent with the original.
    fn fork(&mut self) -> Checked {
        let child = Child::fork(|| {
            self.random.next();
            self.place += CHILD_PLACE;
            self.check_all()?;
            (0..CHILD_STEPS).try_for_each(|_| self.step(false))?;
            self.check_all()
        })?;
        let result = (0..CHILD_STEPS).try_for_each(|_| self.step(false));
        child.wait().and(result)
    }

    /// Cuts a mapping in two, or cuts off its end. Removes one if there are many.
    fn split(&mut self, pick: usize) -> Checked {
        let len = self.whole[pick].pages.len();
        if self.whole.len() >= SEGMENTS_MAX {
            let old = self.whole.swap_remove(pick);
            old.check_all("mapping before it goes")?;
            return old.unmap();
        }
        if len < 3 {
            let pages = 1 + self.random.index(self.pages_max);
            self.whole.push(Segment::new(pages, &mut self.random)?);
            return Ok(());
        }
        let first = 1 + self.random.index(len - 2);
        if self.random.index(2) == 0 {
            return reuse::unmap_tail(&mut self.whole[pick], first);
        }
        let count = 1 + self.random.index(len - first - 1);
        let back = reuse::unmap_middle(&mut self.whole[pick], first, count)?;
        self.whole.push(back);
        Ok(())
    }

    fn map_over(&mut self, pick: usize) -> Checked {
        if self.pieced.len() >= SEGMENTS {
            let turn = self.random.index(SEGMENTS);
            let old = self.pieced.swap_remove(turn);
            old.check_all("mapping before it goes")?;
            old.unmap()?;
        }
        let fresh = Segment::new(1 + self.random.index(self.pages_max), &mut self.random)?;
        let mut old = std::mem::replace(&mut self.whole[pick], fresh);
        let result = reuse::map_over(&mut old, &mut self.random);
        self.pieced.push(old);
        result
    }

    /// Gives pages back and writes most of them again. A page that is not written is zero, or was freed lazily and is
    /// then made zero.
    fn give_back(&mut self, pick: usize, advice: i32) -> Checked {
        let segment = &mut self.whole[pick];
        let first = self.random.index(segment.pages.len());
        let count = 1 + self
            .random
            .index((segment.pages.len() - first).min(DROP_PAGES_MAX));
        let advise = |segment: &Segment, advice| {
            // SAFETY: the range is inside the segment, whose model is updated below.
            let result =
                unsafe { libc::madvise(segment.page(first).cast(), count * PAGE_BYTES, advice) };
            call("madvise", result).map(drop)
        };
        advise(segment, advice)?;
        if advice == libc::MADV_FREE {
            for index in first..first + count {
                segment.rewrite(index, &mut self.random);
            }
            return (first..first + count).try_for_each(|n| segment.check("page after FREE", n));
        }
        segment.pages[first..first + count].fill((0, 0));
        for index in first..first + count {
            segment.check("page after DONTNEED", index)?;
            if self.random.index(4) != 0 {
                segment.rewrite(index, &mut self.random);
            }
        }
        Ok(())
    }

    /// Writes pages of one mapping to the file, and reads them into another.
    fn through_file(&mut self, from: usize) -> Checked {
        let to = self.random.index(self.whole.len());
        let lens = [from, to].map(|pick| self.whole[pick].pages.len());
        let count = 1 + self
            .random
            .index(lens[0].min(lens[1]).min(TRANSFER_PAGES_MAX));
        let [source, target] = lens.map(|len| self.random.index(len - count + 1));
        let bytes = count * PAGE_BYTES;
        let fd = self.file.as_raw_fd();
        let pages = self.whole[from].pages[source..source + count].to_vec();
        let place = self.place;
        // SAFETY: both ranges are inside mappings of this thread.
        unsafe {
            let buffer = self.whole[from].page(source).cast();
            call_len("pwrite", libc::pwrite(fd, buffer, bytes, place), bytes)?;
            let buffer = self.whole[to].page(target).cast();
            call_len("pread", libc::pread(fd, buffer, bytes, place), bytes)?;
        }
        let segment = &mut self.whole[to];
        segment.pages[target..target + count].copy_from_slice(&pages);
        (target..target + count).try_for_each(|n| segment.check("page read from a file", n))
    }
}
