//! `sparse`: few pages in a large address space, or in many mappings. What managing memory costs must grow with what is
//! used, and not with what is mapped.
//!
//! Unsafe is needed here because threads share a `Region`, and the compiler cannot check which thread writes which
//! page.

use std::io;

use super::phases::share;
use super::{Mismatch, Setup, Sparse, check_page};
use crate::random::Random;
use crate::region::PAGE_BYTES;

pub(crate) fn run(options: &Sparse) -> io::Result<Result<(), Mismatch>> {
    let setup = options.common.setup()?;
    let pages = setup.region.pages();
    let spread = pages / options.pages.clamp(1, pages);
    let distance = options
        .distance
        .map_or(spread, |bytes| bytes.div_ceil(PAGE_BYTES).max(1));
    let touched = options.pages.clamp(1, pages.div_ceil(distance));
    setup.region.cut(options.mappings)?;
    Ok(phases(options, &setup, touched, distance))
}

fn phases(
    options: &Sparse,
    setup: &Setup,
    touched: usize,
    distance: usize,
) -> Result<(), Mismatch> {
    let Setup {
        region,
        content,
        stage,
        printer,
        ..
    } = setup;
    let page_of = |number: usize| number * distance;
    let fill = stage.run("fill", |thread, latencies| {
        for number in share(touched, thread, stage.threads()) {
            let page = page_of(number);
            // SAFETY: the parts of the threads are disjoint.
            latencies.time(|| content.generate(page, 0, unsafe { region.words_mut(page) }));
        }
        Ok(())
    })?;
    printer.phase(&fill);
    // SAFETY: no thread is running.
    unsafe { options.common.sabotage(region) };
    let read = stage.run("random-read", |thread, latencies| {
        let mut random = Random::new(options.common.seed + thread as u64);
        let accesses = share(options.count.unwrap_or(touched), thread, stage.threads());
        for _ in accesses {
            let page = page_of(random.below(touched));
            let address = region.page(page);
            // SAFETY: the page is in the region, and nobody writes in this phase.
            let found =
                latencies.time(|| unsafe { address.add(content.stamp_word(page)).read_volatile() });
            if found != content.stamp(page, 0) {
                // SAFETY: nobody writes in this phase.
                unsafe { check_page(region, content, page, 0)? };
            }
        }
        Ok(())
    })?;
    printer.phase(&read);
    let verify = stage.run("verify", |thread, latencies| {
        share(touched, thread, stage.threads()).try_for_each(|number| {
            // SAFETY: nobody writes in this phase.
            latencies.time(|| unsafe { check_page(region, content, page_of(number), 0) })
        })
    })?;
    printer.phase(&verify);
    Ok(())
}
