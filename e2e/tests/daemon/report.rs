//! `--report` of a run in the daemon: it asks the daemon for the figures and for the map of memory. And when the daemon
//! dies, the page says what is missing.

use std::fs;
use std::path::Path;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, MIB, Outcome, ensure};

use crate::daemon::Daemon;
use crate::shares::{swap_file, workload};

const LIMIT_BYTES: u64 = 64 * MIB;

fn page(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).during(|| "read the page".to_owned())
}

pub fn of_a_run_in_the_daemon(context: &Context) -> Outcome {
    let area = swap_file(context)?;
    let mut daemon = Daemon::start(context, &["--swap", &area])?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let path = launcher.place().join("run.html");
    let job = || Ok(workload("208M")?.vswap_options(["--report".as_ref(), path.as_os_str()]));
    let ended = launcher.start(&daemon.job(job()?))?.wait()?;
    ended.must_succeed()?;
    let text = page(&path)?;
    for word in [
        "exited with status 0",
        "aria-label=\"Map: process",
        "Plot: What was where",
    ] {
        ensure!(text.contains(word), "no {word:?}: {text}");
    }
    let out = ended.figure("pages_out")?;
    let out = format!("<data value=\"{out}\">");
    ensure!(text.contains(&out), "no {out}: {text}");

    let run = launcher.start(&daemon.job(job()?))?;
    run.program_pid()?;
    daemon.signal(rustix::process::Signal::KILL)?;
    daemon.wait()?;
    run.wait()?.must_exit_with(125)?;
    let text = page(&path)?;
    ensure!(text.contains("The last figures are missing"), "{text}");
    Ok(())
}
