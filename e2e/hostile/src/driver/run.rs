//! One `vswap run` under way, with a crew in it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use crate::crew::{BEGUN, QUIET};
use crate::process;

/// How far a crew has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Starts,
    Begun,
    Quiet,
}

/// A process of vswap, its crew's phase, and what it says on standard error.
pub(crate) struct Running {
    pub(crate) name: &'static str,
    pub(crate) child: Child,
    phase: Arc<Mutex<Phase>>,
    errors: PathBuf,
}

impl Running {
    /// Starts a command that is vswap.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start(
        name: &'static str,
        mut command: Command,
        descriptors: Option<u64>,
        place: &Path,
    ) -> Result<Running, String> {
        let cannot = |error: std::io::Error| format!("cannot start {name}: {error}");
        let errors = place.join(format!("{name}.stderr"));
        command
            .env_remove("RUST_BACKTRACE")
            .current_dir(place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).map_err(cannot)?);
        process::bind(&mut command, descriptors);
        let mut child = command.spawn().map_err(cannot)?;
        let phase = Arc::new(Mutex::new(Phase::Starts));
        if let Some(said) = child.stdout.take() {
            let phase = Arc::clone(&phase);
            std::thread::spawn(move || {
                for line in BufReader::new(said).lines().map_while(Result::ok) {
                    let reached = match line.as_str() {
                        BEGUN => Phase::Begun,
                        QUIET => Phase::Quiet,
                        _ => continue,
                    };
                    *phase.lock().unwrap_or_else(PoisonError::into_inner) = reached;
                }
            });
        }
        Ok(Running {
            name,
            child,
            phase,
            errors,
        })
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the crew end.
    pub(crate) fn release(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The status, once it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// What it has said.
    pub(crate) fn said(&self) -> String {
        let text = fs::read(&self.errors).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// What is wrong with an end.
    pub(crate) fn wrong_with(&self, status: ExitStatus) -> Option<String> {
        let said = self.said();
        let tail: Vec<&str> = said.lines().rev().take(12).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        let name = self.name;
        if said.contains("panicked") || said.contains("fatal runtime error") {
            return Some(format!("{name} panicked and ended with {status}\n{tail}"));
        }
        match (status.signal(), status.code()) {
            (None, Some(0)) => None,
            (Some(signal), _) => Some(format!("{name} was killed by signal {signal}\n{tail}")),
            (_, code) => Some(format!(
                "{name} ended with status {}\n{tail}",
                code.unwrap_or(-1)
            )),
        }
    }
}
