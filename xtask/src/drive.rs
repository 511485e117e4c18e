//! Programs that generate runs of vswap, judge them, and stop by themselves: chaos and hostile. Each knows its own
//! options. What every drive needs is here.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::checks;
use crate::command::{self, TestCounts};
use crate::step::Report;

/// The longest time for a drive where limits hold: nobody asks for more than a night.
const DRIVE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
/// The most time for the build, on two slow processors.
pub const BUILD_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Builds `package`, and vswap unless the options name another one or want none, and lets it drive. Its own watchdog
/// ends programs that hang.
///
/// # Errors
/// A build or the drive failed.
pub fn run(root: &Path, package: &str, options: &[String]) -> Result<Report, String> {
    let elsewhere = |option: &String| option == "--native" || option.starts_with("--vswap");
    if !options.iter().any(elsewhere) {
        checks::build_release(root, BUILD_LIMIT)?;
    }
    let words = ["build", "--release", "--package", package];
    command::run(&mut checks::cargo(root, &words), BUILD_LIMIT)?;
    let mut drive = Command::new(root.join("target/release").join(package));
    drive.arg("drive").args(options).current_dir(root);
    command::run(&mut drive, DRIVE_LIMIT)?;
    Ok(passed(1))
}

/// Several drives, one after the other.
///
/// # Errors
/// As for `run`, of the first that fails.
pub fn run_all(root: &Path, package: &str, drives: &[&[&str]]) -> Result<Report, String> {
    let mut done = 0;
    for options in drives {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        done += run(root, package, &options)?.tests.passed;
    }
    Ok(passed(done))
}

fn passed(passed: u64) -> Report {
    Report {
        tests: TestCounts {
            passed,
            ..TestCounts::default()
        },
        skipped: None,
    }
}
