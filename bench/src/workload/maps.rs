//! `map-unmap`: much memory that stays, and beside it memory that comes and goes, as a malloc does it that gives large
//! blocks back at once. What vswap does for each such call must not grow with threads and processes.
//!
//! Unsafe is needed here because pages of a `Region` are reached by address.

use std::io;

use super::phases::share;
use super::{MapUnmap, Mismatch, Setup, check_page};
use crate::content::Content;
use crate::region::{HugePages, Region};

/// Pages of a mapping that comes and goes: 128 KiB, from which on malloc maps.
const PAGES: usize = 32;

pub(crate) fn run(options: &MapUnmap) -> io::Result<Result<(), Mismatch>> {
    let setup = options.common.setup()?;
    Ok(phases(options, &setup))
}

fn phases(options: &MapUnmap, setup: &Setup) -> Result<(), Mismatch> {
    let Setup {
        region,
        content,
        stage,
        printer,
        ..
    } = setup;
    let pages = region.pages();
    let fill = stage.run("fill", |thread, latencies| {
        for page in share(pages, thread, stage.threads()) {
            // SAFETY: the parts of the threads are disjoint.
            latencies.time(|| content.generate(page, 0, unsafe { region.words_mut(page) }));
        }
        Ok(())
    })?;
    printer.phase(&fill);
    // SAFETY: no thread is running.
    unsafe { options.common.sabotage(region) };
    let maps = stage.run("map-unmap", |thread, latencies| {
        share(options.count, thread, stage.threads())
            .try_for_each(|number| latencies.time(|| map_and_unmap(content, number)))
    })?;
    printer.phase(&maps);
    let verify = stage.run("verify", |thread, latencies| {
        share(pages, thread, stage.threads()).try_for_each(|page| {
            // SAFETY: nobody writes in this phase.
            latencies.time(|| unsafe { check_page(region, content, page, 0) })
        })
    })?;
    printer.phase(&verify);
    Ok(())
}

/// Maps memory that must be empty, writes a page, reads it back, and unmaps.
fn map_and_unmap(content: &Content, number: usize) -> Result<(), Mismatch> {
    let memory = Region::new(PAGES, HugePages::Never)
        .map_err(|error| Mismatch::Refused(format!("mmap: {error}")))?;
    let page = number % PAGES;
    // SAFETY: nobody else has this region.
    let words = unsafe { memory.words_mut(page) };
    if words.iter().any(|word| *word != 0) {
        return Err(Mismatch::Refused(format!(
            "new memory at {:#x} is not empty",
            memory.page(page).addr()
        )));
    }
    content.generate(page, 0, words);
    // SAFETY: the borrow above has ended.
    unsafe { check_page(&memory, content, page, 0) }
}
