//! Rules P1 to P9 of the pager, each checked together with its test: `cargo xtask rules`.
//!
//! vswap is built with the feature `break-rules` into its own directory. The program that guards a rule runs twice.
//! With all rules in force it must succeed. With that one rule left out it must fail within a few tries. A guard that
//! passes without its rule guards nothing, so it counts as a failure here. Every run has a deadline, because the
//! program may hang without the rule.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::checks;
use crate::command::{self, TestCounts};
use crate::step::Report;

/// How many times a guard may succeed without its rule. Breaking a rule mostly opens a race, which is not lost every
/// time.
const TRIES: u32 = 10;
/// Longest time of one run. Runs that hang take all of it.
const RUN_LIMIT: Duration = Duration::from_secs(20);
/// How often a run is looked at.
const POLL: Duration = Duration::from_millis(20);
/// When vswap is killed. By then much of the program has been swapped out.
const KILL_AFTER: Duration = Duration::from_millis(1500);
/// How long the program may outlive vswap.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// What the agent prints when it kills its process.
const KILLED_BY_AGENT: &str = "vswap is gone, process killed";

/// Evicts everything again and again, whatever the limit.
const ALL_THE_TIME: &[&str] = &["--ram", "1G", "--debug-evict-every", "1ms"];

/// One rule, or half of one, and its guard.
struct Guard {
    /// The value of `VSWAP_BREAK_RULE`.
    rule: &'static str,
    /// What the rule protects, in a few words.
    what: &'static str,
    /// Options of `vswap run`.
    options: &'static [&'static str],
    /// Arguments of `vswap-victims`.
    victim: &'static str,
    /// How success is judged, besides the victim's own status.
    verdict: Verdict,
}

/// What a run must show.
enum Verdict {
    /// The victim found every byte right.
    Content,
    /// The same, and one figure of the summary is at most so many hundredths of another.
    AtMost(&'static str, u64, &'static str),
    /// vswap is killed, and the program dies too without having read anything wrong.
    Death,
}

/// The bounds of `AtMost` lie between the values seen with the rule and without it, which differ by a factor of eight
/// or more.
const GUARDS: &[Guard] = &[
    Guard {
        rule: "P1",
        what: "a page that was named by a discard is not moved out",
        options: ALL_THE_TIME,
        victim: "discard --seconds 2 --threads 2 --megabytes 8",
        verdict: Verdict::Content,
    },
    Guard {
        rule: "P2",
        what: "one mremap at a time",
        options: ALL_THE_TIME,
        victim: "mremap --seconds 3 --threads 4",
        verdict: Verdict::Content,
    },
    Guard {
        rule: "P3-read",
        what: "no event is read while a move is under way",
        options: ALL_THE_TIME,
        victim: "dontneed --seconds 3 --threads 2 --megabytes 4",
        verdict: Verdict::Content,
    },
    Guard {
        rule: "P4",
        what: "pages that were shared are made exclusive before they are tried again",
        options: &["--ram", "56M", "--swap", "none"],
        victim: "sharing --seconds 1 --threads 1 --megabytes 64",
        verdict: Verdict::AtMost("pages_busy", 1000, "pages_out"),
    },
    Guard {
        rule: "P5-staging",
        what: "staging is emptied without an event that makes faults wait",
        options: ALL_THE_TIME,
        victim: "threads --seconds 3 --threads 4",
        verdict: Verdict::AtMost("retries", 1, "pages_out"),
    },
    Guard {
        rule: "P5-read",
        what: "events are read while faults wait for memory",
        options: &["--ram", "48M", "--swap", "none"],
        victim: "dontneed --seconds 2 --threads 4",
        verdict: Verdict::Content,
    },
    Guard {
        rule: "P6",
        what: "a fault that was put off is tried again after a pause",
        options: ALL_THE_TIME,
        victim: "mremap --seconds 3 --threads 8",
        verdict: Verdict::AtMost("retries", 100, "faults"),
    },
    Guard {
        rule: "P7",
        what: "the program dies with vswap",
        options: ALL_THE_TIME,
        victim: "threads --seconds 10 --threads 1",
        verdict: Verdict::Death,
    },
    Guard {
        rule: "P8",
        what: "a page that has moved counts as moved, whatever the kernel said",
        options: ALL_THE_TIME,
        victim: "aging --seconds 3 --threads 2",
        verdict: Verdict::Content,
    },
    Guard {
        rule: "P9",
        what: "what a failed munmap names is kept",
        options: ALL_THE_TIME,
        victim: "failing --seconds 2 --threads 2 --megabytes 8",
        verdict: Verdict::Content,
    },
];

