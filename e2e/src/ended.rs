//! A run that has ended, and what must hold for every run: its status, its limit by the sampler's and vswap's own
//! figures, that it swapped, and that nothing of it is left.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::limit::{allowed_bytes, mib};
use crate::sampler::Peak;
use crate::traces::no_run_dir;
use crate::{Failure, Outcome, ensure, procfs};

/// The pause between two looks at processes that must go.
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// How long after vswap's end everything that a run leaves behind must be gone.
const LEFT_BEHIND_GRACE: Duration = Duration::from_secs(1);
/// How much of a program's last output goes into a failure.
const LAST_WORDS_BYTES: usize = 2000;

/// A job that has run.
#[derive(Debug, Clone)]
pub struct Ended {
    /// What was run, for messages.
    pub name: String,
    /// Pid of the process that the test started.
    pub pid: u32,
    /// The status of the process that the test started: vswap, or the program in a native run.
    pub status: ExitStatus,
    /// Time from start to end.
    pub took: Duration,
    /// The highest total that the sampler saw.
    pub peak: Peak,
    /// The file that took standard output.
    pub stdout: PathBuf,
    /// The file that took standard error.
    pub stderr: PathBuf,
    /// The limit, if the job ran under vswap.
    pub limit_bytes: Option<u64>,
    /// The content of the `--summary` file, if there was one.
    pub summary: Option<Value>,
}

/// Checks that no process of a run that has ended is alive.
pub fn nothing_left(name: &str) -> Outcome {
    let own = std::process::id();
    let until = Instant::now() + LEFT_BEHIND_GRACE;
    loop {
        let left = procfs::living_descendants(own);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            let list: Vec<String> = left.into_iter().map(procfs::describe).collect();
            return Err(Failure::wrong(format!(
                "{name} left processes behind: {}",
                list.join(", ")
            )));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The end of what was said on standard error, for messages.
pub fn last_words(path: &Path) -> String {
    let text = end_of(path);
    if text.is_empty() {
        "(nothing on standard error)".to_owned()
    } else {
        format!("stderr: {text}")
    }
}

/// The end of a text file.
fn end_of(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let from = bytes.len().saturating_sub(LAST_WORDS_BYTES);
    String::from_utf8_lossy(&bytes[from..]).trim().to_owned()
}

impl Ended {
    /// Checks that the run ended with status 0.
    pub fn must_succeed(&self) -> Outcome {
        self.must_exit_with(0)
    }

    /// Checks that a signal ended the run, as it ended the program.
    pub fn must_be_ended_by(&self, signal: Signal) -> Outcome {
        let (name, status) = (&self.name, self.status);
        let by = status.signal();
        let words = || last_words(&self.stderr);
        ensure!(
            by == Some(signal.as_raw()),
            "{name}: {status}, expected {signal:?}; {}",
            words()
        );
        Ok(())
    }

    /// Checks that the run ended with this exit status.
    pub fn must_exit_with(&self, code: i32) -> Outcome {
        let (name, status) = (&self.name, self.status);
        let (said, printed) = (|| last_words(&self.stderr), || end_of(&self.stdout));
        ensure!(
            status.code() == Some(code),
            "{name}: {status}, expected {code}; {}; stdout: {}",
            said(),
            printed()
        );
        Ok(())
    }

    /// Checks that no process of the run is alive and that its directory is gone.
    pub fn must_leave_nothing(&self) -> Outcome {
        nothing_left(&self.name)?;
        if self.limit_bytes.is_some() {
            no_run_dir(self.pid)
        } else {
            Ok(())
        }
    }

    /// One figure of the summary.
    pub fn figure(&self, key: &str) -> Outcome<u64> {
        let wrong = |text: &str| Failure::wrong(format!("{}: {text}", self.name));
        let summary = self
            .summary
            .as_ref()
            .ok_or_else(|| wrong("--summary wrote no JSON"))?;
        let found = find(summary, key).ok_or_else(|| wrong(&format!("summary has no {key}")))?;
        found
            .as_u64()
            .ok_or_else(|| wrong(&format!("summary has {key} = {found}, not a count")))
    }

    /// Checks the limit of a run under vswap, by the sampler's and vswap's own figures, and that the run swapped.
    /// Always passes for a native run.
    pub fn must_hold_limit(&self) -> Outcome {
        let Some(limit_bytes) = self.limit_bytes else {
            return Ok(());
        };
        let allowed = allowed_bytes(limit_bytes);
        let peak = self.peak;
        if peak.total_bytes > allowed {
            return Err(Failure::Limit(format!(
                "the limit did not hold: {} took {} at {:?} ({} in {} processes, {} in vswap), allowed are {}",
                self.name,
                mib(peak.total_bytes),
                peak.at,
                mib(peak.program_bytes),
                peak.processes,
                mib(peak.own_bytes),
                mib(allowed)
            )));
        }
        if !peak.can_tell(allowed) {
            return Err(Failure::Limit(format!(
                "{}: {} of {} looks at its memory took too long to be of one moment, and one of them saw {}",
                self.name,
                peak.blurred,
                peak.samples,
                mib(peak.blurred_bytes)
            )));
        }
        let own_peak = self.figure("peak_total_bytes")?;
        if own_peak > allowed {
            return Err(Failure::Limit(format!(
                "vswap's own peak_total_bytes is {}, allowed are {}",
                mib(own_peak),
                mib(allowed)
            )));
        }
        ensure!(
            self.figure("pages_out")? > 0,
            "{} ran within its limit without swapping",
            self.name
        );
        Ok(())
    }
}

/// The key wherever it is in the summary: at the top or in one of its sections.
fn find<'a>(summary: &'a Value, key: &str) -> Option<&'a Value> {
    let object = summary.as_object()?;
    object
        .get(key)
        .or_else(|| object.values().find_map(|value| find(value, key)))
}
