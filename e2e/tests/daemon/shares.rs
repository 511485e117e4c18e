//! What runs share, and what each has for itself.

use std::time::{Duration, Instant};

use serde_json::Value;
use vswap_e2e::limit::{allowed_bytes, mib};
use vswap_e2e::victim::Plan;
use vswap_e2e::{
    Context, Failure, Job, MIB, Outcome, Running, ensure, procfs, require_program, workload_binary,
};

use crate::daemon::Daemon;

const LIMIT_BYTES: u64 = 64 * MIB;
/// Pause between two looks at the memory of all of them.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A workload that fills, reads and writes in order and at random, and verifies every byte.
pub fn workload(size: &str) -> Outcome<Job> {
    let words = [
        "fill-read-write",
        size,
        "--threads",
        "2",
        "--count",
        "10000",
    ];
    Ok(Job::new(workload_binary()?).args(words))
}

/// An area in a file, made by vswap.
pub fn swap_file(context: &Context) -> Outcome<String> {
    let file = context.place().join("swapfile").display().to_string();
    let made = context.vswap(&["mkswap", &file, "--size", "1G"])?;
    ensure!(made.status.success(), "mkswap: {made:?}");
    Ok(file)
}

/// The current memory of the daemon and the runs together: all of vswap's, and the programs' own. The text of `vswap
/// run` is the daemon's, in the same pages.
fn taken_bytes(daemon: &Daemon, runs: &[Running]) -> u64 {
    let of_run = |run: &Running| {
        let programs = procfs::living_descendants(run.pid());
        let programs: u64 = programs.into_iter().map(procfs::anon_share_bytes).sum();
        programs + procfs::anon_bytes(run.pid())
    };
    procfs::rss_bytes(daemon.pid()) + runs.iter().map(of_run).sum::<u64>()
}

fn figure(of: &Value, name: &str) -> Outcome<u64> {
    let figure = of[name].as_u64();
    figure.ok_or_else(|| Failure::wrong(format!("no {name} in {of}")))
}

/// How long all may exceed what is allowed.
const OVER_MAX: Duration = Duration::from_millis(100);

/// Noise, twice as much as fits, of which every byte is looked at.
const NOISE: &str = "import random
r = random.Random(7)
kept = [r.randbytes(4 << 20) for step in range(40)]
r = random.Random(7)
for content in kept:
    assert content == r.randbytes(4 << 20)
";

/// A daemon that was given no areas has a file of its own when a run is nearly full.
pub fn without_areas(context: &Context) -> Outcome {
    let mut daemon = Daemon::start(context, &[])?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let python = require_program("python3", "apt package python3")?;
    let job = Job::new(python).args(["-c", NOISE]);
    launcher.start(&daemon.job(job))?.wait()?.must_succeed()?;
    let said = daemon.said();
    ensure!(
        said.matches("encrypted file in").count() == 1,
        "the daemon says {said}"
    );
    let report = daemon.report()?;
    let written = report["areas"][0]["written_bytes"].as_u64().unwrap_or(0);
    ensure!(written > 32 * MIB, "hardly anything was written: {report}");
    daemon.until_empty()
}

/// Three programs on one area, each within its limit by what it and the daemon say and by what /proc says of all of
/// them together; each finds its content again, and nothing is left.
pub fn three_runs(context: &Context) -> Outcome {
    let area = swap_file(context)?;
    let mut daemon = Daemon::start(context, &["--swap", &area])?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let plan = Plan {
        mib: 208,
        children: 0,
        passes: 3,
        exit_status: 0,
    };
    let (victim, log) = plan.job(context)?;
    let jobs = [workload("208M")?, workload("240M")?, victim];
    // All at the same moment: on few processors they would outgrow their limits before they are registered.
    let runs = jobs
        .into_iter()
        .map(|job| launcher.start(&daemon.job(job)))
        .collect::<Outcome<Vec<Running>>>()?;
    let (mut most, mut in_area, mut together) = (0, 0, 0);
    let allowed = 3 * allowed_bytes(LIMIT_BYTES);
    let (mut over_since, mut over_longest) = (None, Duration::ZERO);
    while runs.iter().all(|run| procfs::is_alive(run.pid())) {
        let taken = taken_bytes(&daemon, &runs);
        most = most.max(taken);
        over_since = (taken > allowed).then(|| over_since.unwrap_or_else(Instant::now));
        over_longest = over_longest.max(over_since.map_or(Duration::ZERO, |since| since.elapsed()));
        let report = daemon.report()?;
        in_area = in_area.max(figure(&report, "physical_pages")? * 4096);
        together = together.max(report["runs"].as_array().map_or(0, Vec::len));
        std::thread::sleep(LOOK_EVERY);
    }
    context.say(format!(
        "at most {} taken by all, above {} for {over_longest:?} at the longest, {} in the area",
        mib(most),
        mib(allowed),
        mib(in_area)
    ));
    for run in runs {
        let ended = run.wait()?;
        ended.must_succeed()?;
        ended.must_hold_limit()?;
        context.say(format!(
            "{} MiB at the peak by its own figures, out {}, in {}",
            ended.figure("peak_total_bytes")? / MIB,
            ended.figure("pages_out")?,
            ended.figure("pages_in")?
        ));
    }
    log.must_be_right()?;
    ensure!(together == 3, "{together} runs were in the daemon at once");
    ensure!(in_area > 16 * MIB, "the area was hardly used");
    daemon.until_empty()?;
    if over_longest > OVER_MAX {
        let (most, allowed) = (mib(most), mib(allowed));
        return Err(Failure::Limit(format!(
            "all took {most}, and more than {allowed} for {over_longest:?}"
        )));
    }
    Ok(())
}

