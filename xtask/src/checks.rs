//! The checks behind the verbs: which command each check runs, and what the command must show for a pass.
//!
//! Steps that set compiler flags build into their own directories below `target`. Otherwise they would throw away what
//! the others built.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::aarch64;
use crate::book;
use crate::chaos;
use crate::command::{self, TestCounts};
use crate::hostile;
use crate::nightly;
use crate::policy;
use crate::rules;
use crate::soak;
use crate::step::{Check, Report, Stage, Step};
use crate::tidy;

/// Cases per property in the optimised run. The run with debug assertions uses the library's default.
const PROPERTY_CASES: &str = "2000";

type CheckFn = fn(&Path, Duration) -> Result<Report, String>;

/// Name, check and limit in minutes on two slow processors.
const STEPS: &[(&str, CheckFn, u64)] = &[
    ("fmt", fmt, 2),
    ("tidy", tidy::check, 2),
    ("clippy", clippy, 10),
    ("doc", doc, 10),
    ("msrv", policy::msrv, 10),
    ("deny", policy::deny, 5),
    ("aarch64", aarch64::check, 30),
    ("test", test, 15),
    ("property", property, 15),
    ("loom", loom, 20),
    ("shuttle", shuttle, 20),
    ("miri", nightly::miri, 25),
    ("tsan", nightly::tsan, 20),
    ("victims", victims, 15),
    ("rules", rules::check, 15),
    ("checkers", checkers, 60),
    ("chaos", chaos::check, 25),
    ("hostile", hostile::check, 15),
    ("e2e-command", e2e_command, 25),
    ("e2e", e2e, 40),
    ("long", long, 60),
    ("deps", tidy::check_deps, 2),
    ("book", book::build, 5),
];

/// Stages of `ci`, each with its lanes: cheap and telling steps first. The engine's checkers have one busy thread most
/// of the time, and chaos, hostile and victims wait for processes, so they share the machine. What measures time or
/// memory has it alone.
const CI: &[&[&[&str]]] = &[
    &[&["fmt", "tidy", "clippy", "doc", "test"]],
    &[&["chaos"], &["loom", "miri"]],
    &[&["victims", "hostile"], &["e2e-command"]],
    &[&["e2e"]],
];

/// What is too long for `ci`, mostly because it is built with other flags. The soak ends with it.
const LONG: &[&str] = &["property", "shuttle", "tsan", "rules", "checkers", "long"];

/// The suites of `e2e` that have the machine to themselves, and those that bear others beside them. `packages` wants
/// what `dist` makes.
const SUITES: &[&str] = &["areas", "daemon", "limits", "parking", "programs", "scale"];
const COMMAND_SUITES: &[&str] = &["book", "command", "death"];

/// What `build_release` builds.
const RELEASED: &[&str] = &[
    "vswap",
    "vswap-bench",
    "vswap-victims",
    chaos::PACKAGE,
    hostile::PACKAGE,
];

/// Time of all victims together in `ci`. The soak gives them more.
const VICTIMS_TIME: Duration = Duration::from_secs(60);

/// Everything that continuous integration runs.
pub fn ci() -> Vec<Stage> {
    let lane = |names: &&[&str]| names.iter().filter_map(|name| by_name(name)).collect();
    CI.iter()
        .map(|lanes| lanes.iter().map(lane).collect())
        .collect()
}

/// What the soak runs after its own parts.
pub fn long_steps() -> Vec<Step> {
    LONG.iter().filter_map(|name| by_name(name)).collect()
}

/// The step with this name, which is also a verb.
pub fn by_name(name: &str) -> Option<Step> {
    let (name, check, minutes) = STEPS.iter().find(|(known, _, _)| *known == name)?;
    let limit = Duration::from_secs(minutes * 60);
    Some(Step {
        name,
        repeat: None,
        check: Check::Plain(*check),
        limit,
    })
}

/// The cargo that runs this program, so that every step uses the same toolchain.
pub fn cargo(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(words).current_dir(root);
    command
}

/// A program of a release build.
pub fn built(root: &Path, name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
    root.join(target).join("release").join(name)
}

fn fmt(root: &Path, limit: Duration) -> Result<Report, String> {
    plain(cargo(root, &["fmt", "--all", "--check"]), limit)
}

/// All targets, then those of `e2e`, which cargo takes up only when they are named.
fn clippy(root: &Path, limit: Duration) -> Result<Report, String> {
    for targets in [&["--all-targets"][..], &["--test", "*"]] {
        let mut command = cargo(root, &["clippy", "--workspace"]);
        command.args(targets).args(["--", "-D", "warnings"]);
        command::run(&mut command, limit)?;
    }
    Ok(Report::default())
}

