//! Checks that need the nightly toolchain: Miri and ThreadSanitizer (and the fuzzers, in `fuzz`).
//!
//! If the toolchain or a part of it is not installed, a check is skipped and prints how to install it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::checks::{self, tests};
use crate::step::Report;

/// Cases per property under Miri, which is some hundred times slower: in ci, and where it may take long.
const MIRI_PROPERTY_CASES: (&str, &str) = ("1", "5");
/// The one target of instrumented code. It is named so that build scripts are not instrumented.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A command of the nightly toolchain.
pub fn nightly(root: &Path, words: &[&str]) -> Command {
    of_toolchain(root, "nightly", words)
}

/// A command of this toolchain.
pub fn of_toolchain(root: &Path, toolchain: &str, words: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", toolchain])
        .args(words)
        .current_dir(root);
    // The toolchain that runs this program must not decide which one the command uses.
    command
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTC");
    command
}

/// Does the command run and succeed?
pub fn succeeds(mut command: Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The report of a check that was skipped because a part of the toolchain is missing.
pub fn skipped(what: &str, component: &str) -> Report {
    let install =
        format!("rustup toolchain install nightly --profile minimal --component {component}");
    Report {
        skipped: Some(format!("no {what} here; to have it: {install}")),
        ..Report::default()
    }
}

/// Tests of the engine that Miri never runs. Those of the pool itself and of the codecs take it far longer, and the
/// others use the pool too. The header's tests are long as well and test code without unsafe. So are those of
/// allocation, areas, charges, discards, reading of runs, swapping off and writing back, which the model and stress
/// tests cover. Packing again is tested with codecs that differ, and what stands in for them here hardly does.
const NOT_FOR_MIRI: [&str; 13] = [
    "zpool",
    "codec",
    "header",
    "alloc::",
    "areas::",
    "charge::",
    "discard",
    "runs::",
    "swap_off",
    "write_back",
    "demote",
    "repack",
    "transition",
];
/// Tests that it runs only where it may take long.
const LONG_FOR_MIRI: [&str; 5] = [
    "area::tests",
    "far_end",
    "read_ahead",
    "verbs::tests",
    "write_out",
];

/// The engine's tests under Miri, without those that take it long.
///
/// # Errors
/// A test failed, or had undefined behaviour.
pub fn miri(root: &Path, limit: Duration) -> Result<Report, String> {
    let left_out = [&NOT_FOR_MIRI[..], &LONG_FOR_MIRI].concat();
    under_miri(root, limit, &left_out, MIRI_PROPERTY_CASES.0)
}

/// The same, with those.
///
/// # Errors
/// As for `miri`.
pub fn miri_long(root: &Path, limit: Duration) -> Result<Report, String> {
    under_miri(root, limit, &NOT_FOR_MIRI, MIRI_PROPERTY_CASES.1)
}

fn under_miri(
    root: &Path,
    limit: Duration,
    left_out: &[&str],
    cases: &str,
) -> Result<Report, String> {
    if !succeeds(nightly(root, &["cargo", "miri", "--version"])) {
        return Ok(skipped("miri", "miri,rust-src"));
    }
    let mut words = vec![
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
    ];
    words.extend(left_out.iter().flat_map(|name| ["--skip", name]));
    let mut command = nightly(root, &words);
    command
        // The property tests look for a file with old failures.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("PROPTEST_CASES", cases)
        .env("CARGO_TARGET_DIR", checks::own_target(root, "nightly"));
    tests(command, limit)
}

/// The engine's tests with threads, with small clusters and with every memory access watched. The standard library is
/// rebuilt, because ThreadSanitizer must see its locks and reference counts, or they would order nothing.
///
/// # Errors
/// A test failed, or two threads accessed the same memory without order.
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
        // With `tsan` the codec is written in Rust, because ThreadSanitizer does not see what C reads and writes.
        .env("RUSTFLAGS", "-Zsanitizer=thread --cfg tsan")
        // The first race ends the run with an error.
        .env("TSAN_OPTIONS", "halt_on_error=1")
        // Tests unwind. If the rest of the build aborted, it would need a second standard library, which clashes with
        // the tests'.
        .env("CARGO_PROFILE_RELEASE_PANIC", "unwind")
        // The build takes half of the time, so it optimises little.
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
