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

/// What continuous integration drives beside the shrunk plans: ten minutes in all, in three lanes side by side. The
/// programs are always the same, as far as the time allows.
const DRIVES: [&[&[&str]]; 3] = [
    &[
        &["--minutes", "1", "--seed", "3001", "--late"],
        &["--minutes", "2", "--seed", "2001", "--no-capability"],
    ],
    &[
        &["--minutes", "1", "--seed", "6001"],
        &["--minutes", "2", "--seed", "4001", "--daemon"],
    ],
    &[
        &["--minutes", "2", "--seed", "1"],
        &["--minutes", "2", "--seed", "5001", "--attached"],
    ],
];

/// The check of continuous integration: every plan that was shrunk from a mistake, and ten minutes of generated plans.
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
    let replay = |plan: String| {
        let words = ["--plain", "--no-shrink", "--replay", &plan];
        words.map(String::from).to_vec()
    };
    let canaries = plans.into_iter().map(replay).collect();
    let mut lanes = vec![canaries];
    lanes.extend(DRIVES.map(drive::lane));
    drive::run_all(root, PACKAGE, &lanes)
}