/// Where the runs find their programs and leave their output.
struct Place {
    built: PathBuf,
    log: PathBuf,
    summary: PathBuf,
}

/// Runs every guard with its rule and without it.
///
/// # Errors
/// A guard failed with all rules in force, or passed without its rule.
pub fn check(root: &Path, limit: Duration) -> Result<Report, String> {
    let target = root.join("target/rules");
    build(root, &target, limit)?;
    let place = Place {
        built: target.join("release"),
        log: target.join("run.log"),
        summary: target.join("summary.json"),
    };
    let mut tests = TestCounts::default();
    for guard in GUARDS {
        println!("{}: {}", guard.rule, guard.what);
        must_pass(guard, &place)?;
        must_fail(guard, &place)?;
        tests.passed += 2;
    }
    Ok(Report {
        tests,
        skipped: None,
    })
}

/// Builds into its own directory: what others build and measure must not have the switches that break rules.
fn build(root: &Path, target: &Path, limit: Duration) -> Result<(), String> {
    let words = [
        "build",
        "--release",
        "--package",
        "vswap",
        "--package",
        "vswap-victims",
        "--features",
        "vswap/break-rules",
    ];
    let mut command = checks::cargo(root, &words);
    command.env("CARGO_TARGET_DIR", target);
    command::run(&mut command, limit).map(|_| ())
}

fn must_pass(guard: &Guard, place: &Place) -> Result<(), String> {
    let begun = Instant::now();
    match run(guard, None, place) {
        Ok(figures) => {
            println!("    with it     right{figures} ({:.1} s)", seconds(begun));
            Ok(())
        }
        Err(wrong) => Err(format!(
            "{}: `{}` fails with all rules in force: {wrong}\n{}",
            guard.rule,
            guard.victim,
            said(place)
        )),
    }
}

fn must_fail(guard: &Guard, place: &Place) -> Result<(), String> {
    for turn in 1..=TRIES {
        let begun = Instant::now();
        if let Err(wrong) = run(guard, Some(guard.rule), place) {
            println!(
                "    without it  {wrong} (try {turn}, {:.1} s)",
                seconds(begun)
            );
            return Ok(());
        }
    }
    Err(format!(
        "{}: `{}` passes {TRIES} times without the rule, so it does not guard it",
        guard.rule, guard.victim
    ))
}

fn seconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64()
}

/// One run. `Ok` holds the figures that were judged, `Err` says what was wrong.
fn run(guard: &Guard, broken: Option<&str>, place: &Place) -> Result<String, String> {
    let mut child = start(guard, broken, place).map_err(|error| format!("no start: {error}"))?;
    if matches!(guard.verdict, Verdict::Death) {
        return die(&mut child, place);
    }
    let status = wait(&mut child)?;
    if !status.success() {
        return Err(complaint(place).unwrap_or_else(|| format!("ended with {status}")));
    }
    match guard.verdict {
        Verdict::AtMost(figure, hundredths, of) => at_most(place, figure, hundredths, of),
        Verdict::Content | Verdict::Death => Ok(String::new()),
    }
}

