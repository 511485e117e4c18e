//! The soak: programs that verify their own memory run for minutes while everything is evicted again and again.
//!
//! `--debug-evict-every` makes vswap evict whatever it can every few milliseconds, whatever the limit. So minutes here
//! swap more than days of normal use. The programs end with an error if one byte is wrong.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::checks;
use crate::command::{self, TestCounts};
use crate::step::{Check, Report, Step};

/// The soak's default duration.
const MINUTES: u64 = 10;
/// Evicts everything, with a pause that is short against the rhythm of any program. The limit is generous, because it
/// is not what evicts here.
const EVICT_ALL: [&str; 4] = ["--ram", "1G", "--debug-evict-every", "5ms"];
/// The same without a pool: everything goes to an area, which is a private file on disk.
const EVICT_TO_AREA: [&str; 8] = [
    "--ram",
    "1G",
    "--debug-evict-every",
    "5ms",
    "--pool",
    "off",
    "--swap",
    "/var/tmp:8G",
];
/// The victims that also run with an area. One does everything, the other does I/O into memory that comes back from a
/// disk.
const AREA_VICTIMS: [&str; 2] = ["chaos", "uring"];
/// A limit that makes faults wait for memory, and a victim that takes three times as much and compresses well.
const TIGHT: [&str; 4] = ["--ram", "64M", "--swap", "none"];
const TIGHT_VICTIM: [&str; 3] = ["allocate", "--megabytes", "200"];
/// How far a program may exceed its time, to stop and verify, before it counts as hung.
const GRACE: Duration = Duration::from_secs(300);
/// Exit status of a victim if the machine does not permit what the victim tests.
const NOT_PERMITTED: i32 = 3;
/// The least time of every victim: enough to be evicted some hundred times.
const ROUND: Duration = Duration::from_secs(2);

/// Reads `--minutes N`.
///
/// # Errors
/// There are other options, or N is no positive number.
pub fn minutes(options: &[String]) -> Result<Duration, String> {
    let count = match options {
        [] => Some(MINUTES),
        [option, count] if option == "--minutes" => count.parse().ok().filter(|count| *count > 0),
        _ => None,
    };
    count
        .map(|count: u64| Duration::from_secs(count * 60))
        .ok_or_else(|| "usage: cargo xtask soak [--minutes N]".to_string())
}

/// The steps of the soak. They share the time, and the victims get half of it.
pub fn steps(total: Duration) -> Vec<Step> {
    let part = |name: &'static str, time: Duration| Step {
        name,
        repeat: Some(format!("soak --minutes {}", total.as_secs() / 60)),
        check: Check::Soak(name, time),
        limit: time + GRACE,
    };
    vec![
        part("victims", total / 2),
        part("memhog", total / 8),
        part("areas", total / 8),
        part("stress-ng", total / 8),
        part("arena", total / 8),
    ]
}

/// Runs one part for this time.
///
/// # Errors
/// A program found a wrong byte, ended otherwise than it should, or hung.
pub fn run(root: &Path, part: &str, time: Duration) -> Result<Report, String> {
    if part == "arena" {
        return arena(root, time);
    }
    checks::build_release(root, GRACE * 10)?;
    match part {
        "victims" => victims(root, time),
        "memhog" => once(root, time, &EVICT_ALL, &memhog(root, time)),
        "areas" => once(root, time, &EVICT_TO_AREA, &memhog(root, time)),
        _ => once(root, time, &EVICT_ALL, &stress(time)),
    }
}

/// Threads that write, read, advise, pin and free memory of arenas at random, and compare every byte. The tests run at
/// the same time. The time is theirs alone: they are built before.
fn arena(root: &Path, time: Duration) -> Result<Report, String> {
    let words = ["test", "--release", "-p", "vswap-arena", "--test", "stress"];
    let mut build = checks::cargo(root, &words);
    command::run(build.arg("--no-run"), GRACE * 10)?;
    let mut command = checks::cargo(root, &words);
    command.env("VSWAP_ARENA_STRESS_SECONDS", time.as_secs().to_string());
    checks::tests(command, time + GRACE)
}

fn memhog(root: &Path, time: Duration) -> Vec<String> {
    let program = built(root, "vswap-workload");
    let seconds = time.as_secs().to_string();
    [
        &program,
        "memhog",
        "256M",
        "--threads",
        "2",
        "--seconds",
        &seconds,
    ]
    .map(String::from)
    .to_vec()
}

fn stress(time: Duration) -> Vec<String> {
    let timeout = format!("{}s", time.as_secs());
    [
        "stress-ng",
        "--vm",
        "2",
        "--vm-bytes",
        "128M",
        "--vm-method",
        "all",
        "--verify",
    ]
    .into_iter()
    .chain(["--metrics-brief", "--timeout", &timeout])
    .map(String::from)
    .collect()
}

