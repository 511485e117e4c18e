//! The JSON report of a run: for `vswap status` while the run lives, and for `--summary` at its end.

use std::ffi::OsString;
use std::fmt;
use std::time::{Instant, SystemTime};

use serde::Serialize;
use serde_json::Value;
use vswap_pager::Status;

use crate::args::codec::Codec;
use crate::host::Host;
use crate::metrics::figures::{Figures, RunFigures, StoreFigures};
use crate::output::SCHEMA;

use crate::verbs::run::unmanaged::{Unmanaged, UnmanagedList};

/// How the main program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Exited(u8),
    Signaled(i32),
}

impl Ending {
    /// The status that a shell would show.
    pub fn exit_status(self) -> u8 {
        match self {
            Ending::Exited(status) => status,
            Ending::Signaled(signal) => {
                128_u8.saturating_add(u8::try_from(signal).unwrap_or(u8::MAX))
            }
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exited(status) => write!(f, "exited with status {status}"),
            Ending::Signaled(signal) => write!(f, "was ended by signal {signal}"),
        }
    }
}

/// What identifies a run. It stays the same from start to end.
#[derive(Debug)]
pub struct Identity<'a> {
    command: Vec<String>,
    program_pid: u32,
    /// What it had in memory when it was attached to.
    attached_bytes: Option<u64>,
    started: Instant,
    unmanaged: &'a UnmanagedList,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    version: &'static str,
    pid: u32,
    program_pid: u32,
    /// By `vswap attach`.
    attached: bool,
    command: &'a [String],
    wall_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_status: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_signal: Option<i32>,
    /// The run was ended because everything was full (`--on-full`).
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_full: Option<bool>,
    #[serde(flatten)]
    status: &'a Status,
    /// Processes that were found not to be manageable, living or not.
    unmanaged: Vec<Unmanaged>,
}

impl<'a> Identity<'a> {
    pub fn new(
        command: &[OsString],
        program_pid: u32,
        started: Instant,
        unmanaged: &'a UnmanagedList,
    ) -> Identity<'a> {
        let command = command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        Identity {
            command,
            program_pid,
            attached_bytes: None,
            started,
            unmanaged,
        }
    }

    /// The program was there before, with so much in memory.
    pub fn attached(self, bytes: u64) -> Identity<'a> {
        Identity {
            attached_bytes: Some(bytes),
            ..self
        }
    }

    /// What the program had in memory when it was attached to.
    pub fn attached_bytes(&self) -> Option<u64> {
        self.attached_bytes
    }

    /// When the program was started, or attached to.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Seconds since then.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// What the endpoint for Prometheus tells. None if the daemon does not answer.
    pub fn figures(&self, host: &Host, codec: Option<Codec>) -> Option<Figures> {
        let program = self.command.first().map(|name| {
            let name = name.rsplit('/').next().unwrap_or_default();
            name.to_owned()
        });
        let run = RunFigures {
            pid: std::process::id(),
            program,
            started: SystemTime::now().checked_sub(self.started.elapsed()),
            status: host.status()?,
        };
        let store = host.store_status().map(|status| StoreFigures {
            codec: codec.unwrap_or_default().to_string(),
            status,
        });
        Some(Figures {
            runs: vec![run],
            store,
        })
    }

    /// The report as one JSON object.
    pub fn report(&self, status: &Status, ending: Option<Ending>, was_full: bool) -> Value {
        let report = Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            program_pid: self.program_pid,
            attached: self.attached_bytes.is_some(),
            command: &self.command,
            wall_seconds: self.seconds(),
            exit_status: ending.map(Ending::exit_status),
            exit_signal: match ending {
                Some(Ending::Signaled(signal)) => Some(signal),
                _ => None,
            },
            ended_full: ending.map(|_| was_full),
            status,
            unmanaged: self.unmanaged.all(),
        };
        // Only strings, numbers and flags: JSON has a form for everything in a report.
        serde_json::to_value(&report).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_one_flat_object() {
        let unmanaged = UnmanagedList::default();
        let identity = Identity::new(
            &["sort".into(), "-S".into()],
            42,
            Instant::now(),
            &unmanaged,
        );
        let status = Status {
            limit_bytes: 1 << 30,
            pages_out: 7,
            ..Status::default()
        };
        let value = identity.report(&status, Some(Ending::Signaled(9)), true);
        assert_eq!(value["command"], serde_json::json!(["sort", "-S"]));
        assert_eq!(value["program_pid"], 42);
        assert_eq!(value["limit_bytes"], 1_u64 << 30);
        assert_eq!(value["pages_out"], 7);
        assert_eq!(value["exit_status"], 137);
        assert_eq!(value["exit_signal"], 9);
        assert_eq!(value["ended_full"], true);
        assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));

        let alive = identity.report(&status, None, false);
        assert!(alive.get("exit_status").is_none());
    }
}
