//! Runs a program natively, and under vswap with a size and a bound on its time.
//!
//! Time is that of a clock on the wall, from the start of the command to its end. A run that exceeds its bound is
//! ended: vswap gets SIGTERM by its process id and passes it on, what is left of the program is killed, and vswap then
//! ends by itself.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::search::Outcome;
use crate::command;
use crate::programs::Program;
use crate::programs::place::Place;

/// The bound natively: these programs take some seconds.
const NATIVE_LIMIT: Duration = Duration::from_secs(120);
/// How often a run is looked at: a three hundredth of the shortest.
const POLL: Duration = Duration::from_millis(10);
/// How long a program may take to end after SIGTERM, and vswap after the program's end.
const TERM_PAUSE: Duration = Duration::from_secs(2);
const END_PAUSE: Duration = Duration::from_secs(10);
/// vswap's own errors, and runs that it ended because they were full.
const REFUSED: i32 = 125;
/// A run that has waited for memory for so long without a break has nothing to hope for: none of these programs frees
/// much before its end.
const ON_FULL: &str = "fail:5";
/// From this part of its time in which it waited for memory, a run that was ended counts as full.
const FULL_PART: f64 = 0.25;
/// No limit: the sampler shall only find the peak.
const AMPLE: &str = "1024G";

/// What a program does by itself.
#[derive(Debug)]
pub struct Native {
    /// Of each run that was not sampled.
    pub seconds: Vec<f64>,
    /// The most memory that it had.
    pub peak_bytes: f64,
    /// What it printed.
    said: String,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ended {
    /// A signal counts as -1. `None`: it was ended, because it exceeded its bound.
    status: Option<i32>,
    seconds: f64,
}

/// A program, and what runs it.
#[derive(Debug)]
pub struct Bench {
    place: Place,
    vswap: PathBuf,
    sampler: PathBuf,
    swap: String,
}

impl Bench {
    /// Prepares a program.
    ///
    /// # Errors
    /// It cannot be prepared.
    pub fn new(
        (root, below): (&Path, &Path),
        (vswap, sampler): (&Path, &Path),
        swap: &str,
        program: &'static Program,
    ) -> Result<Bench, String> {
        Ok(Bench {
            place: Place::new(root, below, program)?,
            vswap: vswap.to_owned(),
            sampler: sampler.to_owned(),
            swap: swap.to_owned(),
        })
    }

    /// Runs it natively: once sampled, which costs time and brings its files into the page cache, and then `runs`
    /// times.
    ///
    /// # Errors
    /// It fails, or does not always print the same.
    pub fn natively(&self, runs: usize) -> Result<Native, String> {
        let mut sampled = Command::new(&self.sampler);
        sampled.args(["--limit", AMPLE, "--output", "peak.json", "--"]);
        sampled.args(["sh", "-c", &self.script()]);
        self.must(sampled)?;
        let peak = self.place.json("peak.json")?;
        let peak_bytes = peak["peak_bytes"]
            .as_f64()
            .ok_or("the sampler told no peak")?;
        let said = self.output()?;
        if said.is_empty() {
            return Err("it prints no result".to_owned());
        }
        let mut seconds = Vec::new();
        for _ in 0..runs {
            let mut plain = Command::new("sh");
            plain.args(["-c", &self.script()]);
            seconds.push(self.must(plain)?);
            if self.output()? != said {
                return Err("it does not print the same each time".to_owned());
            }
        }
        Ok(Native {
            seconds,
            peak_bytes,
            said,
        })
    }

    /// Runs it under vswap, but no longer than `limit`. Returns how long it took as well.
    ///
    /// # Errors
    /// It fails, or prints something else than natively.
    pub fn go(
        &self,
        native: &Native,
        codec: &str,
        ram_bytes: f64,
        limit: Duration,
    ) -> Result<(Outcome, f64), String> {
        let summary = self.place.file("summary.json");
        // A summary of an earlier run would be taken for this run's.
        let _ = fs::remove_file(&summary);
        let mut command = Command::new(&self.vswap);
        command.args(["run", "--quiet", "--no-daemon", "--summary", "summary.json"]);
        command.args(["--swap", &self.swap, "--codec", codec, "--on-full", ON_FULL]);
        command.arg("--ram").arg(format!("{ram_bytes:.0}"));
        command.args(["--", "sh", "-c", &self.script()]);
        let ended = self.watch(command, limit)?;
        let summary = self.place.json("summary.json").unwrap_or(Value::Null);
        let outcome = judged(ended, limit, &summary)
            .map_err(|what| format!("{what}: {}", self.place.said()))?;
        if outcome == Outcome::InTime && self.output()? != native.said {
            return Err(format!(
                "with --codec {codec} --ram {ram_bytes:.0} it does not print what it prints natively"
            ));
        }
        Ok((outcome, ended.seconds))
    }

