//! `fork`: a large parent that forks again and again, with several children at a time.
//!
//! Each child reads some of its parent's pages, writes some of them and verifies what it has written. The parent and
//! the other children do the same meanwhile, so shared pages become private ones. Children have no threads and print
//! nothing.

use std::io;
use std::num::NonZeroUsize;

use clap::Args;

use crate::measure::Latencies;
use crate::random::Random;

use super::phases::Run;
use super::{Common, Mismatch};

/// Options of `fork`.
#[derive(Args, Debug)]
pub struct Fork {
    #[command(flatten)]
    common: Common,
    /// Children in all.
    #[arg(long, default_value = "64")]
    children: NonZeroUsize,
    /// Children that are alive at the same time.
    #[arg(long, default_value = "4")]
    at_once: NonZeroUsize,
    /// Pages that each child reads and writes, and the parent too between forks.
    #[arg(long, default_value_t = 1000)]
    pages: usize,
}

pub(super) fn run(options: &Fork) -> io::Result<Result<(), Mismatch>> {
    expect_one_thread(&options.common)?;
    let setup = options.common.setup()?;
    let run = Run::new(&setup, options.common.seed);
    let all = || {
        run.phase("fill", |thread, latencies| {
            run.fill(thread, latencies);
            Ok(())
        })?;
        // SAFETY: this process has one thread.
        unsafe { options.common.sabotage(&setup.region) };
        run.phase("fork", |_, latencies| storm(options, &run, latencies))?;
        run.phase("verify", |thread, latencies| run.verify(thread, latencies))
    };
    Ok(all())
}

pub(super) fn expect_one_thread(common: &Common) -> io::Result<()> {
    if common.threads == 1 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "a process with several threads cannot fork and go on in the child: expected --threads 1",
    ))
}

/// Forks all children. The latency is that of the fork call in the parent.
fn storm(options: &Fork, run: &Run, latencies: &mut Latencies) -> Result<(), Mismatch> {
    let mut alive = 0;
    let mut result = Ok(());
    for number in 0..options.children.get() {
        if alive == options.at_once.get() {
            alive -= 1;
            result = result.and(wait());
        }
        if let Err(error) = fork_off(latencies, || scribble(options, run, number + 1)) {
            return result.and(Err(error));
        }
        alive += 1;
        result = result.and(scribble(options, run, 0));
    }
    for _ in 0..alive {
        result = result.and(wait());
    }
    result
}

/// Forks a child that does `work` and ends. This process must have one thread.
pub(super) fn fork_off(
    latencies: &mut Latencies,
    work: impl FnOnce() -> Result<(), Mismatch>,
) -> Result<(), Mismatch> {
    // SAFETY: this process has one thread, so its child may do anything. No safe wrapper exists for `fork`.
    match latencies.time(|| unsafe { libc::fork() }) {
        -1 => Err(Mismatch::Child(io::Error::last_os_error().to_string())),
        0 => {
            let right = work();
            // The parent's buffers and handlers are not the child's to flush.
            // SAFETY: the call ends the process. `std::process::exit` would flush them.
            unsafe { libc::_exit(i32::from(right.is_err())) };
        }
        _ => Ok(()),
    }
}

/// Reads and writes pages at random, in the parent (0) or a child, and checks what it wrote.
fn scribble(options: &Fork, run: &Run, who: usize) -> Result<(), Mismatch> {
    let mut latencies = Latencies::new();
    let seed = || Random::new(options.common.seed ^ (who as u64) << 20);
    let mut random = seed();
    for _ in 0..options.pages {
        let page = random.below(run.pages());
        if random.below(2) == 0 {
            run.write_stamp(page, &mut latencies);
        } else {
            run.read_stamp(page, &mut latencies)?;
        }
    }
    let mut random = seed();
    for _ in 0..options.pages {
        run.verify_page(random.below(run.pages()))?;
        random.below(2);
    }
    Ok(())
}

/// Waits for a child.
pub(super) fn wait() -> Result<(), Mismatch> {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    match unsafe { libc::wait(&raw mut status) } {
        -1 => Err(Mismatch::Child(io::Error::last_os_error().to_string())),
        _ if status == 0 => Ok(()),
        pid => Err(Mismatch::Child(format!(
            "child {pid} found a wrong byte or was ended: wait status {status:#x}"
        ))),
    }
}
