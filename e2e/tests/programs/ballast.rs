//! A command beside much compressible memory, for commands whose own content does not compress.

use std::fs;
use std::path::Path;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Ended, Job, Outcome, ensure, require_program};

/// A job that runs the command beside this many MiB of compressible memory.
pub fn beside_ballast(context: &Context, ballast_mib: u64, command: &Path) -> Outcome<Job> {
    let python = require_program("python3", "apt package python3")?;
    let script = context.place().join("ballast.py");
    let text = include_str!("../../inputs/ballast.py");
    fs::write(&script, text).during(|| format!("write {}", script.display()))?;
    Ok(Job::new(python)
        .arg(script)
        .arg(ballast_mib.to_string())
        .arg(command))
}

/// Checks that the ballast was verified and that the command reported no failure.
pub fn ballast_is_right(ended: &Ended) -> Outcome {
    let said = fs::read(&ended.stdout).during(|| "read what was said".to_owned())?;
    let errors = fs::read(&ended.stderr).during(|| "read what was said".to_owned())?;
    let said = String::from_utf8_lossy(&said);
    let errors = String::from_utf8_lossy(&errors);
    ensure!(
        said.ends_with("ballast right\n"),
        "the ballast was not verified: {said} {errors}"
    );
    let failed = said.contains("FAILURE") || errors.contains("fail:");
    ensure!(!failed, "the command found wrong content: {said} {errors}");
    Ok(())
}
