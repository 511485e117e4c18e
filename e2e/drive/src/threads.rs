//! What every thread waits for when a run makes no progress.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::processes;

/// Between two looks at the same threads.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// Lines of a kernel stack that show where a thread is.
const STACK_LINES: usize = 9;

/// Name and id of a process.
#[must_use]
pub fn name(pid: u32) -> String {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} ({pid})", comm.trim())
}

/// Every thread of all processes below this one, also of those that have left their families: guardians, orphans.
/// Twice, so that what stands still is told from what is slow, with the load of the machine.
#[must_use]
pub fn report_below() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = report(&processes::below(std::process::id()));
    std::thread::sleep(SECOND_LOOK);
    let second = report(&processes::below(std::process::id()));
    format!("load {load}{first}after {SECOND_LOOK:?}:\n{second}")
}

/// Every thread of these processes, with its state, its call and its kernel stack. What has ended is left out.
fn report(pids: &[u32]) -> String {
    let mut text = String::new();
    for pid in pids {
        let _ = writeln!(text, "process {}", name(*pid));
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
    let (call, stack) = (read("syscall"), read("stack"));
    let call: Vec<&str> = call.split_whitespace().take(4).collect();
    let stack: Vec<&str> = stack
        .lines()
        .take(STACK_LINES)
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    let times = read("schedstat");
    let mut times = times.split_whitespace().map(milliseconds);
    format!(
        "  thread {} {}: {}, ran {} ms, was kept waiting for {} ms, wchan {}, call {}, stack {}\n",
        task.file_name().unwrap_or_default().to_string_lossy(),
        field("Name:"),
        field("State:"),
        times.next().unwrap_or(0),
        times.next().unwrap_or(0),
        read("wchan").trim(),
        call.join(" "),
        stack.join(" < "),
    )
}

fn milliseconds(nanoseconds: &str) -> u64 {
    nanoseconds.parse::<u64>().unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_named_and_what_has_ended_is_no_failure() {
        let own = report(&[std::process::id(), u32::MAX]);
        let threads = own.lines().filter(|line| line.starts_with("  thread "));
        assert!(threads.count() >= 2, "{own}");
        assert!(own.contains(&format!("process  ({})\n", u32::MAX)), "{own}");
    }
}
