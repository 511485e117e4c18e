//! `prefork`: a server that loads its data, forks workers which wait for work, and grows then. What leaves memory to
//! make room is shared by all of them.
//!
//! Half of the memory is filled before the forks. The second half of the fill drives the first half out, which takes
//! every worker to give its pages up. Workers verify what they share at the end, each its own part.
//!
//! Unsafe is needed here because pages of a `Region` are reached by address.

use std::io::{self, PipeReader, Read};
use std::ops::Range;

use crate::measure::Latencies;

use super::{Mismatch, Prefork, Setup, check_page, fork};

pub(crate) fn run(options: &Prefork) -> io::Result<Result<(), Mismatch>> {
    fork::expect_one_thread(&options.common)?;
    let setup = options.common.setup()?;
    let (waiting, go) = io::pipe()?;
    Ok(phases(options, &setup, go, &waiting))
}

fn phases(
    options: &Prefork,
    setup: &Setup,
    go: io::PipeWriter,
    waiting: &PipeReader,
) -> Result<(), Mismatch> {
    let pages = setup.region.pages();
    let shared = pages / 2;
    let workers = options.children.get();
    let phase = |name, work: &mut dyn FnMut(&mut Latencies) -> Result<(), Mismatch>| {
        setup
            .stage
            .run_alone(name, work)
            .map(|phase| setup.printer.phase(&phase))
    };
    phase("fill", &mut |latencies| fill(setup, 0..shared, latencies))?;
    // SAFETY: this process has one thread.
    unsafe { options.common.sabotage(&setup.region) };
    let mut go = Some(go);
    phase("fork", &mut |latencies| {
        (0..workers).try_for_each(|number| {
            fork::fork_off(latencies, || {
                // Who waits must not hold the end that is closed to wake all.
                drop(go.take());
                work(setup, (number..shared).step_by(workers), waiting)
            })
        })
    })?;
    phase("grow", &mut |latencies| {
        fill(setup, shared..pages, latencies)
    })?;
    phase("verify", &mut |latencies| {
        verify(setup, 0..pages, latencies)
    })?;
    phase("workers", &mut |_| {
        drop(go.take());
        (0..workers).try_for_each(|_| fork::wait())
    })
}

/// What a worker does: it waits until its parent has let go, and verifies its part.
fn work(
    setup: &Setup,
    pages: impl Iterator<Item = usize>,
    mut waiting: &PipeReader,
) -> Result<(), Mismatch> {
    let woken = waiting.read(&mut [0]);
    woken.map_err(|error| Mismatch::Child(error.to_string()))?;
    verify(setup, pages, &mut Latencies::new())
}

fn fill(setup: &Setup, pages: Range<usize>, latencies: &mut Latencies) -> Result<(), Mismatch> {
    for page in pages {
        // SAFETY: this process has one thread.
        let words = unsafe { setup.region.words_mut(page) };
        latencies.time(|| setup.content.generate(page, 0, words));
    }
    Ok(())
}

fn verify(
    setup: &Setup,
    mut pages: impl Iterator<Item = usize>,
    latencies: &mut Latencies,
) -> Result<(), Mismatch> {
    pages.try_for_each(|page| {
        // SAFETY: this process has one thread.
        latencies.time(|| unsafe { check_page(&setup.region, &setup.content, page, 0) })
    })
}
