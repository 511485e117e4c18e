//! Chaos: builds vswap and `vswap-chaos`, the program that generates programs, and lets it drive them. `vswap-chaos
//! drive` knows its own options. Only what every run needs is decided here.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::checks;
use crate::command::{self, TestCounts};
use crate::step::{Check, Report, Step};

/// The longest time for a drive where limits hold: nobody asks for more than a night.
const DRIVE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
/// The most time for the build, on two slow processors.
const BUILD_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The verb, with the options of `vswap-chaos drive`.
pub fn step(options: &[String]) -> Step {
    Step {
        name: "chaos",
        repeat: Some(
            format!("chaos {}", options.join(" "))
                .trim_end()
                .to_string(),
        ),
        check: Check::Chaos(options.to_vec()),
        limit: BUILD_LIMIT,
    }
}

/// What continuous integration drives beside the shrunk plans: nine minutes in all. The programs are always the same,
/// as far as the time allows.
const DRIVES: [&[&str]; 5] = [
    &["--minutes", "3", "--seed", "1"],
    &["--minutes", "1", "--seed", "1", "--late"],
    &["--minutes", "1", "--seed", "1", "--daemon"],
    &["--minutes", "2", "--seed", "1", "--attached"],
    &["--minutes", "2", "--seed", "1", "--no-capability"],
];

/// The check of continuous integration: every plan that was shrunk from a mistake, and nine minutes of generated plans.
///
/// # Errors
/// As for `run`.
pub fn check(root: &Path, _: Duration) -> Result<Report, String> {
    let place = root.join("e2e/chaos/canaries");
    let found = std::fs::read_dir(&place)
        .map_err(|error| format!("no canaries in {}: {error}", place.display()))?;
    let mut plans: Vec<String> = found
        .flatten()
        .map(|entry| entry.path().display().to_string())
        .collect();
    plans.sort();
    let mut passed = 0;
    for plan in &plans {
        let replay = ["--plain", "--no-shrink", "--replay", plan];
        passed += run(root, &replay.map(String::from))?.tests.passed;
    }
    for options in DRIVES {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        passed += run(root, &options)?.tests.passed;
    }
    Ok(Report {
        tests: TestCounts {
            passed,
            ..TestCounts::default()
        },
        skipped: None,
    })
}

/// Builds and drives. Chaos stops by itself, and its own watchdog ends programs that hang.
///
/// # Errors
/// A program did something else under vswap than natively, hung, or left something behind.
pub fn run(root: &Path, options: &[String]) -> Result<Report, String> {
    // If the user names another vswap, or wants none, this one need not be built.
    let elsewhere = |option: &String| option == "--native" || option.starts_with("--vswap");
    if !options.iter().any(elsewhere) {
        checks::build_release(root, BUILD_LIMIT)?;
    }
    let words = ["build", "--release", "--package", "vswap-chaos"];
    command::run(&mut checks::cargo(root, &words), BUILD_LIMIT)?;
    let mut drive = Command::new(root.join("target/release/vswap-chaos"));
    drive.arg("drive").args(options).current_dir(root);
    command::run(&mut drive, DRIVE_LIMIT)?;
    let tests = TestCounts {
        passed: 1,
        ..TestCounts::default()
    };
    Ok(Report {
        tests,
        skipped: None,
    })
}
