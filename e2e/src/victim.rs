//! A program that exists to be killed, and its log.
//!
//! The log is a file, which is never swapped, so it tells the truth whatever became of the program.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::During;
use crate::{Context, Job, Outcome, ensure, require_program};

/// What the victim does.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// MiB of memory that it fills and verifies.
    pub mib: u64,
    /// Children that it forks when its memory is full. They verify for ever.
    pub children: u32,
    /// Passes of its own before it waits for its children. With 0 it goes on for ever.
    pub passes: u32,
    /// Its exit status if everything was right.
    pub exit_status: u8,
}

/// The log of a victim.
#[derive(Debug, Clone)]
pub struct Log(PathBuf);

impl Plan {
    /// The job, and the log that the job writes.
    pub fn job(&self, context: &Context) -> Outcome<(Job, Log)> {
        let python = require_program("python3", "apt package python3")?;
        let script = context.place().join("victim.py");
        let text = include_str!("../inputs/victim.py");
        fs::write(&script, text).during(|| format!("write {}", script.display()))?;
        let log = context.place().join("victim.log");
        if log.exists() {
            fs::remove_file(&log).during(|| format!("remove {}", log.display()))?;
        }
        let numbers = [
            self.mib,
            self.children.into(),
            self.passes.into(),
            self.exit_status.into(),
        ];
        let job = Job::new(python)
            .arg(script)
            .arg(&log)
            .args(numbers.map(|n| n.to_string()));
        Ok((job, Log(log)))
    }
}

impl Log {
    /// Path of the log.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The text so far.
    pub fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }

    /// `Some` if a line contains this text.
    pub fn has(&self, text: &str) -> Option<()> {
        self.text().contains(text).then_some(())
    }

    /// The pids of the victim's children so far.
    pub fn children(&self) -> Vec<u32> {
        let text = self.text();
        let words = text.lines().filter_map(|line| line.split_once(" forked "));
        words.filter_map(|(_, pid)| pid.parse().ok()).collect()
    }

    /// Checks that no process ever read what it had not written, and that the log's end is complete.
    pub fn must_be_right(&self) -> Outcome {
        let text = self.text();
        let wrong: Vec<&str> = text.lines().filter(|line| line.contains("WRONG")).collect();
        ensure!(
            wrong.is_empty(),
            "the victim read wrong content: {}",
            wrong.join("; ")
        );
        ensure!(
            text.ends_with('\n'),
            "the victim's log ends in the middle of a line: {text}"
        );
        Ok(())
    }
}
