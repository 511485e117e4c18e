//! The fuzzers: libFuzzer on the targets of `fuzz/targets`, for as long as the user likes. They are not part of `ci`,
//! because building them takes longer than running them. Instead, `test` feeds the targets their corpus and mutations
//! of it.
//!
//! They are built as `cargo fuzz` builds them, but `cargo fuzz` need not be installed. Interesting inputs that a search
//! finds stay below `target/fuzz`, and the next search begins with them. The corpus in the tree is only read.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::checks::own_target;
use crate::command::{self, TestCounts};
use crate::nightly::{TARGET, nightly, skipped, succeeds};
use crate::step::{Check, Report, Step};

/// Every fuzzer; `fuzz/targets/src/lib.rs` has their bodies.
const FUZZERS: [&str; 5] = ["header", "messages", "words", "layout", "engine"];
/// Default time of each fuzzer: enough for the corpus and for tens of thousands of inputs derived from it.
const SECONDS: u64 = 10;
/// The longest time for one input. The slowest takes a tenth of a second.
const INPUT_SECONDS: u64 = 20;
/// The most time for the build, on two slow processors.
const BUILD_LIMIT: Duration = Duration::from_secs(10 * 60);
/// How far a fuzzer may exceed its time, for the last input and a report.
const GRACE: Duration = Duration::from_secs(60);
/// Coverage of every edge and comparison, and AddressSanitizer for the engine's own memory.
const FLAGS: &str = "-Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions";

/// Which fuzzers search, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    seconds: u64,
    /// One of the fuzzers, or `None` for all.
    target: Option<&'static str>,
}

/// Reads `[--seconds N] [TARGET]`.
///
/// # Errors
/// There are other options, N is no positive number, or there is no such target.
pub fn search(options: &[String]) -> Result<Search, String> {
    let usage = || {
        let targets = FUZZERS.join(", ");
        format!("usage: cargo xtask fuzz [--seconds N] [TARGET]; targets: {targets}")
    };
    let (seconds, rest) = match options {
        [option, count, rest @ ..] if option == "--seconds" => {
            let count = count.parse().ok().filter(|count| *count > 0);
            (count.ok_or_else(usage)?, rest)
        }
        rest => (SECONDS, rest),
    };
    let target = match rest {
        [] => None,
        [name] => {
            let known = FUZZERS.into_iter().find(|known| known == name);
            Some(known.ok_or_else(usage)?)
        }
        _ => return Err(usage()),
    };
    Ok(Search { seconds, target })
}

/// The verb.
pub fn step(search: Search) -> Step {
    let target = search.target.unwrap_or_default();
    let repeat = format!("fuzz --seconds {} {target}", search.seconds);
    Step {
        name: "fuzz",
        repeat: Some(repeat.trim_end().to_string()),
        check: Check::Fuzz(search),
        limit: BUILD_LIMIT,
    }
}

/// Builds the fuzzers and runs the wanted ones, one after the other.
///
/// # Errors
/// They do not build, or a fuzzer has found an input that breaks its target. The input's path has been printed.
pub fn run(root: &Path, search: Search) -> Result<Report, String> {
    if !succeeds(nightly(root, &["rustc", "--version"])) {
        return Ok(skipped("nightly toolchain", "rust-src"));
    }
    let mut compiler = Command::new("c++");
    compiler.arg("--version");
    if !succeeds(compiler) {
        return Ok(Report {
            skipped: Some("no c++ here, in which libFuzzer is written".into()),
            ..Report::default()
        });
    }
    build(root)?;
    let mut tests = TestCounts::default();
    let wanted = |name: &&str| search.target.is_none_or(|only| only == *name);
    for name in FUZZERS.into_iter().filter(wanted) {
        run_one(root, name, search.seconds)?;
        tests.passed += 1;
    }
    Ok(Report {
        tests,
        skipped: None,
    })
}

fn build(root: &Path) -> Result<(), String> {
    let words = [
        "cargo",
        "build",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--release",
        "--target",
        TARGET,
    ];
    let mut command = nightly(root, &words);
    command
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", own_target(root, "fuzz"));
    command::run(&mut command, BUILD_LIMIT).map(|_| ())
}

fn run_one(root: &Path, name: &str, seconds: u64) -> Result<(), String> {
    let target = root.join("target/fuzz");
    let (found, failed) = (target.join("corpus").join(name), target.join("failed"));
    for directory in [&found, &failed] {
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    }
    let mut command = Command::new(target.join(TARGET).join("release").join(name));
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-artifact_prefix={}/{name}-", failed.display()))
        .args(["-verbosity=0", "-print_funcs=0", "-print_final_stats=1"])
        .args([found, root.join("fuzz/corpus").join(name)])
        .current_dir(root);
    command::run(&mut command, Duration::from_secs(seconds) + GRACE).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<(u64, Option<&'static str>), String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        search(&words).map(|search| (search.seconds, search.target))
    }

    #[test]
    fn options_are_read_and_others_refused() {
        assert_eq!(of(&[]), Ok((SECONDS, None)));
        assert_eq!(of(&["--seconds", "3"]), Ok((3, None)));
        assert_eq!(of(&["words"]), Ok((SECONDS, Some("words"))));
        assert_eq!(of(&["--seconds", "60", "engine"]), Ok((60, Some("engine"))));
        for wrong in [
            &["--seconds"][..],
            &["--seconds", "0"],
            &["--seconds", "1", "no-such-target"],
            &["words", "engine"],
        ] {
            assert!(of(wrong).unwrap_err().contains("usage"), "{wrong:?}");
        }
    }

    #[test]
    fn every_fuzzer_has_a_program_and_a_corpus() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        for name in FUZZERS {
            assert!(
                root.join("fuzz_targets")
                    .join(format!("{name}.rs"))
                    .exists()
            );
            assert!(root.join("corpus").join(name).exists());
        }
    }
}
