//! Runs one side of a suite, natively or under vswap, with a time limit and its output in a file.
//!
//! `timeout` of coreutils limits each run and ends its whole process group, so that a suite that hangs does not keep
//! the others from running. Processes that leave the group and outlive it are ended here, by process id.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cases::{self, Cases};
use super::{Limits, Suite};
use crate::command;

/// The longest time for unpacking and building a suite.
const PREPARE_MINUTES: u64 = 40;
/// The area behind the pool: a private file that goes away with the run.
const SWAP: &str = "/var/tmp:8G";
/// The exit status of `timeout` when it had to end the command.
const TIMED_OUT: i32 = 124;
/// Marks a suite as prepared. The file holds the script that prepared it.
const PREPARED: &str = "prepared";

/// The result of one side.
#[derive(Debug, Default)]
pub struct Said {
    /// The outcome of each case.
    pub cases: Cases,
    /// How the suite ended, if not well.
    pub end: Option<String>,
    /// Pages that were swapped out; 0 natively.
    pub pages_out: u64,
}

/// A suite and its directory.
#[derive(Debug)]
pub struct Place<'a> {
    root: &'a Path,
    suite: &'a Suite,
    path: PathBuf,
}

impl<'a> Place<'a> {
    /// The place of a suite below `target`.
    pub fn new(root: &'a Path, suite: &'a Suite) -> Self {
        let path = root.join("target/suites").join(suite.name);
        Self { root, suite, path }
    }

    /// Unpacks and builds the suite, unless the same script has done so before.
    ///
    /// # Errors
    /// The source cannot be had, or the script fails; its output is in `prepare.log`.
    pub fn prepare(&self) -> Result<(), String> {
        let stamp = self.path.join(PREPARED);
        if self.suite.source.is_none() && self.suite.prepare.is_empty() {
            return fs::create_dir_all(&self.path)
                .map_err(|error| format!("cannot make {}: {error}", self.path.display()));
        }
        if fs::read_to_string(&stamp).is_ok_and(|script| script == self.suite.prepare) {
            return Ok(());
        }
        let script = format!("set -e\n{}\n{}", self.unpack(), self.suite.prepare);
        fs::create_dir_all(&self.path)
            .map_err(|error| format!("cannot make {}: {error}", self.path.display()))?;
        let mut command = bounded(PREPARE_MINUTES);
        command
            .args(["sh", "-c", &script])
            .env("SCRIPTS", self.root.join("xtask/suites"));
        match self.finish(command, "prepare.log")? {
            0 => fs::write(&stamp, self.suite.prepare)
                .map_err(|error| format!("cannot write {}: {error}", stamp.display())),
            status => Err(format!("preparing it ended with {status}, see prepare.log")),
        }
    }

    fn unpack(&self) -> String {
        let Some(source) = self.suite.source else {
            return String::new();
        };
        format!(
            "mkdir -p ../sources && (cd ../sources && apt-get source --download-only {source})\n\
             rm -rf src && dpkg-source --no-check -x \"$(ls ../sources/{source}_*.dsc | tail -n 1)\" src"
        )
    }

    /// Runs the suite natively.
    ///
    /// # Errors
    /// It does not start, or prints nothing that can be read.
    pub fn natively(&self) -> Result<Said, String> {
        let mut command = bounded(self.suite.minutes);
        command.args(["sh", "-c", self.suite.run]);
        let said = self.said(command, "native.log")?;
        if said.cases.is_empty() {
            let end = said.end.unwrap_or_default();
            return Err(format!(
                "natively no case could be read from native.log; {end}"
            ));
        }
        Ok(said)
    }

    /// Runs the suite under vswap.
    ///
    /// # Errors
    /// It does not start.
    pub fn under_vswap(&self, limits: &Limits) -> Result<Said, String> {
        let summary = self.path.join("summary.json");
        // A summary of an earlier run would be taken for this run's.
        let _ = fs::remove_file(&summary);
        let mut command = bounded(self.suite.minutes);
        command.arg(self.root.join("target/release/vswap"));
        command.args(["run", "--quiet", "--no-daemon", "--swap", SWAP]);
        command.args(["--ram", limits.ram]);
        if let Some(pause) = limits.evict {
            command.args(["--debug-evict-every", pause]);
        }
        command.arg("--summary").arg(&summary);
        command.args(["--", "sh", "-c", self.suite.run]);
        let mut said = self.said(command, "vswap.log")?;
        said.pages_out = fs::read(&summary)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
            .and_then(|figures| figures.get("pages_out")?.as_u64())
            .unwrap_or(0);
        Ok(said)
    }

    fn said(&self, command: Command, log: &str) -> Result<Said, String> {
        let status = self.finish(command, log)?;
        let text = fs::read(self.path.join(log)).unwrap_or_default();
        let cases = cases::read(self.suite.reading, &String::from_utf8_lossy(&text));
        let end = match status {
            0 => None,
            TIMED_OUT => Some(format!("not ended after {} minutes", self.suite.minutes)),
            status => Some(format!("status {status}")),
        };
        Ok(Said {
            cases,
            end,
            pages_out: 0,
        })
    }

    /// Runs the command to its end, with both streams in a file, and ends the processes that it leaves. A signal counts
    /// as -1.
    fn finish(&self, mut command: Command, log: &str) -> Result<i32, String> {
        println!("$ {}", command::shell_words(&command));
        command
            .env("SCRIPTS", self.root.join("xtask/suites"))
            .env("PLACE", &self.path);
        let status = command::run_in(&self.path, &self.path.join(log), command)?;
        command::kill(&self.left_behind());
        Ok(status)
    }

    /// Processes that still work in the suite's own directory, such as servers that it did not stop.
    fn left_behind(&self) -> Vec<u32> {
        let mine = |entry: fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
            let cwd = fs::read_link(entry.path().join("cwd")).ok()?;
            cwd.starts_with(&self.path).then_some(pid)
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(mine).collect()
    }
}

fn bounded(minutes: u64) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=30s", &format!("{minutes}m"), "nice"]);
    command
}
