//! Mappings that come and go so fast that addresses are used again at once.
//!
//! A new mapping must read as zeros, whatever was swapped at that address before. Memory that stays when a neighbour or
//! the middle goes must keep its content.

use crate::content::{PAGE_BYTES, PAGE_WORDS, Random};
use crate::pages::unmap_raw;
use crate::run::Options;
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong};

/// Mappings of a thread.
const SEGMENTS: usize = 16;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 7);
        let pages_max = (options.pages_per_thread() / SEGMENTS).max(4);
        let mut segments = Vec::new();
        for _ in 0..SEGMENTS {
            segments.push(Segment::new(1 + random.index(pages_max), &mut random)?);
        }
        loop {
            for _ in 0..64 {
                step(&mut segments, &mut random, pages_max)?;
            }
            for segment in &segments {
                segment.check_all("mapping that stayed")?;
            }
            if !clock.running() {
                break;
            }
        }
        segments.into_iter().try_for_each(Segment::unmap)
    })
}

fn step(segments: &mut Vec<Segment>, random: &mut Random, pages_max: usize) -> Checked {
    let pick = random.index(segments.len());
    let len = segments[pick].pages.len();
    match random.index(6) {
        0 if segments.len() < SEGMENTS * 2 && len > 2 => {
            let first = 1 + random.index(len - 2);
            let back = unmap_middle(
                &mut segments[pick],
                first,
                1 + random.index(len - first - 1),
            )?;
            segments.push(back);
        }
        1 if len > 1 => unmap_tail(&mut segments[pick], 1 + random.index(len - 1))?,
        2 => map_over(&mut segments[pick], random)?,
        3 if segments.len() > SEGMENTS => segments.swap_remove(pick).unmap()?,
        4 => segments[pick].rewrite_some(random)?,
        _ => {
            let old = segments.swap_remove(pick);
            old.check_all("mapping before it goes")?;
            old.unmap()?;
            segments.push(Segment::new(1 + random.index(pages_max), random)?);
        }
    }
    let pick = random.index(segments.len());
    segments[pick].check_some("mapping beside", random)
}

/// Unmaps `count` pages from `first` on. Returns the pages behind them as a segment of their own.
pub(crate) fn unmap_middle(segment: &mut Segment, first: usize, count: usize) -> Checked<Segment> {
    // SAFETY: the pages are inside the segment, and its model forgets them below.
    unsafe { unmap_raw(segment.page(first), count)? };
    // SAFETY: the caller leaves at least one page behind the hole.
    let start = unsafe { segment.start.add((first + count) * PAGE_WORDS) };
    let pages = segment.pages.split_off(first + count);
    segment.pages.truncate(first);
    Ok(Segment { start, pages })
}

pub(crate) fn unmap_tail(segment: &mut Segment, first: usize) -> Checked {
    // SAFETY: the pages are inside the segment, and its model forgets them below.
    unsafe { unmap_raw(segment.page(first), segment.pages.len() - first)? };
    segment.pages.truncate(first);
    Ok(())
}

/// Maps fresh memory over a part of a segment.
pub(crate) fn map_over(segment: &mut Segment, random: &mut Random) -> Checked {
    let first = random.index(segment.pages.len());
    let count = 1 + random.index(segment.pages.len() - first);
    // SAFETY: the range is inside the segment. Its model takes the pages as fresh below.
    let mapped = unsafe {
        libc::mmap(
            segment.page(first).cast(),
            count * PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(Wrong::last("mmap(FIXED)"));
    }
    segment.pages[first..first + count].fill((0, 0));
    for index in first..first + count {
        segment.check("page mapped over another", index)?;
        if random.index(4) != 0 {
            segment.rewrite(index, random);
        }
    }
    Ok(())
}
