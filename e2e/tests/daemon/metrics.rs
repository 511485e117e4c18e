//! `vswap daemon --metrics`: its runs and what they share; and a run that has joined it and serves its own figures.

use vswap_e2e::scrape::{OPEN_METRICS, sample, scrape};
use vswap_e2e::{Context, MIB, Outcome, ensure};

use crate::daemon::Daemon;
use crate::shares::{swap_file, workload};

const LIMIT_BYTES: u64 = 64 * MIB;

pub fn daemon_and_run(context: &Context) -> Outcome {
    let area = swap_file(context)?;
    let (all, own) = (context.place().join("all"), context.place().join("own"));
    let at = all.display().to_string();
    let mut daemon = Daemon::start(context, &["--swap", &area, "--metrics", &at])?;
    let alone = scrape(&all, OPEN_METRICS)?;
    ensure!(
        sample(&alone, "vswap_store_swapped_bytes") == Some(0.0) && !alone.contains("run="),
        "without runs: {alone}"
    );
    let launcher = context.limited(LIMIT_BYTES)?;
    let job = workload("208M")?.vswap_options(["--metrics", &own.display().to_string()]);
    let run = launcher.start(&daemon.job(job))?;
    let name = |of: &str| format!("{of}{{run=\"{}\"}}", run.pid());
    let swapped = name("vswap_memory_swapped_bytes");
    let figures = run.until("pages of the run in swap", || {
        let figures = scrape(&all, OPEN_METRICS)?;
        let is_there = sample(&figures, &swapped) > Some(0.0);
        Ok(is_there.then_some(figures))
    })?;
    ensure!(
        sample(&figures, "vswap_store_swapped_bytes") > Some(0.0),
        "the store has nothing: {figures}"
    );
    ensure!(
        figures.contains("vswap_area_size_bytes{"),
        "no area: {figures}"
    );
    let figures = scrape(&own, OPEN_METRICS)?;
    ensure!(
        sample(&figures, &name("vswap_memory_limit_bytes")) == Some(LIMIT_BYTES as f64),
        "the run itself: {figures}"
    );
    ensure!(
        !figures.contains("vswap_store_"),
        "the run tells of the daemon's store: {figures}"
    );
    run.wait()?.must_succeed()?;
    ensure!(!own.exists(), "the run has left its socket");
    daemon.until_empty()?;
    daemon.signal(rustix::process::Signal::TERM)?;
    daemon.wait()?;
    ensure!(!all.exists(), "the daemon has left its socket");
    Ok(())
}
