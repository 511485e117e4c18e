//! Other limits for a run in the daemon, by way of the run, and for groups, by way of the daemon.

use std::process::Output;

use serde_json::Value;
use vswap_e2e::limit::{allowed_bytes, mib};
use vswap_e2e::{Context, Failure, MIB, Outcome, Running, ensure, procfs};

use crate::daemon::Daemon;
use crate::shares::{swap_file, workload};

const LIMIT_BYTES: u64 = 64 * MIB;

fn must(output: &Output, what: &str) -> Outcome {
    ensure!(output.status.success(), "{what}: {output:?}");
    Ok(())
}

fn own_group<'a>(report: &'a Value, run: &Running) -> &'a Value {
    let name = format!("run-{}", run.pid());
    let groups = report["groups"].as_array().into_iter().flatten();
    let mut found = groups.filter(|group| group["name"] == name);
    found.next().unwrap_or(&Value::Null)
}

/// Up and down again, with limits of the run's own group, while it verifies its memory; another run keeps its own.
pub fn limits_of_one_run(context: &Context) -> Outcome {
    let area = swap_file(context)?;
    let mut daemon = Daemon::start(context, &["--swap", &area])?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let run = launcher.start(&daemon.job(workload("208M")?))?;
    let other = launcher.start(&daemon.job(workload("104M")?))?;
    let pid = run.pid().to_string();
    let limit = |run: &Running| {
        Ok::<_, Failure>(
            daemon
                .report_of(run.pid())?
                .map(|report| report["limit_bytes"].clone()),
        )
    };
    for one in [&run, &other] {
        one.until("the run to join", || limit(one))?;
    }
    let whole = || Ok::<_, Failure>(daemon.report_of(daemon.pid())?.unwrap_or_default());
    let set = |options: &[&str]| daemon.vswap(&[&["set", "--run", &pid], options].concat());
    must(
        &set(&["--ram", "160M", "--swap-max", "64M"])?,
        "set a higher limit",
    )?;
    ensure!(
        limit(&run)? == Some((160 * MIB).into()),
        "the run has another limit"
    );
    ensure!(
        limit(&other)? == Some(LIMIT_BYTES.into()),
        "so has the other run"
    );
    let report = whole()?;
    ensure!(
        own_group(&report, &run)["swap_max_bytes"] == 64 * MIB
            && own_group(&report, &other)["swap_max_bytes"].is_null(),
        "groups: {}",
        report["groups"]
    );
    let daemon_pid = daemon.pid().to_string();
    let refused = daemon.vswap(&["set", "--run", &daemon_pid, "--ram", "1G"])?;
    ensure!(
        refused.status.code() == Some(125),
        "the daemon has no --ram: {refused:?}"
    );
    must(
        &set(&["--swap-max", "none", "--ram", "64M"])?,
        "set the old limits",
    )?;
    let anon = procfs::anon_bytes(run.program_pid()?);
    let allowed = allowed_bytes(LIMIT_BYTES);
    ensure!(
        anon <= allowed,
        "the program has {} after the lower limit held",
        mib(anon)
    );
    writeback_of_its_group(&daemon, &run)?;
    for one in [run, other] {
        one.wait()?.must_succeed()?;
    }
    daemon.until_empty()
}

/// The run's own group, by its name.
fn writeback_of_its_group(daemon: &Daemon, run: &Running) -> Outcome {
    let named = format!("run-{}", run.pid());
    for (word, expected) in [("off", false), ("on", true)] {
        let done = daemon.vswap(&["set", "--group", &named, "--writeback", word])?;
        must(&done, "set a group")?;
        let report = daemon.report_of(daemon.pid())?.unwrap_or_default();
        ensure!(
            own_group(&report, run)["writeback"] == expected,
            "writeback is not {word}: {report}"
        );
    }
    Ok(())
}
