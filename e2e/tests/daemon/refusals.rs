//! When a run joins the daemon, when it does not, and what is refused.

use vswap_e2e::ended::last_words;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure};

use crate::daemon::Daemon;

const LIMIT_BYTES: u64 = 64 * MIB;

/// There can be only one daemon, and areas belong to the daemon.
pub fn one_daemon(context: &Context) -> Outcome {
    let mut daemon = Daemon::start(context, &[])?;
    let second = daemon.vswap(&["daemon"])?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    ensure!(
        second.status.code() == Some(125) && said.contains("a daemon of yours is there already"),
        "the second daemon: {} {said}",
        second.status
    );
    let place = context.place().display().to_string();
    let area = format!("{place}:64M");
    let on = daemon.vswap(&["swapon", &area])?;
    ensure!(on.status.success(), "swapon: {on:?}");
    let used = daemon.report()?["areas"][0]["name"].clone();
    ensure!(used == place.as_str(), "the daemon's area is {used}");
    let sleeper = Job::new("/bin/sleep").arg("60");
    let running = context.limited(LIMIT_BYTES)?.start(&daemon.job(sleeper))?;
    let run = running.pid().to_string();
    running.until("the run to join", || {
        Ok(daemon.report_of(running.pid())?.map(drop))
    })?;
    let elsewhere = daemon.vswap(&["swapoff", &place, "--run", &run])?;
    let said = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
    ensure!(
        !elsewhere.status.success() && said.contains(&daemon.pid().to_string()),
        "swapoff of a run in the daemon: {} {said}",
        elsewhere.status
    );
    let joins = daemon.vswap(&["run", "--ram", "64M", "--", "true"])?;
    let said = String::from_utf8_lossy(&joins.stderr).into_owned();
    let first = format!(
        "vswap: this run is in the daemon (process {})",
        daemon.pid()
    );
    ensure!(said.starts_with(&first), "a run that joins: {said}");
    let off = daemon.vswap(&["swapoff", &place])?;
    ensure!(off.status.success(), "swapoff: {off:?}");
    Ok(())
}

/// Areas, pool and codec belong to the daemon. A run that wants its own is told what to do.
pub fn options_of_the_daemon(context: &Context) -> Outcome {
    let daemon = Daemon::start(context, &[])?;
    for option in ["--swap=/tmp", "--pool=8M", "--codec=zstd", "--no-encrypt"] {
        let run = |more: &[&str]| {
            let options = [&["run", "--ram", "64M", option][..], more, &["--", "true"]];
            daemon.vswap(&options.concat())
        };
        let refused = run(&[])?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(
            refused.status.code() == Some(125) && said.contains("--no-daemon"),
            "{option}: {} {said}",
            refused.status
        );
        let embedded = run(&["--no-daemon"])?;
        ensure!(embedded.status.success(), "{option}: {embedded:?}");
    }
    Ok(())
}

/// Without a daemon, or if the user does not want it, the run manages itself.
pub fn embedded(context: &Context) -> Outcome {
    let mut daemon = Daemon::start(context, &[])?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let job = || Job::new("/bin/sleep").arg("1");
    let joined = launcher.start(&daemon.job(job()))?;
    joined.until("the run to join", || {
        let report = daemon.report_of(daemon.pid())?.unwrap_or_default();
        Ok((report["runs"] == serde_json::json!([joined.pid()])).then_some(()))
    })?;
    let alone = launcher.start(&daemon.job(job()).vswap_options(["--no-daemon"]))?;
    alone.until("the run to answer", || {
        Ok(daemon.report_of(alone.pid())?.map(drop))
    })?;
    let runs = daemon.report()?["runs"].clone();
    ensure!(
        runs == serde_json::json!([joined.pid()]) || runs == serde_json::json!([]),
        "the daemon has the runs {runs}"
    );
    for run in [joined, alone] {
        let ended = run.wait()?;
        ended.must_succeed()?;
        let said = last_words(&ended.stderr);
        ensure!(
            said.contains("nothing was ever evicted"),
            "the run said {said}"
        );
    }
    daemon.until_empty()?;
    drop(daemon);
    launcher.start(&job())?.wait()?.must_succeed()
}
