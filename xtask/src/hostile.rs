//! Hostile: builds vswap and `vswap-hostile`, whose programs lie to vswap as their own agent, and lets it drive them.

use std::path::Path;
use std::time::Duration;

use crate::drive;
use crate::step::{Check, Report, Step};

/// The program that drives.
pub const PACKAGE: &str = "vswap-hostile";

/// The verb, with the options of `vswap-hostile drive`.
pub fn step(options: &[String]) -> Step {
    let words = format!("hostile {}", options.join(" "));
    Step {
        name: "hostile",
        repeat: Some(words.trim_end().to_string()),
        check: Check::Hostile(options.to_vec()),
        limit: drive::BUILD_LIMIT,
    }
}

/// What continuous integration drives: two minutes in all, side by side.
const DRIVES: [&[&[&str]]; 2] = [
    &[&["--minutes", "1", "--seed", "1"]],
    &[&["--minutes", "1", "--seed", "1001", "--daemon"]],
];

/// The check of continuous integration.
///
/// # Errors
/// An honest program did not end well, or vswap ended, hung, or kept what liars had made it take.
pub fn check(root: &Path, _: Duration) -> Result<Report, String> {
    drive::run_all(root, PACKAGE, &DRIVES.map(drive::lane))
}
