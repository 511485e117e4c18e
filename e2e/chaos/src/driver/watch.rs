//! Reports what every thread waits for when a run makes no progress.

use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::Ordering;

use crate::driver::processes;
use crate::plan::Plan;
use crate::program::log::{BEGUN, Log};

/// Lines of a kernel stack that show where a thread is.
const STACK_LINES: usize = 4;

/// Name and pid of a process.
pub(crate) fn name(pid: u32) -> String {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} ({pid})", comm.trim())
}

/// The steps under way, and every thread of every process of the run.
pub(crate) fn report(plan: &Plan, log: &Log) -> String {
    let mut text = String::from("steps under way:\n");
    for (line, record) in plan.lines.iter().zip(log.records()) {
        if record.state.load(Ordering::SeqCst) == BEGUN {
            let _ = writeln!(text, "  actor {} {:?}", line.actor, line.step);
        }
    }
    // Also those that have left it: a guardian, orphans.
    for pid in processes::below(std::process::id()) {
        let _ = writeln!(text, "process {}", name(pid));
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            text.push_str(&thread(&task.path()));
        }
    }
    text
}

fn thread(task: &std::path::Path) -> String {
    let read = |file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
    let status = read("status");
    let field = |name: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or("").trim().to_owned()
    };
    let stack = read("stack");
    let stack: Vec<&str> = stack
        .lines()
        .take(STACK_LINES)
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    let id = task.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "  thread {id} {}: {}, wchan {}, call {}, stack {}\n",
        field("Name:"),
        field("State:"),
        read("wchan").trim(),
        read("syscall")
            .split_whitespace()
            .take(4)
            .collect::<Vec<_>>()
            .join(" "),
        stack.join(" < "),
    )
}
