//! Runs without virtual swap space: a page that is out has its slot in an area, wherever its bytes are.

use vswap_e2e::{Context, Job, MIB, Outcome, ensure, need, workload_binary};

use crate::live::{directory, hog, interrupt, start};
use crate::used::{list, with_areas};

const LIMIT_BYTES: u64 = 96 * MIB;

fn direct(job: Job, areas: &[String]) -> Job {
    with_areas(job.vswap_options(["--no-virtual"]), areas)
}

/// The program verifies every byte, with the pool in front of the areas and without one.
pub fn no_virtual(context: &Context) -> Outcome {
    let place = directory(context, "private")?;
    for options in [&["--pool", "off"][..], &[]] {
        let launcher = context.limited(LIMIT_BYTES)?;
        let job = Job::new(workload_binary()?).args(["fill-read-write", "192M"]);
        let job = direct(job.vswap_options(options), std::slice::from_ref(&place));
        let ended = launcher.run(&job)?;
        ended.must_succeed()?;
        ended.must_hold_limit()?;
        ensure!(ended.figure("pages_out")? > 20_000, "nothing went out");
        ensure!(
            ended.figure("direct_pages")? == ended.figure("swapped_pages")?,
            "there are virtual slots"
        );
    }
    Ok(())
}

/// One of two areas goes while the program verifies what lies on both. Every page that names the area is brought back.
pub fn no_virtual_swapoff(context: &Context) -> Outcome {
    for options in [&["--pool", "off"][..], &[]] {
        let name = if options.is_empty() { "pool" } else { "alone" };
        let places = [
            directory(context, &format!("{name}-first"))?,
            directory(context, &format!("{name}-second"))?,
        ];
        let launcher = context.limited(LIMIT_BYTES)?;
        let job = Job::new(workload_binary()?).args(["memhog", "256M", "--seconds", "12"]);
        let job = direct(job.vswap_options(options), &places);
        let running = start(context, &launcher, &job)?;
        let run = running.pid().to_string();
        let off = context.vswap(&["swapoff", &places[0], "--run", &run])?;
        ensure!(off.status.success(), "swapoff: {off:?}");
        let areas = list(context, running.pid())?;
        ensure!(
            !areas.contains(&places[0]) && areas.contains(&places[1]),
            "after swapoff: {areas}"
        );
        launcher.finish(running)?.must_succeed()?;
    }
    Ok(())
}

/// The only area cannot go while the program needs it, and stays as it was.
pub fn no_virtual_swapoff_without_room(context: &Context) -> Outcome {
    let place = directory(context, "private")?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let job = Job::new(workload_binary()?).args(["memhog", "256M", "--seconds", "15"]);
    let job = direct(job, &[format!("{place},prio=7")]);
    let running = start(context, &launcher, &job)?;
    let run = running.pid().to_string();
    let off = context.vswap(&["swapoff", &place, "--run", &run])?;
    let said = String::from_utf8_lossy(&off.stderr).into_owned();
    ensure!(!off.status.success(), "the pages had nowhere to go");
    ensure!(said.contains("room"), "swapoff says {said}");
    let areas = list(context, running.pid())?;
    ensure!(
        areas
            .lines()
            .any(|line| line.contains(&place) && line.contains(" 7 ")),
        "it is not what it was: {areas}"
    );
    launcher.finish(running)?.must_succeed()
}

/// The asker goes away while pages are brought back. What came back is in memory or elsewhere, and the rest is where it
/// was.
pub fn no_virtual_swapoff_interrupted(context: &Context) -> Outcome {
    let job = hog("400M", "12")?.vswap_options(["--no-virtual"]);
    interrupt(context, job)
}

/// Forks share pages by the counts of their slots.
pub fn no_virtual_fork(context: &Context) -> Outcome {
    let place = directory(context, "private")?;
    let words = "--megabytes 64 --threads 1 --seconds 5 fork";
    let job = Job::new(need::victims_binary()?).args(words.split(' '));
    // Pages are moved out all the time. This test does not ask how close to a limit a storm of forks stays.
    let job = direct(job, std::slice::from_ref(&place)).vswap_options(["--debug-evict-every=1ms"]);
    let ended = context.limited(512 * MIB)?.run(&job)?;
    let out = ended.summary.as_ref().and_then(|s| s["pages_out"].as_u64());
    ensure!(out > Some(10_000), "{out:?} pages went out");
    ended.must_succeed()
}
