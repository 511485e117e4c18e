//! `vswap park` and `vswap wake`: the run does the work (`run/parking.rs`); this asks, and says what came of it.

use std::process::ExitCode;

use serde_json::Value;

use crate::args::park::{Meant, ParkArgs, WakeArgs};
use crate::control::{self, ParkOrder, Request};
use crate::failure::Failure;
use crate::output::figures::bytes;
use crate::output::print;
use crate::output::progress::shown;
use crate::run_dir::{self, Kind, Living};
use crate::verbs::run::parking::ParkReport;
use crate::verbs::swap::only;

/// Parks a run.
pub fn park(args: &ParkArgs) -> Result<ExitCode, Failure> {
    let run = meant(&args.meant)?;
    let order = ParkOrder {
        until_used: args.until_used,
        needs_area: false,
    };
    let left = || control::ask(&run.path, &Request::Status).ok()?["resident_bytes"].as_u64();
    let answer = shown("parking", left, || ask(&run, &Request::Park(order)))?;
    let report: ParkReport = serde_json::from_value(answer).map_err(Failure::of)?;
    print(&said(run.pid, &report))
}

/// Wakes a run.
pub fn wake(args: &WakeArgs) -> Result<ExitCode, Failure> {
    let run = meant(&args.meant)?;
    let pid = run.pid;
    if ask(&run, &Request::Wake)? == true {
        print(&format!("the run (process {pid}) goes on\n"))
    } else {
        print(&format!(
            "the run (process {pid}) is not parked: there is nothing to wake\n"
        ))
    }
}

fn ask(run: &Living, request: &Request) -> Result<Value, Failure> {
    control::ask(&run.path, request)
        .map_err(|error| Failure::own(format!("the run (process {}): {error}", run.pid)))
}

/// The run with this process, or the one that is named, or the only one.
fn meant(args: &Meant) -> Result<Living, Failure> {
    let mut runs = run_dir::living();
    runs.retain(|one| one.kind == Kind::Run);
    let Some(pid) = args.pid else {
        return only(runs, args.run);
    };
    if let Some(at) = runs.iter().position(|run| run.pid == pid) {
        return Ok(runs.swap_remove(at));
    }
    let has = |run: &Living| {
        let report = control::ask(&run.path, &Request::Status).unwrap_or_default();
        has_process(&report, pid)
    };
    runs.into_iter().find(has).ok_or_else(|| {
        Failure::own(format!(
            "process {pid} is in none of your runs: `vswap status` lists them"
        ))
    })
}

fn has_process(report: &Value, pid: u32) -> bool {
    let mut listed = report["processes"].as_array().into_iter().flatten();
    report["program_pid"] == pid || listed.any(|process| process["pid"] == pid)
}

/// What is to be said of a run that is parked now.
fn said(pid: u32, report: &ParkReport) -> String {
    if report.was_parked {
        return format!(
            "the run (process {pid}) is parked already: `vswap wake --run {pid}` lets it go on\n"
        );
    }
    let own = report
        .left_bytes
        .saturating_sub(report.program_bytes + report.pool_bytes + report.table_bytes);
    let mut text = format!(
        "the run (process {pid}) is parked: {} left of {}, after {:.1} s; `vswap wake --run {pid}` lets it go on\n",
        bytes(report.left_bytes),
        bytes(report.before_bytes),
        report.seconds
    );
    text += &format!(
        "left in memory: {} of its programs, {} of the pool, {} of tables, {} of vswap itself; in swap: {}\n",
        bytes(report.program_bytes),
        bytes(report.pool_bytes),
        bytes(report.table_bytes),
        bytes(own),
        bytes(report.swapped_bytes)
    );
    for remark in remarks(report) {
        text += &remark;
        text.push('\n');
    }
    text
}

/// Why more is left than there could be.
fn remarks(report: &ParkReport) -> Vec<String> {
    let mut remarks = Vec::new();
    if report.pool_bytes > 0 && !report.has_area {
        remarks.push(
            "it has no swap area, so its pages stay compressed in memory: `vswap swapon` adds one"
                .to_owned(),
        );
    } else if report.pool_bytes > 0 {
        remarks.push(
            "not all compressed pages found room in an area: `vswap status --areas` and `--groups` show why".to_owned(),
        );
    }
    if !report.stopped_before.is_empty() {
        remarks.push(format!(
            "stopped before, so their memory stays, and they stay stopped afterwards: processes {}",
            list(&report.stopped_before)
        ));
    }
    if !report.running.is_empty() {
        remarks.push(format!(
            "not stopped yet, because they wait for a disk or for a child of vfork: processes {}",
            list(&report.running)
        ));
    }
    remarks
}

fn list(pids: &[u32]) -> String {
    let words: Vec<String> = pids.iter().map(u32::to_string).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_is_said_by_kind() {
        let report = ParkReport {
            seconds: 1.25,
            before_bytes: 1 << 30,
            left_bytes: 16 << 20,
            program_bytes: 3 << 20,
            table_bytes: 8 << 20,
            has_area: true,
            ..ParkReport::default()
        };
        let text = said(7, &report);
        assert!(text.contains("16 MiB left of 1 GiB"), "{text}");
        assert!(
            text.contains(
                "3 MiB of its programs, 0 B of the pool, 8 MiB of tables, 5 MiB of vswap"
            ),
            "{text}"
        );
        assert_eq!(text.lines().count(), 2, "nothing to remark: {text}");
    }

    #[test]
    fn what_stays_is_explained() {
        let report = ParkReport {
            pool_bytes: 1,
            stopped_before: vec![8, 9],
            running: vec![10],
            ..ParkReport::default()
        };
        let text = said(7, &report);
        assert!(
            text.contains("no swap area") && text.contains("vswap swapon"),
            "{text}"
        );
        assert!(
            text.contains("processes 8, 9") && text.contains("vfork: processes 10"),
            "{text}"
        );
        let again = said(
            7,
            &ParkReport {
                was_parked: true,
                ..report.clone()
            },
        );
        assert!(
            again.contains("parked already") && again.contains("vswap wake --run 7"),
            "{again}"
        );
        let limited = ParkReport {
            has_area: true,
            ..report
        };
        assert!(said(7, &limited).contains("--groups"));
    }

    #[test]
    fn a_run_is_known_by_its_processes() {
        let report = json!({"program_pid": 8, "processes": [{"pid": 8}, {"pid": 9}]});
        assert!(has_process(&report, 8) && has_process(&report, 9) && !has_process(&report, 7));
        assert!(!has_process(&Value::Null, 7));
    }
}
