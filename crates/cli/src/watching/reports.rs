//! Asks every living run of this user, and the daemon, for its report.

use serde_json::{Value, json};
use vswap_sys::process::procfs;

use crate::control::{self, Request};
use crate::output::SCHEMA;
use crate::run_dir::{self, Living};

/// The reports of the living runs and the daemon, by process id; or of one of them.
pub fn reports(only: Option<u32>) -> Vec<Value> {
    let mut reports: Vec<Value> = run_dir::living()
        .into_iter()
        .filter(|living| only.is_none_or(|pid| living.pid == pid))
        .map(|Living { pid, path, .. }| {
            control::ask(&path, &Request::Status)
                .unwrap_or_else(|error| silent(pid, &error.to_string()))
        })
        .collect();
    reports.sort_by_key(|report| report["pid"].as_u64());
    reports
}

/// A run that is starting, ending or stopped by job control does not answer; it is alive all the same.
fn silent(pid: u32, error: &str) -> Value {
    let is_stopped = procfs::stat(pid).is_ok_and(|stat| stat.stopped());
    let state = is_stopped.then_some("stopped");
    json!({"schema": SCHEMA, "pid": pid, "state": state, "error": error})
}
