//! `vswap status`: asks every living run of this user, and the daemon, for figures.

mod rates_tables;
mod watch;

use std::process::ExitCode;

use serde_json::Value;

use crate::args::StatusArgs;
use crate::failure::Failure;
use crate::output::print;
use crate::output::tables::{areas_table, groups_table, pressure_table, status_table};
use crate::watching::reports::reports;

/// Prints the living runs as a table or as a JSON array.
pub fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    if let Some(every) = args.watch {
        return watch::watch(args, every);
    }
    let reports = reports(args.run);
    must_be_there(args, &reports)?;
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

/// Who asks for one run expects that there is one.
fn must_be_there(args: &StatusArgs, reports: &[Value]) -> Result<(), Failure> {
    match args.run {
        Some(pid) if reports.is_empty() => Err(Failure::own(format!(
            "no run of yours has the process id {pid}: `vswap status` lists them"
        ))),
        _ => Ok(()),
    }
}
