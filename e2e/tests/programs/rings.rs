//! Forks of a process that has made an io_uring: what the parent gives up right after the fork is still the child's.
//!
//! The program is run with hooks, and with an agent that was attached from outside.

use std::fs;
use std::process::Command;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

/// Generous: eviction comes from the pager's option.
const LIMIT_BYTES: u64 = 1024 * MIB;
const EVICT: [&str; 4] = ["--debug-evict-every", "3ms", "--swap", "none"];
/// Without care for the order, one of the first two hundred rounds failed each time.
const ROUNDS: &str = "600";

pub fn test(context: &Context) -> Outcome {
    let gcc = require_program("gcc", "apt packages gcc libc6-dev")?;
    let [source, program] = ["rings.c", "rings"].map(|name| context.place().join(name));
    fs::write(&source, include_str!("../../inputs/rings.c"))
        .during(|| format!("write {}", source.display()))?;
    let output = Command::new(gcc)
        .args(["-O2", "-o"])
        .args([&program, &source])
        .output()
        .during(|| "run gcc".to_owned())?;
    ensure!(output.status.success(), "gcc: {output:?}");
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
