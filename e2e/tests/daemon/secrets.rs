//! What one run has in the pool and in areas never comes to another run.

use std::fs;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, procfs, require_program};

use crate::daemon::Daemon;
use crate::shares::swap_file;

const LIMIT_BYTES: u64 = 48 * MIB;
/// What each program has: twice as much as fits.
const CONTENT_MIB: &str = "96";

/// One run keeps pages with a mark. Another one, beside it and after it, uses all the memory that is given back, and
/// looks for the mark in pages of its own that it has never written to, or not to the end.
pub fn nothing_of_another_run(context: &Context) -> Outcome {
    let area = swap_file(context)?;
    // A small pool, so that spans are filled, emptied and moved together all the time.
    let mut daemon = Daemon::start(context, &["--swap", &area, "--pool", "24M"])?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let go = context.place().join("go");
    let python = require_program("python3", "apt package python3")?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/inputs/secrets.py");
    let program = |last: &str| {
        let job = Job::new(&python).args([script, CONTENT_MIB, last]);
        daemon.job(job)
    };
    let (keeper, looker) = (program(&go.display().to_string()), program("fresh"));
    let kept = launcher.start(&keeper)?;
    kept.until("the content to be there", || {
        let said = fs::read_to_string(kept.stdout()).unwrap_or_default();
        Ok(said.contains("filled").then_some(()))
    })?;
    let beside = launcher.start(&looker)?.wait()?;
    beside.must_succeed()?;
    ensure!(
        procfs::is_alive(kept.pid()),
        "the run with the content ended too early"
    );
    fs::write(&go, "").during(|| format!("write {}", go.display()))?;
    kept.wait()?.must_succeed()?;
    let after = launcher.start(&looker)?.wait()?;
    after.must_succeed()?;
    for ended in [&beside, &after] {
        ensure!(ended.figure("pages_in")? > 0, "nothing came back");
    }
    daemon.until_empty()
}
