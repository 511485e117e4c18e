//! `vswap status`: asks every living run of this user, and the daemon, for figures.

use std::process::ExitCode;

use serde_json::{Value, json};
use vswap_sys::process::procfs;

use crate::args::StatusArgs;
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::output::print;
use crate::output::tables::{areas_table, groups_table, pressure_table, status_table};
use crate::run_dir::{self, Living};

/// Prints the living runs as a table or as a JSON array.
pub fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let reports = reports();
    if args.json {
        print(&format!("{:#}\n", Value::Array(reports)))
    } else if reports.is_empty() {
        print("no runs\n")
    } else if args.areas {
        print(&areas_table(&reports))
    } else if args.pressure {
        print(&pressure_table(&reports))
    } else if args.groups {
        print(&groups_table(&reports))
    } else {
        print(&status_table(&reports))
    }
}

/// The reports of the living runs and the daemon, by process id.
fn reports() -> Vec<Value> {
    let mut reports: Vec<Value> = run_dir::living()
        .into_iter()
        .map(|Living { pid, path, .. }| {
            // A run that is starting, ending or stopped by job control does not answer, but it is alive.
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
    json!({"pid": pid, "state": state, "error": error})
}