    /// Why vswap has refused the last run: the first line that it said.
    pub fn refusal(&self) -> String {
        let text = fs::read(self.place.file("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().next().unwrap_or("it said nothing").to_owned()
    }

    /// The program, with its result in a file.
    fn script(&self) -> String {
        format!("{{ {}\n}} >output", self.place.program.run)
    }

    fn output(&self) -> Result<String, String> {
        let path = self.place.file("output");
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// A native run, which must succeed. Returns how long it took.
    fn must(&self, command: Command) -> Result<f64, String> {
        let ended = self.watch(command, NATIVE_LIMIT)?;
        match ended.status {
            Some(0) => Ok(ended.seconds),
            Some(status) => Err(format!(
                "natively it ended with {status}: {}",
                self.place.said()
            )),
            None => Err("natively it takes too long".to_owned()),
        }
    }

    /// Runs a command until it ends or its time is over.
    fn watch(&self, mut command: Command, limit: Duration) -> Result<Ended, String> {
        // What an earlier run printed would be taken for this run's.
        let _ = fs::remove_file(self.place.file("output"));
        self.place.equip(&mut command)?;
        let shown = command::shell_words(&command);
        let failed = |error: std::io::Error| format!("cannot run `{shown}`: {error}");
        let log = File::create(self.place.file("log")).map_err(failed)?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log);
        let begun = Instant::now();
        let mut child = command.spawn().map_err(failed)?;
        let status = wait(&mut child, limit);
        let seconds = begun.elapsed().as_secs_f64();
        if status.is_none() {
            end(&mut child);
        }
        Ok(Ended { status, seconds })
    }
}

/// Waits for a child, but not longer than `limit`.
fn wait(child: &mut Child, limit: Duration) -> Option<i32> {
    let begun = Instant::now();
    loop {
        // A child that cannot be waited for does not get better: it is ended like one that takes too long.
        if let Some(status) = child.try_wait().ok()? {
            return Some(status.code().unwrap_or(-1));
        }
        if begun.elapsed() > limit {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// Ends a run. vswap comes last, so that it can write its summary and remove what it has made.
fn end(child: &mut Child) {
    let mut pids = command::descendants(child.id());
    command::terminate(child.id());
    let _ = wait(child, TERM_PAUSE);
    // A program that outlives vswap is no descendant any longer, so those from before are looked at too.
    pids.extend(command::descendants(child.id()));
    pids.retain(|pid| command::is_alive(*pid));
    if !pids.is_empty() {
        command::kill(&pids);
    }
    if wait(child, END_PAUSE).is_none() {
        command::kill_tree(child);
    }
}

/// What came of a run.
fn judged(ended: Ended, limit: Duration, summary: &Value) -> Result<Outcome, String> {
    let was_full = summary["ended_full"].as_bool().unwrap_or(false);
    let waited = summary["stalled_seconds"].as_f64().unwrap_or(0.0);
    match ended.status {
        _ if was_full => Ok(Outcome::Full),
        None if waited >= ended.seconds * FULL_PART => Ok(Outcome::Full),
        None => Ok(Outcome::TooSlow),
        Some(0) if ended.seconds > limit.as_secs_f64() => Ok(Outcome::TooSlow),
        Some(0) => Ok(Outcome::InTime),
        Some(REFUSED) => Ok(Outcome::Refused),
        Some(status) => Err(format!("under vswap it ended with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn judge(status: Option<i32>, seconds: f64, summary: &Value) -> Result<Outcome, String> {
        judged(Ended { status, seconds }, LIMIT, summary)
    }

    #[test]
    fn a_run_is_judged_by_status_time_and_summary() {
        let plain = json!({ "ended_full": false, "stalled_seconds": 0.1 });
        let full = json!({ "ended_full": true, "stalled_seconds": 5.0 });
        let waited = json!({ "stalled_seconds": 4.0 });
        assert_eq!(judge(Some(0), 9.0, &plain), Ok(Outcome::InTime));
        assert_eq!(judge(Some(0), 10.01, &plain), Ok(Outcome::TooSlow));
        assert_eq!(judge(None, 10.0, &plain), Ok(Outcome::TooSlow));
        assert_eq!(judge(None, 10.0, &waited), Ok(Outcome::Full));
        assert_eq!(judge(Some(0), 9.0, &waited), Ok(Outcome::InTime));
        assert_eq!(judge(Some(REFUSED), 7.0, &full), Ok(Outcome::Full));
        assert_eq!(
            judge(Some(REFUSED), 0.1, &Value::Null),
            Ok(Outcome::Refused)
        );
        assert!(judge(Some(1), 1.0, &plain).unwrap_err().contains("with 1"));
        assert!(judge(Some(-1), 1.0, &Value::Null).is_err());
    }

    #[test]
    fn a_run_whose_time_is_over_is_ended_with_all_that_it_started() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 60 & sleep 60"])
            .spawn()
            .unwrap();
        let until = |is_so: &dyn Fn() -> bool| {
            let begun = Instant::now();
            while !is_so() && begun.elapsed() < LIMIT {
                thread::sleep(POLL);
            }
            is_so()
        };
        assert!(until(&|| command::descendants(child.id()).len() == 2));
        let pids = command::descendants(child.id());
        assert_eq!(wait(&mut child, Duration::ZERO), None);
        end(&mut child);
        assert!(child.try_wait().unwrap().is_some());
        assert!(until(&|| !pids.iter().any(|pid| command::is_alive(*pid))));
    }
}
