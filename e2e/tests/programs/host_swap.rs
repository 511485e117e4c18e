//! The kernel's own swap beside vswap: pages of a managed program lie in the one while vswap moves others, and these
//! too, to its own. No byte may be wrong.

use vswap_e2e::group::Group;
use vswap_e2e::host_swap::HostSwap;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, need};

/// Generous: eviction comes from the pager's option.
const LIMIT_BYTES: u64 = 1024 * MIB;
const SWAP_BYTES: u64 = 512 * MIB;
/// What the kernel lets the program have, which wants nearly three times as much.
const GROUP_BYTES: u64 = 36 * MIB;
/// Fewer pages in the swap of the host would prove nothing.
const PAGES_LEAST: u64 = 500;

/// The program itself sends pages there, by MADV_PAGEOUT.
pub fn asked_for(context: &Context) -> Outcome {
    let swap = HostSwap::on(context, SWAP_BYTES)?;
    for threads in ["1", "4"] {
        let words = [
            "--megabytes",
            "64",
            "--seconds",
            "6",
            "--threads",
            threads,
            "paged",
        ];
        let job = Job::new(need::victims_binary()?).args(words);
        runs(context, &job, "50ms")?;
    }
    drop(swap);
    Ok(())
}

/// The kernel sends them, because a control group is full.
pub fn short_of_memory(context: &Context) -> Outcome {
    let swap = HostSwap::on(context, SWAP_BYTES)?;
    let group = Group::make("memory")?;
    group.write("memory.limit_in_bytes", GROUP_BYTES.to_string())?;
    for victim in ["threads", "fork", "dontneed", "chaos"] {
        let words = format!("--megabytes 96 --seconds 5 {victim}");
        let program = need::victims_binary()?;
        let job = Job::shell(format!("{} {} {words}", group.enter(), program.display()));
        runs(context, &job, "200ms")?;
    }
    drop((group, swap));
    Ok(())
}

/// The job is right, and both have moved pages.
fn runs(context: &Context, job: &Job, every: &str) -> Outcome {
    let before = HostSwap::pages_out()?;
    let job = job
        .clone()
        .vswap_options(["--debug-evict-every", every, "--swap", "none"]);
    let ended = context.limited(LIMIT_BYTES)?.start(&job)?.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    let (ours, hosts) = (ended.figure("pages_out")?, HostSwap::pages_out()? - before);
    context.say(format!(
        "pages out: {ours} by vswap, {hosts} by the kernel, in {:.1} s",
        ended.took.as_secs_f64()
    ));
    ensure!(ours > PAGES_LEAST, "vswap moved only {ours} pages out");
    ensure!(
        hosts > PAGES_LEAST,
        "the kernel moved only {hosts} pages out"
    );
    Ok(())
}
