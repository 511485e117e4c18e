//! A death takes along what belongs to the dead, and nothing else.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use vswap_e2e::ended::last_words;
use vswap_e2e::victim::{Log, Plan};
use vswap_e2e::{Context, Launcher, MIB, Outcome, Running, ensure, procfs};

use crate::daemon::Daemon;
use crate::shares::workload;

const LIMIT_BYTES: u64 = 64 * MIB;
/// After the daemon or a `vswap run` is killed, its programs must be gone within this time.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// Three times the limit, and a child that shares it. Goes on for ever.
const FOR_EVER: Plan = Plan {
    mib: 208,
    children: 1,
    passes: 0,
    exit_status: 0,
};

/// A victim in the daemon, in its second pass.
fn victim(context: &Context, daemon: &Daemon) -> Outcome<(Launcher, Running, Log)> {
    let launcher = context.limited(LIMIT_BYTES)?;
    let (job, log) = FOR_EVER.job(context)?;
    let running = launcher.start(&daemon.job(job))?;
    running.until("both processes' passes", || {
        Ok(log.has("pass 0 child 0").and(log.has("pass 0 parent")))
    })?;
    Ok((launcher, running, log))
}

fn must_go(pids: &[u32]) -> Outcome {
    let since = Instant::now();
    while pids.iter().any(|&pid| procfs::is_alive(pid)) {
        let alive: Vec<String> = pids.iter().map(|&pid| procfs::describe(pid)).collect();
        ensure!(
            since.elapsed() < GONE_WITHIN,
            "of {} some live",
            alive.join(", ")
        );
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// The run is killed and cannot say goodbye. The daemon then has nothing of it any more, and another run does not
/// notice.
pub fn run_killed(context: &Context) -> Outcome {
    let mut daemon = Daemon::start(context, &["--swap", &area(context)])?;
    let (launcher, running, log) = victim(context, &daemon)?;
    let other = launcher.start(&daemon.job(workload("160M")?))?;
    let programs = procfs::living_descendants(running.pid());
    ensure!(programs.len() == 2, "the victim has processes {programs:?}");
    other.until("the other run to join", || {
        Ok(daemon.report_of(other.pid())?.map(drop))
    })?;
    running.signal(Signal::KILL)?;
    running.wait()?.must_be_ended_by(Signal::KILL)?;
    must_go(&programs)?;
    log.must_be_right()?;
    let ended = other.wait()?;
    ended.must_succeed()?;
    ended.must_hold_limit()?;
    daemon.until_empty()?;
    daemon.signal(Signal::TERM)?;
    let status = daemon.wait()?;
    ensure!(status.success(), "the daemon ended with {status}");
    let left = daemon.dirs_with("");
    ensure!(left.is_empty(), "the daemon left {left:?} behind");
    Ok(())
}

/// The daemon is killed: its runs end and say why.
pub fn daemon_killed(context: &Context) -> Outcome {
    let mut daemon = Daemon::start(context, &["--swap", &area(context)])?;
    let (_, running, log) = victim(context, &daemon)?;
    let programs = procfs::living_descendants(running.pid());
    daemon.signal(Signal::KILL)?;
    daemon.wait()?;
    must_go(&programs)?;
    let ended = running.wait()?;
    ended.must_exit_with(125)?;
    let said = last_words(&ended.stderr);
    ensure!(
        said.contains("the daemon") && said.contains("has ended before the run"),
        "the run said {said}"
    );
    log.must_be_right()?;
    // The next command cleans up.
    daemon.vswap(&["status"])?;
    let left = daemon.dirs_with("");
    ensure!(left.is_empty(), "{left:?} are left");
    Ok(())
}

/// When told to end, the daemon waits for its runs and takes no more. When told again, it ends them.
pub fn daemon_told_to_end(context: &Context) -> Outcome {
    let mut daemon = Daemon::start(context, &[])?;
    let (launcher, running, log) = victim(context, &daemon)?;
    daemon.signal(Signal::TERM)?;
    daemon.until("the daemon to say that it waits", |daemon| {
        Ok(daemon.said().contains("waiting for 1 run").then_some(()))
    })?;
    let late = launcher.start(&daemon.job(workload("16M")?))?.wait()?;
    late.must_exit_with(125)?;
    let said = last_words(&late.stderr);
    ensure!(
        said.contains("takes no more runs"),
        "the late run said {said}"
    );
    thread::sleep(Duration::from_millis(500));
    ensure!(
        procfs::is_alive(running.program_pid()?),
        "the daemon did not wait"
    );
    daemon.signal(Signal::TERM)?;
    running.wait()?.must_be_ended_by(Signal::KILL)?;
    log.must_be_right()?;
    let status = daemon.wait()?;
    ensure!(status.success(), "the daemon ended with {status}");
    Ok(())
}

/// A private area in the test's directory.
fn area(context: &Context) -> String {
    context.place().display().to_string()
}
