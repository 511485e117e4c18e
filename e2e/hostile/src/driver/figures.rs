//! What a process takes: descriptors, threads, memory, and the processor time of each thread.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How names of threads begin that serve one program or one connection. All others come with the first need and stay.
const SERVING: [&str; 9] = [
    "evict-",
    "calls-",
    "moves-",
    "fork-",
    "join-",
    "filter-",
    "follow-",
    "syscalls",
    "postponed",
];
/// The kernel's workers for io_uring are threads too.
const WORKER: &str = "iou-wrk";

/// What a process takes at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// Those of them that serve one program or one connection.
    pub(crate) serving: usize,
    pub(crate) kib: u64,
}

impl Figures {
    /// None of a process that has ended.
    pub(crate) fn of(pid: u32) -> Option<Figures> {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        let names = names(pid);
        let serves = |name: &&String| SERVING.iter().any(|start| name.starts_with(start));
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(Figures {
            descriptors,
            threads: names.len(),
            serving: names.iter().filter(serves).count(),
            kib: line.split_whitespace().next()?.parse().ok()?,
        })
    }

    /// The larger of each.
    pub(crate) fn max(self, other: Figures) -> Figures {
        Figures {
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            serving: self.serving.max(other.serving),
            kib: self.kib.max(other.kib),
        }
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} descriptors, {} threads ({} that serve programs), {} KiB",
            self.descriptors, self.threads, self.serving, self.kib
        )
    }
}

/// The names of a process's own threads, in order.
pub(crate) fn names(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let mut names: Vec<String> = tasks
        .into_iter()
        .flatten()
        .flatten()
        .map(|task| name(&task.path()))
        .filter(|name| !name.starts_with(WORKER))
        .collect();
    names.sort();
    names
}

/// Names of the threads of a process, and the processor time that each has taken.
pub(crate) fn times(pid: u32) -> HashMap<u32, (String, Duration)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| {
            let tid = task.file_name().to_str()?.parse().ok()?;
            Some((tid, (name(&task.path()), time(&task.path())?)))
        })
        .collect()
}

fn name(task: &Path) -> String {
    let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
    name.trim().to_owned()
}

fn time(task: &Path) -> Option<Duration> {
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// How the descriptors of a process are spread over kinds, for people.
pub(crate) fn kinds_of_descriptors(pid: u32) -> String {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let fds = fs::read_dir(format!("/proc/{pid}/fd"));
    for fd in fds.into_iter().flatten().flatten() {
        let target = fs::read_link(fd.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        // Without numbers of inodes and processes.
        let kind: String = target
            .chars()
            .filter(|letter| !letter.is_ascii_digit())
            .collect();
        *counts.entry(kind).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown = counts
        .iter()
        .take(8)
        .map(|(kind, count)| format!("{count} {kind}"));
    shown.collect::<Vec<_>>().join(", ")
}