/// Runs every victim in turn, with threads and, if there is time for both, single-threaded too. Each gets an equal part
/// of the time. All victims run, even if the first ones fail, and the error names all that failed: the end of a log may
/// be all that is kept.
fn victims(root: &Path, time: Duration) -> Result<Report, String> {
    let program = built(root, "vswap-victims");
    let list = Command::new(&program)
        .arg("list")
        .output()
        .map_err(|error| format!("cannot ask {program} for its victims: {error}"))?;
    let list = String::from_utf8_lossy(&list.stdout);
    let names: Vec<&str> = list.split_whitespace().collect();
    if names.is_empty() {
        return Err(format!("{program} lists no victim"));
    }
    let both = u32::try_from(names.len() * 2).unwrap_or(u32::MAX);
    let threads: &[&str] = if time < ROUND * both {
        &["4"]
    } else {
        &["1", "4"]
    };
    let run = |name, threads| (&EVICT_ALL[..], vec![name, "--threads", threads]);
    let runs = names
        .iter()
        .flat_map(|name| threads.iter().map(|threads| run(*name, *threads)))
        .chain(AREA_VICTIMS.map(|name| (&EVICT_TO_AREA[..], vec![name, "--threads", "4"])))
        .chain([(&TIGHT[..], TIGHT_VICTIM.to_vec())]);
    let count = names.len() * threads.len() + AREA_VICTIMS.len() + 1;
    let each = (time / u32::try_from(count).unwrap_or(u32::MAX)).max(ROUND);
    let seconds = each.as_secs().to_string();
    let mut tests = TestCounts::default();
    let mut failed = Vec::new();
    for (limits, victim) in runs {
        let words = [&[program.as_str()], &victim[..], &["--seconds", &seconds]].concat();
        let words: Vec<String> = words.into_iter().map(String::from).collect();
        match once(root, each, limits, &words) {
            Ok(report) => {
                tests.passed += report.tests.passed;
                tests.ignored += report.tests.ignored;
                tests.skips.extend(report.tests.skips);
            }
            Err(error) => failed.push(format!("{}: {error}", victim.join(" "))),
        }
    }
    if !failed.is_empty() {
        return Err(summary(&failed));
    }
    Ok(Report {
        tests,
        skipped: None,
    })
}

/// How many victims failed, then one line for each.
fn summary(failed: &[String]) -> String {
    format!("{} victims failed\n{}", failed.len(), failed.join("\n"))
}

/// Runs one program with the given limits. The program stops by itself.
fn once(
    root: &Path,
    time: Duration,
    limits: &[&str],
    program: &[String],
) -> Result<Report, String> {
    let mut command = Command::new(built(root, "vswap"));
    command.arg("run").args(limits).arg("--").args(program);
    command.current_dir(root);
    let (status, _) = command::run_to_end(&mut command, time + GRACE)?;
    let mut tests = TestCounts::default();
    match status.code() {
        Some(0) => tests.passed = 1,
        Some(NOT_PERMITTED) => {
            tests.ignored = 1;
            tests
                .skips
                .push(format!("{} is not permitted here", program[..2].join(" ")));
        }
        _ => {
            return Err(format!(
                "`{}` ended with {status}",
                command::shell_words(&command)
            ));
        }
    }
    Ok(Report {
        tests,
        skipped: None,
    })
}

fn built(root: &Path, name: &str) -> String {
    root.join("target/release").join(name).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn minutes_are_read_and_nonsense_refused() {
        assert_eq!(minutes(&[]).unwrap(), Duration::from_secs(600));
        assert_eq!(
            minutes(&words(&["--minutes", "3"])).unwrap(),
            Duration::from_secs(180)
        );
        for bad in [
            &["--minutes"][..],
            &["--minutes", "0"],
            &["--minutes", "x"],
            &["3"],
        ] {
            assert!(
                minutes(&words(bad)).unwrap_err().contains("usage"),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn the_summary_names_each_victim_that_failed() {
        let failed = words(&["reuse --threads 4: ended with 1", "fork --threads 1: hung"]);
        let text = summary(&failed);
        assert!(text.starts_with("2 victims failed"), "{text}");
        assert!(
            failed
                .iter()
                .all(|one| text.lines().any(|line| line == one)),
            "{text}"
        );
    }

    #[test]
    fn the_parts_share_the_time() {
        let total = Duration::from_secs(600);
        let spent: Duration = steps(total)
            .iter()
            .map(|step| match step.check {
                Check::Soak(_, time) => time,
                _ => Duration::ZERO,
            })
            .sum();
        assert_eq!(spent, total);
    }
}
