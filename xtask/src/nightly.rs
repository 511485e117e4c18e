//! Checks that the nightly toolchain alone can make: the interpreter and ThreadSanitizer (and the fuzzers, in `fuzz`).
//!
//! Where the toolchain or a part of it is not installed a check says so, with what installs it, and is skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::checks::{self, tests};
use crate::step::Report;

/// Cases per property under the interpreter, which is some hundred times slower.
const MIRI_PROPERTY_CASES: &str = "3";
/// The one target that instrumented code is built for. Named, so that build scripts are not instrumented.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A command of the nightly toolchain.
pub fn nightly(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly"])
        .args(words)
        .current_dir(root);
    // The toolchain that runs us must not decide for the one asked for.
    command
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTC");
    command
}

/// Does it run, and well?
pub fn succeeds(mut command: Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The report of a check for want of a part of the toolchain.
pub fn skipped(what: &str, component: &str) -> Report {
    let install =
        format!("rustup toolchain install nightly --profile minimal --component {component}");
    Report {
        skipped: Some(format!("no {what} here; to have it: {install}")),
        ..Report::default()
    }
}

/// The engine under the interpreter.
///
/// # Errors
/// A test failed, or did what is not defined.
pub fn miri(root: &Path, limit: Duration) -> Result<Report, String> {
    if !succeeds(nightly(root, &["cargo", "miri", "--version"])) {
        return Ok(skipped("miri", "miri,rust-src"));
    }
    // The pool's own tests and the codecs take the interpreter far longer; the engine's go through the pool too. The
    // header's are long as well, and of code without anything unsafe, as are those of allocation, areas, charges,
    // discards, reading of runs, swapping off and writing back, which model and stress go through.
    let words = [
        "cargo",
        "miri",
        "test",
        "--package",
        "vswap-engine",
        "--lib",
        "--test",
        "model",
        "--test",
        "stress",
        "--",
        "--skip",
        "zpool",
        "--skip",
        "codec",
        "--skip",
        "header",
        "--skip",
        "alloc::",
        "--skip",
        "areas::",
        "--skip",
        "charge::",
        "--skip",
        "discard",
        "--skip",
        "runs::",
        "--skip",
        "swap_off",
        "--skip",
        "write_back",
        "--skip",
        "demote",
        "--skip",
        "transition",
    ];
    let mut command = nightly(root, &words);
    command
        // The property tests look for a file of old failures.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("PROPTEST_CASES", MIRI_PROPERTY_CASES)
        .env("CARGO_TARGET_DIR", checks::own_target(root, "nightly"));
    tests(command, limit)
}

/// The engine's tests with threads, with small clusters and every access to memory watched. The standard library is
/// built anew: its locks and reference counts must be seen, or they would not order anything.
///
/// # Errors
/// A test failed, or two threads were at the same memory without order.
pub fn tsan(root: &Path, limit: Duration) -> Result<Report, String> {
    if !has_sources(root) {
        return Ok(skipped("nightly toolchain with sources", "rust-src"));
    }
    let words = [
        "cargo",
        "test",
        "--package",
        "vswap-engine",
        "--release",
        "--test",
        "stress",
        "--features",
        "tests-small",
        "-Zbuild-std",
        "--target",
        TARGET,
    ];
    let mut command = nightly(root, &words);
    command
        // With `tsan` the codec is one in Rust: what C reads and writes would not be seen.
        .env("RUSTFLAGS", "-Zsanitizer=thread --cfg tsan")
        // The first race ends the run with an error.
        .env("TSAN_OPTIONS", "halt_on_error=1")
        // Tests unwind, and a second standard library for the rest of the build would clash with theirs.
        .env("CARGO_PROFILE_RELEASE_PANIC", "unwind")
        // Half the time goes into the build.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_TARGET_DIR", checks::own_target(root, "tsan"));
    tests(command, limit)
}

/// Does the nightly toolchain have the sources of the standard library?
fn has_sources(root: &Path) -> bool {
    let output = nightly(root, &["rustc", "--print", "sysroot"]).output();
    output.is_ok_and(|output| {
        let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        output.status.success() && sysroot.join("lib/rustlib/src/rust/library/std").exists()
    })
}
