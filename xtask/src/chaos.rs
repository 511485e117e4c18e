//! Chaos: builds vswap and `vswap-chaos`, the program that generates programs, and lets it drive them. `vswap-chaos
//! drive` knows its own options. Only what every run needs is decided here.

use std::path::Path;
use std::time::Duration;

use crate::drive;
use crate::step::{Check, Report, Step};

/// The program that drives.
pub const PACKAGE: &str = "vswap-chaos";

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
        limit: drive::BUILD_LIMIT,
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
/// A program did something else under vswap than natively, hung, or left something behind.
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
        passed += drive::run(root, PACKAGE, &replay.map(String::from))?
            .tests
            .passed;
    }
    let mut report = drive::run_all(root, PACKAGE, &DRIVES)?;
    report.tests.passed += passed;
    Ok(report)
}
