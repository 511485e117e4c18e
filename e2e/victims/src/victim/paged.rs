//! Pages that the program sends to the swap of the host (`MADV_PAGEOUT`), calls back from there (`MADV_WILLNEED`),
//! shares with children, discards and writes again.
//!
//! Without swap of the host that advice changes nothing. The last line of output says how much lay there at most.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::content::{PAGE_BYTES, Random};
use crate::pages::Pages;
use crate::run::{Child, Options};
use crate::wrong::{Checked, call};

/// Most pages of one advice.
const ADVICE_PAGES_MAX: usize = 128;
/// Pages that are checked and rewritten at a time.
const STIR_PAGES: usize = 32;
/// Steps between two checks of everything.
const STEPS: usize = 32;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let most_kib = AtomicU64::new(0);
    options.parallel(|thread| {
        let mut random = options.random(thread, 103);
        let mut pages = Pages::filled(options.pages_per_thread(), options.tag(thread))?;
        pages.check_all("fresh page")?;
        loop {
            for _ in 0..STEPS {
                step(&mut pages, &mut random)?;
                pages.stir("page beside the swap of the host", &mut random, STIR_PAGES)?;
            }
            most_kib.fetch_max(swapped_kib(), Ordering::Relaxed);
            let child = Child::fork(|| {
                advise(&pages, 0, pages.len(), libc::MADV_PAGEOUT)?;
                pages.stir("page that a child shares", &mut random, STIR_PAGES)?;
                pages.check_all("page that a child shares")
            })?;
            pages.stir("page that a child shares", &mut random, STIR_PAGES)?;
            pages.check_all("page beside the swap of the host")?;
            child.wait()?;
            if !clock.running() {
                return Ok(());
            }
        }
    })?;
    println!("in the swap of the host: {} KiB", most_kib.into_inner());
    Ok(())
}

/// Advice on some pages, which says nothing of their content, or discards it.
fn step(pages: &mut Pages, random: &mut Random) -> Checked {
    let first = random.index(pages.len());
    let count = 1 + random.index(ADVICE_PAGES_MAX.min(pages.len() - first));
    match random.index(8) {
        0 => {
            advise(pages, first, count, libc::MADV_DONTNEED)?;
            pages.versions[first..first + count].fill(0);
        }
        1 => advise(pages, first, count, libc::MADV_WILLNEED)?,
        2 => advise(pages, first, count, libc::MADV_COLD)?,
        _ => advise(pages, first, count, libc::MADV_PAGEOUT)?,
    }
    // Not each: the others stay where the advice has put them.
    (0..8).try_for_each(|_| {
        let index = first + random.index(count);
        pages.check("page of the advice", index)
    })
}

fn advise(pages: &Pages, first: usize, count: usize, advice: i32) -> Checked {
    let start = pages.mapping.page(first).cast();
    // SAFETY: the range is inside the mapping, which this thread owns, and the model follows.
    call("madvise", unsafe {
        libc::madvise(start, count * PAGE_BYTES, advice)
    })
    .map(drop)
}

/// How much of this process is in the swap of the host.
fn swapped_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
