//! Programs that generate runs of vswap, judge them, and stop by themselves: chaos and hostile. Each knows its own
//! options. What every drive needs is here.

use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::checks;
use crate::command::{self, TestCounts};
use crate::step::Report;

/// The longest time for a drive where limits hold: nobody asks for more than a night.
const DRIVE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
/// The most time for the build, on two slow processors that others use too.
pub const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Builds `package`, and vswap unless the options name another one or want none, and lets it drive. Its own watchdog
/// ends programs that hang.
///
/// # Errors
/// A build or the drive failed.
pub fn run(root: &Path, package: &str, options: &[String]) -> Result<Report, String> {
    let elsewhere = |option: &String| option == "--native" || option.starts_with("--vswap");
    build(root, package, !options.iter().any(elsewhere))?;
    drive(root, package, options)?;
    Ok(passed(1))
}

/// Drives one after the other, each with its options.
pub type Lane = Vec<Vec<String>>;

/// The drives that these words say.
pub fn lane(drives: &[&[&str]]) -> Lane {
    let words = |options: &&[&str]| options.iter().map(ToString::to_string).collect();
    drives.iter().map(words).collect()
}

/// Several drives of the vswap that is built here: lanes side by side, each with one drive after the other. A drive
/// waits most of the time, and programs that meet others on the processors show more.
///
/// # Errors
/// As for `run`, of the first lane that fails.
pub fn run_all(root: &Path, package: &str, lanes: &[Lane]) -> Result<Report, String> {
    build(root, package, true)?;
    let run = |lane: &Lane| {
        lane.iter()
            .try_for_each(|options| drive(root, package, options))
    };
    let ended: Vec<Result<(), String>> = thread::scope(|scope| {
        let begun: Vec<_> = lanes
            .iter()
            .map(|lane| scope.spawn(move || run(lane)))
            .collect();
        let ended = begun.into_iter().map(|lane| lane.join());
        ended
            .map(|lane| lane.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    ended.into_iter().collect::<Result<(), String>>()?;
    Ok(passed(lanes.concat().len() as u64))
}

fn build(root: &Path, package: &str, with_vswap: bool) -> Result<(), String> {
    if with_vswap {
        return checks::build_release(root, BUILD_LIMIT);
    }
    let words = ["build", "--release", "--package", package];
    command::run(&mut checks::cargo(root, &words), BUILD_LIMIT).map(drop)
}

fn drive(root: &Path, package: &str, options: &[String]) -> Result<(), String> {
    let mut drive = Command::new(root.join("target/release").join(package));
    drive.arg("drive").args(options).current_dir(root);
    command::run(&mut drive, DRIVE_LIMIT).map(drop)
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
