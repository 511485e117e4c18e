//! Reports what every thread waits for when a run makes no progress.

use std::fs;
use std::path::Path;

use crate::driver::family;

/// Lines of a kernel stack that show where a thread is.
const STACK_LINES: usize = 9;

/// Name and id of a process.
pub(crate) fn name(pid: u32) -> String {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} ({pid})", comm.trim())
}

/// Every thread of every process below the driver.
pub(crate) fn report() -> String {
    let mut text = String::new();
    for pid in family::below() {
        text.push_str(&format!("process {}\n", name(pid)));
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            text.push_str(&thread(&task.path()));
        }
    }
    text
}

fn thread(task: &Path) -> String {
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
        .filter_map(|line| line.split_whitespace().nth(1)?.split('+').next())
        .collect();
    format!(
        "  {} {}: {}, {} < {}\n",
        task.file_name().unwrap_or_default().to_string_lossy(),
        field("Name:"),
        field("State:"),
        read("wchan").trim(),
        stack.join(" < "),
    )
}
