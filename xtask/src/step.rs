//! Steps of a verb: run in order or side by side, and timed; the first failure ends them; a table sums them up.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::command::TestCounts;
use crate::fuzz::Search;

/// The longest time for all steps together where limits hold. They should take less than 40 minutes on two processors.
/// This limit ends hangs.
const TOTAL_LIMIT: Duration = Duration::from_secs(75 * 60);

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
    /// Programs that lie, and the options that choose them.
    Hostile(Vec<String>),
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

/// What runs side by side: each lane is a list of steps, one after another.
pub type Stage = Vec<Vec<Step>>;

/// Stages that run one after another, and what has failed so far.
struct Run<'a> {
    root: &'a Path,
    begun: Instant,
    failure: Mutex<Option<String>>,
}

/// Runs the stages in order and prints the table. False if a step failed. After a failure no other step begins.
pub fn run_all(root: &Path, stages: &[Stage]) -> bool {
    let run = Run {
        root,
        begun: Instant::now(),
        failure: Mutex::default(),
    };
    let mut rows = Vec::new();
    for stage in stages {
        std::thread::scope(|scope| {
            let lanes: Vec<_> = stage
                .iter()
                .map(|lane| scope.spawn(|| lane.iter().map(|step| run.step(step)).collect()))
                .collect();
            for lane in lanes {
                let done: Vec<Row> = lane.join().unwrap_or_else(|panic| resume_unwind(panic));
                rows.extend(done);
            }
        });
    }
    print!("\n{}", table(&rows, run.begun.elapsed()));
    let failure = run.failed();
    if let Some(text) = &*failure {
        println!("\nFAILED {text}");
    }
    failure.is_none()
}

impl Run<'_> {
    fn failed(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a step, unless another has failed.
    fn step(&self, step: &Step) -> Row {
        if self.failed().is_some() {
            return Row {
                name: step.name.into(),
                outcome: Outcome::NotRun,
                time: Duration::ZERO,
            };
        }
        println!("\n==> {}", step.name);
        let begun = Instant::now();
        let left = TOTAL_LIMIT.saturating_sub(self.begun.elapsed());
        let outcome = match step.check.run(self.root, step.limit.min(left)) {
            Ok(Report {
                skipped: Some(reason),
                ..
            }) => Outcome::Skipped(reason),
            Ok(Report { tests, .. }) => Outcome::Passed(tests),
            Err(reason) => {
                let verb = step.repeat.as_deref().unwrap_or(step.name);
                let text = format!(
                    "{}: {reason}\nrepeat it with: cargo xtask {verb}",
                    step.name
                );
                self.failed().get_or_insert(text);
                Outcome::Failed
            }
        };
        let time = begun.elapsed();
        println!(
            "<== {} {} in {:.1} s",
            step.name,
            word(&outcome),
            time.as_secs_f64()
        );
        Row {
            name: step.name.into(),
            outcome,
            time,
        }
    }
}

impl Check {
    fn run(&self, root: &Path, limit: Duration) -> Result<Report, String> {
        match self {
            Check::Plain(check) => check(root, limit),
            Check::Soak(part, time) => crate::soak::run(root, part, *time),
            Check::Fuzz(search) => crate::fuzz::run(root, *search),
            Check::Chaos(options) => crate::drive::run(root, crate::chaos::PACKAGE, options),
            Check::Hostile(options) => crate::drive::run(root, crate::hostile::PACKAGE, options),
        }
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed(_) => "passed",
        Outcome::Skipped(_) => "skipped",
        Outcome::Failed => "FAILED",
        Outcome::NotRun => "not run",
    }
}

/// Steps that run side by side take longer in sum than `total`.
fn table(rows: &[Row], total: Duration) -> String {
    let mut text = String::from("step       outcome      time  tests\n");
    for row in rows {
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
        assert!(run_all(Path::new("/"), &[vec![steps[..1].to_vec()]]));
        assert!(!run_all(Path::new("/"), &[vec![steps.to_vec()]]));
        assert!(!run_all(
            Path::new("/"),
            &[vec![steps[..2].to_vec()], vec![steps[2..].to_vec()]]
        ));
        assert_eq!(AFTER_FAILURE.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn lanes_run_side_by_side() {
        static MET: std::sync::Barrier = std::sync::Barrier::new(2);
        let meet = |_: &Path, _: Duration| {
            MET.wait();
            Ok(Report::default())
        };
        let stage = vec![vec![step("one", meet)], vec![step("other", meet)]];
        assert!(run_all(Path::new("/"), &[stage]));
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
        let text = table(&rows, Duration::from_secs(5));
        for expected in [
            "7 passed, 1 ignored",
            "skipped",
            "no nightly",
            "FAILED",
            "not run",
            "5.0 s",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
    }
}
