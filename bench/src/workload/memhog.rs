//! `memhog`: takes memory as fast as possible, then walks over it until its time is over.
//!
//! Unsafe is needed here because threads share a `Region`, and the compiler cannot check which thread writes which
//! page.

use std::io;
use std::time::{Duration, Instant};

use super::phases::share;
use super::{Memhog, Mismatch, Setup, check_page};

pub(crate) fn run(options: &Memhog) -> io::Result<Result<(), Mismatch>> {
    let setup = options.common.setup_in(&options.placement)?;
    let result = hog(options, &setup);
    setup.print_memory()?;
    Ok(result)
}

fn hog(options: &Memhog, setup: &Setup) -> Result<(), Mismatch> {
    let Setup {
        region,
        content,
        stage,
        printer,
        ..
    } = setup;
    let fill = stage.run("fill", |thread, latencies| {
        for page in share(region.pages(), thread, stage.threads()) {
            // SAFETY: the parts of the threads are disjoint.
            latencies.time(|| content.generate(page, 0, unsafe { region.words_mut(page) }));
        }
        Ok(())
    })?;
    printer.phase(&fill);
    // SAFETY: no thread is running.
    unsafe { options.common.sabotage(region) };
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    let mut version = 0;
    loop {
        let walk = stage.run("walk", |thread, latencies| {
            for page in share(region.pages(), thread, stage.threads()) {
                // SAFETY: the parts of the threads are disjoint.
                latencies.time(|| unsafe {
                    check_page(region, content, page, version)?;
                    let stamp = content.stamp(page, version + 1);
                    region
                        .page(page)
                        .add(content.stamp_word(page))
                        .write_volatile(stamp);
                    Ok(())
                })?;
            }
            Ok(())
        })?;
        printer.phase(&walk);
        version += 1;
        if Instant::now() >= end {
            break;
        }
    }
    let verify = stage.run("verify", |thread, latencies| {
        share(region.pages(), thread, stage.threads()).try_for_each(|page| {
            // SAFETY: nobody writes in this phase.
            latencies.time(|| unsafe { check_page(region, content, page, version) })
        })
    })?;
    printer.phase(&verify);
    Ok(())
}
