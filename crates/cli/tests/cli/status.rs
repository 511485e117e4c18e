//! `vswap status` of a living run.

use serde_json::Value;

use crate::{Scratch, eventually, kill, output, text, wait};

/// The report of one run. Other runs of the same user may be alive beside it.
fn report(scratch: &Scratch, pid: u32) -> Option<Value> {
    let output = output(scratch.vswap().args(["status", "--json"]));
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a JSON array");
    all.into_iter().find(|report| report["pid"] == pid)
}

#[test]
fn a_living_run_is_listed_and_a_dead_one_is_not() {
    let scratch = Scratch::new();
    let mut run = scratch.sleeper();
    let pid = run.id();
    let found = eventually("an answer", || {
        report(&scratch, pid).filter(|report| report["command"].is_array())
    });
    assert_eq!(found["command"], serde_json::json!(["sleep", "1000"]));
    assert_eq!(found["limit_bytes"], 256 << 20);
    // What the kernel shows for its virtual area: slots in use, and pages that got none.
    assert_eq!(
        (&found["swapped_pages"], &found["alloc_reject"]),
        (&0.into(), &0.into())
    );
    assert!(found["program_pid"].as_u64().expect("pid") > u64::from(pid));
    assert!(found.get("exit_status").is_none());

    let table = text(&output(scratch.vswap().arg("status")).stdout);
    let mut lines = table.lines();
    let heading = lines.next().expect("heading");
    for column in [
        "PID", "COMMAND", "STATE", "LIMIT", "TOTAL", "RESIDENT", "POOL", "SWAPPED", "OUT", "IN",
        "P99",
    ] {
        assert!(heading.contains(column), "{heading}");
    }
    let row = lines
        .find(|line| line.trim_start().starts_with(&format!("{pid} ")))
        .expect("a row");
    assert!(
        row.contains("sleep 1000") && row.contains("running") && row.contains("256 MiB"),
        "{row}"
    );

    kill("TERM", pid);
    wait(&mut run);
    assert_eq!(report(&scratch, pid), None);
}

#[test]
fn a_stopped_run_is_listed_without_figures() {
    let scratch = Scratch::new();
    let mut run = scratch.sleeper();
    let pid = run.id();
    eventually("an answer", || {
        report(&scratch, pid)?.get("command").cloned()
    });
    kill("STOP", pid);
    // Its threads stop one after the other.
    eventually("no answer from a run that is alive", || {
        let found = report(&scratch, pid).expect("it is alive");
        found["error"].is_string().then_some(())
    });
    let table = text(&output(scratch.vswap().arg("status")).stdout);
    let row = table
        .lines()
        .find(|line| line.trim_start().starts_with(&format!("{pid} ")));
    let row = row.expect("a row");
    assert!(row.contains("stopped") && row.contains('-'), "{table}");
    kill("CONT", pid);
    kill("TERM", pid);
    wait(&mut run);
}
