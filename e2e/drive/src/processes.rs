//! Living processes below the driver, and how they are ended. The driver is the reaper of orphans.
//!
//! Unsafe is needed here because this crate calls libc directly.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// A process that is left alone: the daemon of all rounds. 0 if there is none.
static SPARED: AtomicU32 = AtomicU32::new(0);

/// Leaves this process alone from now on.
pub fn spare(pid: u32) {
    SPARED.store(pid, Ordering::Relaxed);
}

/// Rounds of killing. A killed process may have started another one just before.
const KILL_ROUNDS: u32 = 20;
const KILL_PACE: Duration = Duration::from_millis(20);

/// Makes orphans come to this process.
pub fn become_reaper() {
    // SAFETY: only changes who reaps, and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Parent of a living process.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
    let state = rest.next()?;
    let parent = rest.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(parent)
}

/// Living processes below `pid`, parents first.
#[must_use]
pub fn below(pid: u32) -> Vec<u32> {
    let all: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != SPARED.load(Ordering::Relaxed))
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let above = found[next];
        found.extend(
            all.iter()
                .filter(|(_, parent)| *parent == above)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found.split_off(1)
}

/// Sends a signal to a process below this one.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: the process descends from this one. If it has gone there is an error, which does not matter.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

/// Does the process block this signal? Its own way of ending does not begin before.
#[must_use]
pub fn blocks(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let blocked = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    blocked.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Ends everything below `pid`.
pub fn kill_below(pid: u32) {
    for _ in 0..KILL_ROUNDS {
        let living = below(pid);
        if living.is_empty() {
            return;
        }
        for pid in living {
            signal(pid, libc::SIGKILL);
        }
        thread::sleep(KILL_PACE);
        reap();
    }
}

/// Reaps orphans that have ended.
pub fn reap() {
    let mut status = 0;
    // SAFETY: `status` is a valid place. It reaps ended children; those of `Child` were waited for before.
    while unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } > 0 {}
}

/// If the driver is killed, nothing must go on running.
pub fn die_with_parent(command: &mut Command) {
    let ask = || {
        // SAFETY: one system call that touches no memory.
        let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        if result == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: between fork and exec the closure makes one system call and neither allocates nor takes a lock. Only
    // `pre_exec`, which is unsafe, runs code in the child.
    unsafe { command.pre_exec(ask) };
}
