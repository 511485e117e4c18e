//! Promises to those who build and ship vswap: the oldest Rust that builds it, and what its dependencies may be.
//!
//! Both need something that not everybody has installed. Where it is missing a check is skipped and says what to do.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::checks::{cargo, own_target};
use crate::command;
use crate::nightly::{of_toolchain, succeeds};
use crate::step::Report;

/// `rust-version` of the workspace.
const OLDEST_RUST: &str = env!("CARGO_PKG_RUST_VERSION");
const DENY_VERSION: &str = "0.20.2";
/// What is linked into the program is what this one needs.
const COMMAND: &str = "crates/cli/Cargo.toml";
/// What can be checked from the tree alone.
const OF_THE_TREE: [&str; 3] = ["bans", "licenses", "sources"];

/// Builds vswap with the oldest Rust.
///
/// # Errors
/// It does not build.
pub fn msrv(root: &Path, limit: Duration) -> Result<Report, String> {
    let toolchain = format!("{OLDEST_RUST}.0");
    let oldest = |words: &[&str]| of_toolchain(root, &toolchain, words);
    if !succeeds(oldest(&["cargo", "--version"])) {
        let install = format!("rustup toolchain install {toolchain} --profile minimal");
        return Ok(skipped(&format!(
            "no Rust {toolchain} here; to have it: {install}"
        )));
    }
    let version = |mut command: Command| command.output().map(|output| output.stdout).ok();
    let mut here = Command::new("rustc");
    here.arg("--version").current_dir(root);
    if version(here) == version(oldest(&["rustc", "--version"])) {
        println!("Rust here is {toolchain}: every other step builds with it");
        return Ok(Report::default());
    }
    let mut check = oldest(&["cargo", "check", "--locked", "--package", "vswap"]);
    check.env("CARGO_TARGET_DIR", own_target(root, "msrv"));
    command::run(&mut check, limit)?;
    Ok(Report::default())
}

/// Checks the crates that vswap is linked with against `deny.toml`.
///
/// # Errors
/// A licence, a source, a double or a known hole that it does not allow.
pub fn deny(root: &Path, limit: Duration) -> Result<Report, String> {
    if !succeeds(cargo(root, &["deny", "--version"])) {
        let install = format!("cargo install --locked cargo-deny@{DENY_VERSION}");
        return Ok(skipped(&format!(
            "no cargo deny here; to have it: {install}"
        )));
    }
    let deny = |words: &[&str]| {
        let mut command = cargo(root, &["deny", "--manifest-path", COMMAND, "--exclude-dev"]);
        command.args(words);
        command
    };
    command::run(deny(&["--locked", "check"]).args(OF_THE_TREE), limit)?;
    if !succeeds(deny(&["fetch", "db"])) {
        println!("known holes were not looked for: their list cannot be fetched here");
        return Ok(Report::default());
    }
    let known = ["--locked", "check", "--disable-fetch", "advisories"];
    command::run(&mut deny(&known), limit)?;
    Ok(Report::default())
}

fn skipped(reason: &str) -> Report {
    Report {
        skipped: Some(reason.to_owned()),
        ..Report::default()
    }
}
