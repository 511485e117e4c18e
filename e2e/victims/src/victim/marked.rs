//! Blocks of a mapping that move away and back while another thread reads the blocks between them.
//!
//! The process has an `io_uring`, so vswap believes the markers in the page table more than its own notes. A fault
//! brings neighbours along. Some of these are just under way to another place, and their markers with them.

use std::sync::Barrier;

use io_uring::IoUring;

use crate::content::Random;
use crate::pages::map_raw;
use crate::run::{Clock, Options};
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong};

/// Pages of a block: fewer than vswap brings back at a time.
const BLOCK_PAGES: usize = 16;

pub(crate) fn run(options: &Options) -> Checked {
    let _ring = IoUring::new(1).map_err(|error| Wrong::Call {
        what: "io_uring_setup",
        error,
    })?;
    let clock = options.clock();
    let parts: Vec<Part> = (0..options.threads.max(1))
        .map(|thread| Part::new(options, thread))
        .collect::<Checked<_>>()?;
    // A block that has moved leaves a hole, in which whatever is mapped later may land. So nothing moves before all
    // threads have their stacks, and from then on nobody maps anything.
    let all_there = &Barrier::new(2 * parts.len());
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for part in parts {
            threads.push(scope.spawn(move || {
                all_there.wait();
                reads(&part.staying, clock)
            }));
            threads.push(scope.spawn(move || {
                all_there.wait();
                moves(part.moving, &part.away, clock, part.random)
            }));
        }
        let mut result = Ok(());
        for thread in threads {
            match thread.join() {
                Ok(ended) => result = result.and(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result
    })
}

/// What two threads have: every other block of a mapping stays where it is.
struct Part {
    staying: Vec<Segment>,
    moving: Vec<Segment>,
    away: Segment,
    random: Random,
}

impl Part {
    fn new(options: &Options, thread: usize) -> Checked<Self> {
        let mut random = options.random(thread, 33);
        let blocks = (options.pages_per_thread() / BLOCK_PAGES).max(2);
        let whole = Segment::new(blocks * BLOCK_PAGES, &mut random)?;
        let (staying, moving): (Vec<_>, Vec<_>) = (0..blocks).partition(|index| index % 2 == 0);
        let block = |index: usize| {
            let first = index * BLOCK_PAGES;
            Segment {
                start: whole.page(first),
                pages: whole.pages[first..first + BLOCK_PAGES].to_vec(),
            }
        };
        Ok(Self {
            staying: staying.into_iter().map(block).collect(),
            moving: moving.into_iter().map(block).collect(),
            away: Segment {
                start: map_raw(BLOCK_PAGES, libc::PROT_NONE, libc::MAP_PRIVATE)?,
                pages: Vec::new(),
            },
            random,
        })
    }
}

fn reads(blocks: &[Segment], clock: Clock) -> Checked {
    while clock.running() {
        for block in blocks {
            block.check_all("page between those that move")?;
        }
    }
    Ok(())
}

fn moves(mut blocks: Vec<Segment>, away: &Segment, clock: Clock, mut random: Random) -> Checked {
    while clock.running() {
        let pick = random.index(blocks.len());
        let block = &mut blocks[pick];
        let home = block.start;
        for target in [away.start, home] {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            block.mremap(BLOCK_PAGES, flags, target)?;
            if random.index(4) == 0 {
                block.check_all("page that has moved")?;
            }
        }
        if random.index(8) == 0 {
            block.rewrite_some(&mut random)?;
        }
    }
    blocks
        .iter()
        .try_for_each(|block| block.check_all("page that has moved"))
}