fn doc(root: &Path, limit: Duration) -> Result<Report, String> {
    let mut command = cargo(root, &["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    plain(command, limit)
}

fn test(root: &Path, limit: Duration) -> Result<Report, String> {
    tests(cargo(root, &["test", "--workspace"]), limit)
}

/// The property tests, with clusters of a few slots, so that every case makes, fills and destroys many clusters.
fn property(root: &Path, limit: Duration) -> Result<Report, String> {
    let words = [
        "test",
        "--package",
        "vswap-engine",
        "--release",
        "--lib",
        "--test",
        "model",
        "--test",
        "stress",
        "--test",
        "kernel_bugs",
        "--features",
        "tests-small",
    ];
    let mut command = cargo(root, &words);
    command.env("PROPTEST_CASES", PROPERTY_CASES);
    tests(command, limit)
}

fn loom(root: &Path, limit: Duration) -> Result<Report, String> {
    tests(under_cfg(root, "loom"), limit)
}

fn shuttle(root: &Path, limit: Duration) -> Result<Report, String> {
    tests(under_cfg(root, "shuttle"), limit)
}

/// loom and Miri, with more of everything.
fn checkers(root: &Path, limit: Duration) -> Result<Report, String> {
    let mut report = nightly::miri_long(root, limit)?;
    let mut command = under_cfg(root, "loom");
    command.env("VSWAP_LONG", "1");
    report.tests.passed += tests(command, limit)?.tests.passed;
    Ok(report)
}

/// The engine's tests with that name. The checker's primitives replace the engine's own.
fn under_cfg(root: &Path, name: &str) -> Command {
    let words = [
        "test",
        "--package",
        "vswap-engine",
        "--release",
        "--test",
        name,
    ];
    let mut command = cargo(root, &words);
    command
        .env("RUSTFLAGS", format!("--cfg {name}"))
        .env("CARGO_TARGET_DIR", own_target(root, name));
    command
}

/// Runs every victim for a few seconds while everything is evicted again and again.
fn victims(root: &Path, _limit: Duration) -> Result<Report, String> {
    soak::run(root, "victims", VICTIMS_TIME)
}

/// The end-to-end tests that measure memory and time.
fn e2e(root: &Path, limit: Duration) -> Result<Report, String> {
    end_to_end(root, SUITES, &[], limit)
}

/// The end-to-end tests that measure neither.
fn e2e_command(root: &Path, limit: Duration) -> Result<Report, String> {
    end_to_end(root, COMMAND_SUITES, &[], limit)
}

/// The end-to-end tests that the other two leave out, because others of their kind are shorter, and C programs under
/// sanitizers.
fn long(root: &Path, limit: Duration) -> Result<Report, String> {
    let words = ["test", "--package", "vswap-capi", "--", "--ignored"];
    let from_c = tests(cargo(root, &words), limit)?;
    let suites = [SUITES, COMMAND_SUITES].concat();
    let mut report = end_to_end(root, &suites, &["--ignored"], limit)?;
    report.tests.passed += from_c.tests.passed;
    Ok(report)
}

/// Builds what is tested, then runs the tests of some suites one at a time, because each wants much memory. The suites
/// themselves are built as unit tests are, with the same packages selected, so that what they need is built once.
fn end_to_end(
    root: &Path,
    suites: &[&str],
    options: &[&str],
    limit: Duration,
) -> Result<Report, String> {
    build_release(root, limit)?;
    let mut command = cargo(root, &["test", "--workspace", "--no-fail-fast"]);
    for suite in suites {
        command.args(["--test", suite]);
    }
    command.args(["--", "--test-threads=1"]).args(options);
    tests(command, limit)
}

/// Builds the command in release mode, as users get it, and every program that checks use beside it. They are built
/// together: cargo builds shared crates again for a package that is built alone and wants less of them.
///
/// # Errors
/// They do not build.
pub fn build_release(root: &Path, limit: Duration) -> Result<(), String> {
    let mut command = cargo(root, &["build", "--release"]);
    for package in RELEASED {
        command.args(["--package", package]);
    }
    command::run(&mut command, limit).map(|_| ())
}

/// A directory below `target` for builds with other flags.
pub fn own_target(root: &Path, name: &str) -> OsString {
    root.join("target").join(name).into_os_string()
}

fn plain(mut command: Command, limit: Duration) -> Result<Report, String> {
    command::run(&mut command, limit).map(|_| Report::default())
}

/// Runs a command that runs tests. At least one test must run.
///
/// # Errors
/// It failed, or ran no test.
pub fn tests(mut command: Command, limit: Duration) -> Result<Report, String> {
    let tests = command::run(&mut command, limit)?;
    some_ran(&tests, &command::shell_words(&command))?;
    Ok(Report {
        tests,
        skipped: None,
    })
}

/// A wrong filter or a missing `cfg` leads to a green run without tests, so that counts as a failure.
fn some_ran(tests: &TestCounts, shown: &str) -> Result<(), String> {
    if tests.passed == 0 {
        return Err(format!("`{shown}` ran not a single test"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const APART: [&str; 5] = ["aarch64", "deps", "msrv", "deny", "book"];

    #[test]
    fn ci_has_every_step_once_and_fits_its_time() {
        let steps: Vec<Step> = ci().into_iter().flatten().flatten().collect();
        let named = CI.iter().flat_map(|lanes| lanes.concat());
        assert_eq!(steps.len(), named.count());
        for (name, _, _) in STEPS {
            let runs = steps.iter().filter(|step| step.name == *name).count();
            // `tidy` checks what `deps` does; the others want tools that not everybody has.
            let is_apart = APART.contains(name) || LONG.contains(name);
            assert_eq!(runs, usize::from(!is_apart), "{name}");
        }
        for step in &steps {
            assert!(step.limit >= Duration::from_secs(60));
        }
    }

    #[test]
    fn every_suite_belongs_to_a_step() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/tests");
        let found = std::fs::read_dir(root).expect("the suites").flatten();
        let mut found: Vec<String> = found
            .map(|entry| entry.file_name().display().to_string())
            .filter(|name| name != "packages")
            .collect();
        let mut known = [SUITES, COMMAND_SUITES].concat();
        found.sort();
        known.sort();
        assert_eq!(found, known);
    }

    #[test]
    fn a_run_of_no_tests_is_a_failure() {
        let none = TestCounts {
            ignored: 3,
            ..TestCounts::default()
        };
        assert!(
            some_ran(&none, "cargo test")
                .unwrap_err()
                .contains("not a single test")
        );
        let one = TestCounts {
            passed: 1,
            ..TestCounts::default()
        };
        assert!(some_ran(&one, "cargo test").is_ok());
    }
}
