//! Living processes below the driver, and how they are ended. The driver is the reaper of orphans.

use std::fs;
use std::time::Duration;

use crate::process;

/// Rounds of killing. A killed process may have started another one just before.
const KILL_ROUNDS: u32 = 20;
const KILL_PACE: Duration = Duration::from_millis(20);

/// Parent of a living process.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
    let state = rest.next()?;
    let parent = rest.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(parent)
}

/// Living processes below this one, parents first.
pub(crate) fn below() -> Vec<u32> {
    let all: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut found = vec![std::process::id()];
    let mut next = 0;
    while next < found.len() {
        let above = found[next];
        let children = all.iter().filter(|(_, parent)| *parent == above);
        found.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// Ends everything below this process.
pub(crate) fn kill_below() {
    for _ in 0..KILL_ROUNDS {
        let living = below();
        if living.is_empty() {
            return;
        }
        for pid in living {
            process::signal(pid as i32, libc::SIGKILL);
        }
        std::thread::sleep(KILL_PACE);
        process::reap();
    }
}