/// Two runs in one group share its limit, and have their own groups inside it.
pub fn group_of_two_runs(context: &Context) -> Outcome {
    const SWAP_MAX_BYTES: u64 = 24 * MIB;
    let area = swap_file(context)?;
    let mut daemon = Daemon::start(context, &["--swap", &area])?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let grouped = |job: Job, options: &[&str]| {
        let job = job.vswap_options(["--group", "web/jobs"]);
        launcher.start(&daemon.job(job.vswap_options(options.iter().copied())))
    };
    let size = SWAP_MAX_BYTES.to_string();
    let first = grouped(workload("104M")?, &["--swap-max", &size])?;
    let has_joined = |pid| Ok(daemon.report_of(pid)?.map(drop));
    first.until("the first to join", || has_joined(first.pid()))?;
    let refused = grouped(workload("16M")?, &["--swap-max", "1M"])?.wait()?;
    refused.must_exit_with(125)?;
    let second = grouped(workload("104M")?, &[])?;
    let mut most = 0;
    while procfs::is_alive(first.pid()) && procfs::is_alive(second.pid()) {
        let report = daemon.report_of(daemon.pid())?.unwrap_or_default();
        let groups = report["groups"].as_array().cloned().unwrap_or_default();
        let of = |name: &str| {
            let found = groups.iter().find(|group| group["name"] == name);
            found
                .and_then(|group| group["swap_bytes"].as_u64())
                .unwrap_or(0)
        };
        most = most.max(of("web/jobs"));
        ensure!(
            of("web/jobs") <= SWAP_MAX_BYTES,
            "the group is above its limit: {report}"
        );
    }
    for run in [first, second] {
        let ended = run.wait()?;
        ended.must_succeed()?;
        let groups = ended
            .summary
            .as_ref()
            .map(|summary| summary["groups"].clone());
        let groups = groups.unwrap_or_default();
        ensure!(
            groups[0]["name"] == "web"
                && groups[2]["name"] == format!("web/jobs/run-{}", ended.pid),
            "the run was in {groups}"
        );
    }
    context.say(format!("at most {} in the area", mib(most)));
    ensure!(most > SWAP_MAX_BYTES / 2, "the area was hardly used");
    daemon.until_empty()
}

/// One of the daemon's two areas goes while it holds pages of two runs, which verify their pages meanwhile.
pub fn swapoff_under_two_runs(context: &Context) -> Outcome {
    let area = swap_file(context)?;
    let private = format!("{},prio=1", context.place().display());
    let first = format!("{area},prio=2");
    let options = ["--pool", "off", "--swap", &first, "--swap", &private];
    let mut daemon = Daemon::start(context, &options)?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let job = || -> Outcome<Job> {
        let words = ["memhog", "208M", "--seconds", "12"];
        Ok(daemon.job(Job::new(workload_binary()?).args(words)))
    };
    let runs = [launcher.start(&job()?)?, launcher.start(&job()?)?];
    for run in &runs {
        run.until("its pages to go to the area", || {
            let report = daemon.report_of(run.pid())?.unwrap_or_default();
            let out = report["pages_out"].as_u64().unwrap_or(0) * 4096;
            Ok((out > 64 * MIB).then_some(()))
        })?;
    }
    let used = figure(&daemon.report()?, "physical_pages")?;
    let off = daemon.vswap(&["swapoff", &area])?;
    ensure!(off.status.success(), "swapoff: {off:?}");
    let areas = daemon.vswap(&["status", "--areas"])?;
    let listed = String::from_utf8_lossy(&areas.stdout).into_owned();
    ensure!(!listed.contains(&area), "after swapoff: {listed}");
    let alive = runs.iter().all(|run| procfs::is_alive(run.pid()));
    ensure!(alive, "a run had ended before the area was gone");
    context.say(format!("{used} pages were in areas"));
    for run in runs {
        let ended = run.wait()?;
        ended.must_succeed()?;
        ended.must_hold_limit()?;
    }
    daemon.until_empty()
}
