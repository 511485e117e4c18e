//! Steps of a verb: run in order and timed; the first failure ends them; a table sums them up.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::command::TestCounts;
use crate::fuzz::Search;

/// The longest time for all steps together where limits hold. They should take less than 40 minutes on two idle
/// processors. This limit ends hangs and leaves a shared machine half as much time again.
const TOTAL_LIMIT: Duration = Duration::from_secs(60 * 60);

/// One check.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its name, also the verb that repeats it.
    pub name: &'static str,
    /// The words after `cargo xtask` that repeat the step, if the name alone does not.
    pub repeat: Option<String>,
    /// The check itself. It gets the workspace's directory and its time limit.
    pub check: Check,
    /// The longest time for the step where limits hold.
    pub limit: Duration,
}

/// What a step does.
#[derive(Debug, Clone)]
pub enum Check {
    /// A check that needs no more arguments.
    Plain(fn(&Path, Duration) -> Result<Report, String>),
    /// A part of the soak: its name and its duration.
    Soak(&'static str, Duration),
    /// Fuzzers, and how long they search.
    Fuzz(Search),
    /// Generated programs, and the options that choose them.
    Chaos(Vec<String>),
}

/// The report of a step that did not fail.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The tests that it ran.
    pub tests: TestCounts,
    /// Why it did nothing, if so.
    pub skipped: Option<String>,
}

#[derive(Debug)]
enum Outcome {
    Passed(TestCounts),
    Skipped(String),
    Failed,
    NotRun,
}

#[derive(Debug)]
struct Row {
    name: String,
    outcome: Outcome,
    time: Duration,
}

/// Runs the steps in order and prints the table. False if one failed.
pub fn run_all(root: &Path, steps: &[Step]) -> bool {
    let mut rows = Vec::new();
    let mut failure: Option<String> = None;
    let first_begun = Instant::now();
    for step in steps {
        if failure.is_some() {
            rows.push(Row {
                name: step.name.into(),
                outcome: Outcome::NotRun,
                time: Duration::ZERO,
            });
            continue;
        }
        println!("\n==> {}", step.name);
        let begun = Instant::now();
        let result = match &step.check {
            Check::Plain(check) => check(
                root,
                step.limit
                    .min(TOTAL_LIMIT.saturating_sub(first_begun.elapsed())),
            ),
            Check::Soak(part, time) => crate::soak::run(root, part, *time),
            Check::Fuzz(search) => crate::fuzz::run(root, *search),
            Check::Chaos(options) => crate::chaos::run(root, options),
        };
        let time = begun.elapsed();
        let outcome = match result {
            Ok(Report {
                skipped: Some(reason),
                ..
            }) => Outcome::Skipped(reason),
            Ok(Report { tests, .. }) => Outcome::Passed(tests),
            Err(reason) => {
                let verb = step.repeat.as_deref().unwrap_or(step.name);
                failure = Some(format!(
                    "{}: {reason}\nrepeat it with: cargo xtask {verb}",
                    step.name
                ));
                Outcome::Failed
            }
        };
        println!(
            "<== {} {} in {:.1} s",
            step.name,
            word(&outcome),
            time.as_secs_f64()
        );
        rows.push(Row {
            name: step.name.into(),
            outcome,
            time,
        });
    }
    print!("\n{}", table(&rows));
    if let Some(text) = &failure {
        println!("\nFAILED {text}");
    }
    failure.is_none()
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed(_) => "passed",
        Outcome::Skipped(_) => "skipped",
        Outcome::Failed => "FAILED",
        Outcome::NotRun => "not run",
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from("step       outcome      time  tests\n");
    let mut total = Duration::ZERO;
    for row in rows {
        total += row.time;
        let detail = match &row.outcome {
            Outcome::Passed(tests) => counts(tests),
            Outcome::Skipped(reason) => reason.clone(),
            Outcome::Failed | Outcome::NotRun => String::new(),
        };
        let seconds = row.time.as_secs_f64();
        let line = format!(
            "{:<10} {:<8} {seconds:>6.1} s  {detail}",
            row.name,
            word(&row.outcome)
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str(&format!(
        "total               {:>6.1} s\n",
        total.as_secs_f64()
    ));
    text
}

fn counts(tests: &TestCounts) -> String {
    if tests.passed + tests.ignored == 0 {
        return String::new();
    }
    let mut text = format!("{} passed", tests.passed);
    if tests.ignored > 0 {
        text.push_str(&format!(", {} ignored", tests.ignored));
    }
    if !tests.skips.is_empty() {
        text.push_str(&format!(" because: {}", tests.skips.join("; ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static AFTER_FAILURE: AtomicU32 = AtomicU32::new(0);

    fn step(name: &'static str, check: fn(&Path, Duration) -> Result<Report, String>) -> Step {
        Step {
            name,
            repeat: None,
            check: Check::Plain(check),
            limit: Duration::from_secs(1),
        }
    }

    #[test]
    fn nothing_runs_after_a_failure() {
        let steps = [
            step("good", |_, _| Ok(Report::default())),
            step("bad", |_, _| Err("on purpose".into())),
            step("later", |_, _| {
                AFTER_FAILURE.fetch_add(1, Ordering::Relaxed);
                Ok(Report::default())
            }),
        ];
        assert!(run_all(Path::new("/"), &steps[..1]));
        assert!(!run_all(Path::new("/"), &steps));
        assert_eq!(AFTER_FAILURE.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_table_tells_every_outcome() {
        let tests = TestCounts {
            passed: 7,
            ignored: 1,
            ..TestCounts::default()
        };
        let outcomes = [
            ("test", Outcome::Passed(tests)),
            ("miri", Outcome::Skipped("no nightly".into())),
            ("loom", Outcome::Failed),
            ("e2e", Outcome::NotRun),
        ];
        let rows = outcomes.map(|(name, outcome)| Row {
            name: name.into(),
            outcome,
            time: Duration::from_secs(2),
        });
        let text = table(&rows);
        for expected in [
            "7 passed, 1 ignored",
            "skipped",
            "no nightly",
            "FAILED",
            "not run",
            "8.0 s",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
    }
}
