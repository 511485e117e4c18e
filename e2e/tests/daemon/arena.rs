//! An arena of the library in a run of the daemon: it takes a share of the run's limit, and follows when that changes.

use std::thread;
use std::time::{Duration, Instant};

use vswap_e2e::limit::{allowed_bytes, mib};
use vswap_e2e::{Context, Failure, Job, MIB, Outcome, Running, ensure, procfs, workload_binary};

use crate::daemon::Daemon;

const LIMIT_BYTES: u64 = 128 * MIB;
const LOWER_BYTES: u64 = 96 * MIB;
/// How long the program's memory is looked at.
const LOOKS: Duration = Duration::from_secs(3);

/// An arena that wants 160 MiB, first in 128 MiB and then in 96, while its program verifies every byte.
pub fn follows_the_limit_of_its_run(context: &Context) -> Outcome {
    let mut daemon = Daemon::start(context, &["--swap", "none"])?;
    let words = ["memhog", "80M", "--arena", "160M", "--seconds", "12"];
    let job = daemon.job(Job::new(workload_binary()?).args(words));
    let run = context.limited(LIMIT_BYTES)?.start(&job)?;
    run.until("the arena to be filled", || {
        Ok((procfs::anon_bytes(run.program_pid()?) > LOWER_BYTES / 2).then_some(()))
    })?;
    must_hold(&run, LIMIT_BYTES)?;
    let pid = run.pid().to_string();
    let set = daemon.vswap(&["set", "--run", &pid, "--ram", "96M", "--wait", "12"])?;
    ensure!(set.status.success(), "set a lower limit: {set:?}");
    must_hold(&run, LOWER_BYTES)?;
    run.wait()?.must_succeed()?;
    daemon.until_empty()
}

/// The program's memory, its arena's included, stays within a limit.
fn must_hold(run: &Running, limit_bytes: u64) -> Outcome {
    let began = Instant::now();
    while began.elapsed() < LOOKS {
        let anon = procfs::anon_bytes(run.program_pid()?);
        if anon > allowed_bytes(limit_bytes) {
            let (has, limit) = (mib(anon), mib(limit_bytes));
            return Err(Failure::wrong(format!(
                "it has {has}, and may have {limit}"
            )));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
