//! `zipf`: a few pages are used again and again, and now and then it is the turn of others.

use std::io;

use super::phases::{Run, Skewed};
use super::{Mismatch, Zipf};

pub(crate) fn run(options: &Zipf) -> io::Result<Result<(), Mismatch>> {
    let setup = options.common.setup_in(&options.placement)?;
    let run = Run::new(&setup, options.common.seed);
    let count = options.count.unwrap_or(setup.region.pages());
    let all = || {
        run.phase("fill", |thread, latencies| {
            run.fill(thread, latencies);
            Ok(())
        })?;
        setup.region.expect_random(true);
        let hot_sets = options.hot_sets.get();
        for hot in 0..hot_sets {
            let skewed = Skewed {
                count: count / hot_sets,
                exponent: options.exponent,
                write_percent: options.write_percent,
                percent: options.hot_percent,
                hot,
                hot_sets,
            };
            run.phase("zipf", |thread, latencies| {
                run.zipf(thread, skewed, latencies)
            })?;
        }
        setup.region.expect_random(false);
        // SAFETY: the threads of the phases before have ended.
        unsafe { options.common.sabotage(&setup.region) };
        run.phase("verify", |thread, latencies| run.verify(thread, latencies))
    };
    let result = all();
    setup.print_memory()?;
    Ok(result)
}
