//! Runs all victims one after the other, each as a program of its own.
//!
//! All failures are printed once more at the very end, because often only the end of a log is kept.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::run::{EXIT_UNAVAILABLE, Options};
use crate::wrong::{Checked, Wrong};

/// How long after a victim's end its last output may take. Children that outlive it keep its standard error open.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A victim that failed, and everything needed to run it again.
#[derive(Debug)]
pub(crate) struct Failure {
    name: String,
    seed: u64,
    threads: usize,
    status: ExitStatus,
    /// The first line that it wrote to standard error.
    reason: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            seed,
            threads,
            status,
            ..
        } = self;
        let reason = self.reason.as_deref().unwrap_or("it said nothing");
        write!(
            f,
            "FAILED {name} --seed {seed} --threads {threads}: {status}: {reason}"
        )
    }
}

/// Runs every victim in `names` and fails if one failed.
pub(crate) fn run(options: &Options, names: &[&str]) -> Checked {
    let program = std::env::current_exe().map_err(|error| Wrong::Call {
        what: "/proc/self/exe",
        error,
    })?;
    let mut failures = Vec::new();
    for name in names {
        let start = Instant::now();
        let mut command = Command::new(&program);
        command.arg(name);
        for (option, value) in [
            ("--seconds", options.seconds.to_string()),
            ("--megabytes", options.megabytes.to_string()),
            ("--threads", options.threads.to_string()),
            ("--seed", options.seed.to_string()),
            ("--grace", options.grace.to_string()),
        ] {
            command.args([option, &value]);
        }
        if options.sabotage {
            command.arg("--sabotage");
        }
        let (status, reason) = run_one(&mut command)?;
        let verdict = match status.code() {
            Some(0) => "right",
            Some(EXIT_UNAVAILABLE) => "not available here",
            _ => "WRONG",
        };
        println!(
            "{name}: {verdict} ({status}, {:.1} s)",
            start.elapsed().as_secs_f64()
        );
        if verdict == "WRONG" {
            failures.push(Failure {
                name: (*name).to_owned(),
                seed: options.seed,
                threads: options.threads,
                status,
                reason,
            });
        }
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(Wrong::Victims(failures))
    }
}

/// Runs one victim to its end and passes on its standard error. Returns how it ended, and the first line of that.
fn run_one(command: &mut Command) -> Checked<(ExitStatus, Option<String>)> {
    let failed = |error| Wrong::Call {
        what: "spawn",
        error,
    };
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
    let lines = child.stderr.take().map(pass_on);
    let status = child.wait().map_err(failed)?;
    let reason = lines.and_then(|lines| lines.recv_timeout(LAST_WORDS).ok());
    Ok((status, reason))
}

/// Copies lines to this program's standard error as they come, and sends the first one that is not empty.
fn pass_on(from: ChildStderr) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut sender = Some(sender);
        let mut line = Vec::new();
        let mut reader = BufReader::new(from);
        while matches!(reader.read_until(b'\n', &mut line), Ok(bytes) if bytes > 0) {
            // If standard error is closed, there is nobody to tell.
            let _ = std::io::stderr().write_all(&line);
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            if !text.is_empty()
                && let Some(sender) = sender.take()
            {
                let _ = sender.send(text);
            }
            line.clear();
        }
    });
    lines
}
