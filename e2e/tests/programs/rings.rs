//! Forks of a process that has made an io_uring: what the parent gives up right after the fork is still the child's.
//!
//! The program is run with hooks, and with an agent that was attached from outside.

use std::fs;

use vswap_e2e::compile::{GCC, compile};
use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure};

/// Generous: eviction comes from the pager's option.
const LIMIT_BYTES: u64 = 1024 * MIB;
const EVICT: [&str; 4] = ["--debug-evict-every", "3ms", "--swap", "none"];
/// Without care for the order, one of the first two hundred rounds failed each time.
const ROUNDS: &str = "300";

pub fn test(context: &Context) -> Outcome {
    let text = include_str!("../../inputs/rings.c");
    let program = compile(context, GCC, text, "rings", &["-O2"])?;
    let hooked = Job::new(&program).arg(ROUNDS);
    let attached = Job::new("/usr/bin/env").arg("-i").append(&hooked);
    for job in [hooked, attached] {
        let job = job.vswap_options(EVICT);
        let ended = context.limited(LIMIT_BYTES)?.start(&job)?.wait()?;
        ended.must_succeed()?;
        let said = fs::read_to_string(&ended.stdout).during(|| "read its output".to_owned())?;
        ensure!(said == "right\n", "{job:?} says {said:?}");
        let out = ended.figure("pages_out")?;
        ensure!(out > 0, "nothing of {job:?} was swapped");
    }
    Ok(())
}
