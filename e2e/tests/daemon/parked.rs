//! A run in the daemon is parked while another one goes on.

use vswap_e2e::limit::mib;
use vswap_e2e::{Context, Job, MIB, Outcome, Running, ensure, procfs, workload_binary};

use crate::daemon::Daemon;
use crate::shares::swap_file;

const LIMIT_BYTES: u64 = 160 * MIB;
/// What may be left of a program that is busy: what it touches until the last thread has stopped, which takes longer
/// where others want the processors too.
const LEFT_BYTES_MAX: u64 = 24 * MIB;

/// Rewrites and verifies its memory for a while.
fn hog(size: &str) -> Outcome<Job> {
    Ok(Job::new(workload_binary()?).args(["memhog", size, "--seconds", "12"]))
}

fn must(daemon: &Daemon, words: &[&str], says: &str) -> Outcome {
    let done = daemon.vswap(words)?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    ensure!(
        done.status.success() && said.contains(says),
        "{words:?}: {done:?}"
    );
    Ok(())
}

pub fn beside_another(context: &Context) -> Outcome {
    let area = swap_file(context)?;
    let mut daemon = Daemon::start(context, &["--swap", &area])?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let run = launcher.start(&daemon.job(hog("104M")?))?;
    let other = launcher.start(&daemon.job(hog("208M")?))?;
    let (daemon_pid, pid) = (daemon.pid().to_string(), run.pid().to_string());
    let state = |of: &Running| {
        let report = daemon.report_of(of.pid())?.unwrap_or_default();
        Ok::<_, vswap_e2e::Failure>(report["state"].as_str().map(str::to_owned))
    };
    for one in [&run, &other] {
        one.until("the run to join", || state(one))?;
    }
    run.until("its memory to be full", || {
        Ok((procfs::anon_bytes(run.program_pid()?) > 100 * MIB).then_some(()))
    })?;
    let refused = daemon.vswap(&["park", "--run", &daemon_pid])?;
    ensure!(
        refused.status.code() == Some(125),
        "a daemon cannot be parked: {refused:?}"
    );
    for _ in 0..3 {
        must(&daemon, &["park", "--run", &pid], "is parked")?;
        ensure!(
            state(&run)?.as_deref() == Some("parked")
                && state(&other)?.as_deref() != Some("parked"),
            "states: {:?}, {:?}",
            state(&run)?,
            state(&other)?
        );
        let anon = procfs::anon_bytes(run.program_pid()?);
        let report = daemon.report_of(run.pid())?.unwrap_or_default();
        let pool = report["pool_bytes"].as_u64().unwrap_or(u64::MAX);
        ensure!(
            anon <= LEFT_BYTES_MAX && pool <= MIB,
            "{} are left, {} in the pool",
            mib(anon),
            mib(pool)
        );
        must(&daemon, &["wake", "--run", &pid], "goes on")?;
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    for one in [run, other] {
        one.wait()?.must_succeed()?;
    }
    daemon.until_empty()
}