fn start(guard: &Guard, broken: Option<&str>, place: &Place) -> std::io::Result<Child> {
    let log = File::create(&place.log)?;
    let mut command = Command::new(place.built.join("vswap"));
    command
        .arg("run")
        .args(guard.options)
        .arg("--summary")
        .arg(&place.summary)
        .arg("--")
        .arg(place.built.join("vswap-victims"))
        .args(guard.victim.split_whitespace())
        .env_remove("VSWAP_BREAK_RULE");
    if let Some(rule) = broken {
        command.env("VSWAP_BREAK_RULE", rule);
    }
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

fn wait(child: &mut Child) -> Result<ExitStatus, String> {
    let deadline = Instant::now() + RUN_LIMIT;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => std::thread::sleep(POLL),
            Err(error) => return Err(format!("cannot be waited for: {error}")),
        }
    }
    command::kill_tree(child);
    Err(format!("hung for {} s", RUN_LIMIT.as_secs()))
}

/// Kills vswap in the middle of the run and watches what becomes of the program.
fn die(child: &mut Child, place: &Place) -> Result<String, String> {
    std::thread::sleep(KILL_AFTER);
    let program = command::descendants(child.id());
    if program.is_empty() {
        return Err(complaint(place).unwrap_or_else(|| "ended too soon".into()));
    }
    // An error means that vswap has ended already, and `wait` finds that too.
    let _ = child.kill();
    let killed = Instant::now();
    child
        .wait()
        .map_err(|error| format!("cannot be waited for: {error}"))?;
    while program.iter().any(|pid| command::is_alive(*pid)) {
        if killed.elapsed() > GONE_WITHIN {
            command::kill(&program);
            return Err(complaint(place).unwrap_or_else(|| "lives on without vswap".into()));
        }
        std::thread::sleep(POLL);
    }
    let gone_ms = killed.elapsed().as_millis();
    if let Some(wrong) = complaint(place) {
        return Err(wrong);
    }
    let text = said(place);
    if !text.contains(KILLED_BY_AGENT) {
        // Without its rule the program may crash, for example because its own heap reads as zeros.
        let last = text.lines().last().unwrap_or("without a word");
        return Err(format!("ended by itself: {last}"));
    }
    Ok(format!(": gone {gone_ms} ms after vswap was killed"))
}

fn at_most(place: &Place, figure: &str, hundredths: u64, of: &str) -> Result<String, String> {
    let text = fs::read_to_string(&place.summary).map_err(|error| format!("summary: {error}"))?;
    let (found, whole) = figures(&text, figure, of)?;
    let shown = format!("{figure} {found}, {of} {whole}");
    if found * 100 > whole * hundredths {
        return Err(format!("{shown}: more than {hundredths} %"));
    }
    Ok(format!(": {shown}"))
}

/// Two figures of a summary.
fn figures(text: &str, one: &str, other: &str) -> Result<(u64, u64), String> {
    let summary: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("summary: {error}"))?;
    let figure = |name: &str| {
        summary[name]
            .as_u64()
            .ok_or_else(|| format!("the summary has no {name}"))
    };
    Ok((figure(one)?, figure(other)?))
}

/// The first complaint of a victim.
fn complaint(place: &Place) -> Option<String> {
    let text = said(place);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("vswap-victims: "))?;
    Some(line.to_owned())
}

fn said(place: &Place) -> String {
    // A missing log counts as an empty one.
    let bytes = fs::read(&place.log).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_guard() {
        for rule in ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9"] {
            let guards = GUARDS.iter().filter(|guard| guard.rule.starts_with(rule));
            assert!(guards.count() > 0, "{rule}");
        }
    }

    #[test]
    fn figures_are_read_and_missing_ones_named() {
        let text = r#"{"retries": 7, "faults": 70, "active": true}"#;
        assert_eq!(figures(text, "retries", "faults"), Ok((7, 70)));
        let missing = figures(text, "retries", "pages_out").unwrap_err();
        assert!(missing.contains("pages_out"), "{missing}");
        assert!(figures("", "retries", "faults").is_err());
    }
}
