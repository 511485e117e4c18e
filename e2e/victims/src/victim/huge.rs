//! Memory that asks for huge pages. It is split, partly dropped, partly protected, and collapsed again.

use crate::content::{PAGE_BYTES, Random};
use crate::pages::Pages;
use crate::run::Options;
use crate::wrong::{Checked, call};

/// Small pages in a huge page.
const HUGE_PAGES: usize = 512;
/// The C library's headers of older systems do not have it.
const MADV_COLLAPSE: i32 = 25;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let pages = options.pages_per_thread().next_multiple_of(HUGE_PAGES);
        let mut pages = Pages::new(pages, options.tag(thread))?;
        advise(
            "madvise(HUGEPAGE)",
            &pages,
            0,
            pages.len(),
            libc::MADV_HUGEPAGE,
        )?;
        let mut random = options.random(thread, 16);
        for index in 0..pages.len() {
            pages.rewrite(index);
        }
        crate::content::strike(pages.mapping.page(3));
        loop {
            for _ in 0..16 {
                step(&mut pages, &mut random)?;
                pages.stir("page of a huge page", &mut random, 64)?;
            }
            pages.check_all("all pages")?;
            if !clock.running() {
                return Ok(());
            }
        }
    })
}

fn advise(what: &'static str, pages: &Pages, first: usize, count: usize, advice: i32) -> Checked {
    assert!(first + count <= pages.len());
    // SAFETY: the range is inside the mapping, whose model the caller updates.
    let result =
        unsafe { libc::madvise(pages.mapping.page(first).cast(), count * PAGE_BYTES, advice) };
    call(what, result).map(drop)
}

fn step(pages: &mut Pages, random: &mut Random) -> Checked {
    let first = random.index(pages.len());
    let count = 1 + random.index((pages.len() - first).min(HUGE_PAGES));
    let huge = random.index(pages.len() / HUGE_PAGES) * HUGE_PAGES;
    match random.index(5) {
        0 => drop_and_look(pages, first, count)?,
        1 => {
            drop_and_look(pages, huge, HUGE_PAGES)?;
            // One touch may bring in a whole huge page. All the rest of it must be zeros.
            pages.rewrite(huge + random.index(HUGE_PAGES));
        }
        2 => {
            let start = pages.mapping.page(first).cast();
            for protection in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
                // SAFETY: the range is inside the mapping, and nobody writes it in between.
                let result = unsafe { libc::mprotect(start, count * PAGE_BYTES, protection) };
                call("mprotect", result)?;
                pages.check("page whose protection changed", first)?;
            }
        }
        3 => {
            // Refused if the kernel finds no huge page or may not make one. The content stays either way.
            let _ = advise("madvise(COLLAPSE)", pages, huge, HUGE_PAGES, MADV_COLLAPSE);
        }
        _ => {
            advise(
                "madvise(NOHUGEPAGE)",
                pages,
                first,
                count,
                libc::MADV_NOHUGEPAGE,
            )?;
            pages.check("page without huge pages", first)?;
            advise(
                "madvise(HUGEPAGE)",
                pages,
                first,
                count,
                libc::MADV_HUGEPAGE,
            )?;
        }
    }
    (huge..huge + HUGE_PAGES).try_for_each(|index| pages.check("pages of one huge page", index))
}

fn drop_and_look(pages: &mut Pages, first: usize, count: usize) -> Checked {
    (first..first + count).try_for_each(|index| pages.check("page before DONTNEED", index))?;
    advise(
        "madvise(DONTNEED)",
        pages,
        first,
        count,
        libc::MADV_DONTNEED,
    )?;
    pages.versions[first..first + count].fill(0);
    (first..first + count).try_for_each(|index| pages.check("page right after DONTNEED", index))
}
