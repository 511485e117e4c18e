//! Processes whose main thread ends before the process does: it calls SYS_exit, not exit_group.
//!
//! A process ends with its last thread, and with the exit code of that thread. The agent's thread must not keep the
//! process alive. The kernel tells nobody that a main thread has ended (since Linux 6.15 a pidfd does not tell it
//! either). But the memory counters become 0, and the governor reads these anyway. If the process goes on after that, a
//! thread here follows the program's threads to the last one. It then tells the agent to end with the same code.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use vswap_sys::eventfd::{PollFd, PollFlags, poll};
use vswap_sys::process::procfs::{self, ProcError};
use vswap_sys::process::{ExitCode, PidFd};
use vswap_sys::ring::op;

use crate::base::threads;
use crate::space::Space;
use crate::space::process::Process;

/// How often to look for threads made since the last look.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Pause before it is tried again to read a code.
const CODE_PACE: Duration = Duration::from_millis(5);

/// The exit code of a process of which only the agent's thread is left. None if there are others.
pub fn code_if_alone(pid: u32, agent_tid: u32) -> Option<ExitCode> {
    let code = procfs::leader_exit_code(pid).ok()??;
    let others = procfs::threads(pid).ok()?;
    let is_alone = others
        .into_iter()
        .all(|tid| tid == pid || procfs::innermost_tid(pid, tid).is_ok_and(|tid| tid == agent_tid));
    is_alone.then_some(code)
}

/// Check whether the main thread of a process has ended.
pub fn look(space: &Arc<Space>) {
    if let Some(process) = space.process.get().filter(|_| !space.is_hung_up()) {
        process.anonymous_bytes();
        if process.leader.has_ended() {
            follow_now(space);
        }
    }
}

/// If the main thread of a process has ended, look after the process until its last thread has ended.
pub fn follow(space: &Arc<Space>) {
    let Some(process) = space.process.get() else {
        return;
    };
    if process.leader.is_to_be_followed() {
        follow_now(space);
    }
}

fn follow_now(space: &Arc<Space>) {
    let Some(process) = space.process.get() else {
        return;
    };
    if !process.leader.begin_following() {
        return;
    }
    let followed = Arc::clone(space);
    let started = threads::try_spawn(&format!("last-{}", space.id), move || {
        if let Some(process) = followed.process.get() {
            run(&followed, process);
        }
    });
    if started.is_err() {
        // The next look tries again.
        process.leader.stop_following();
    }
}

fn run(space: &Space, process: &Process) {
    // The exit code of the thread that ended last. At first that is the main thread, for which nobody has waited.
    let Some(mut code) = main_code(space, process.pid) else {
        return;
    };
    let mut threads: Vec<(u32, PidFd)> = Vec::new();
    while !space.has_ended() && !space.is_hung_up() {
        let Ok(all) = procfs::threads(process.pid) else {
            return;
        };
        let of_program = |tid: &u32| *tid != process.pid && !is_agent(process, *tid);
        let left: Vec<u32> = all.into_iter().filter(of_program).collect();
        if left.is_empty() {
            // No thread is left that could make another.
            let code = last_of(&threads).unwrap_or(code);
            let _ = process.agent.slot().post(op::LEAVE, &[code.into()], &[]);
            return;
        }
        let opened = unknown(left, threads.iter().map(|(tid, _)| *tid))
            .into_iter()
            .filter_map(|tid| Some((tid, PidFd::open_thread(tid).ok()?)));
        threads.extend(opened);
        let mut fds: Vec<PollFd<'_>> = threads
            .iter()
            .map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN))
            .collect();
        // A signal counts as a timeout: look again.
        let _ = poll(&mut fds, Some(LOOK_EVERY));
        let ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ended = ended.into_iter();
        let (gone, still): (Vec<_>, Vec<_>) = threads
            .into_iter()
            .partition(|_| ended.next().unwrap_or(false));
        threads = still;
        code = last_of(&gone).unwrap_or(code);
    }
}

/// Those of `all` that are not among `known`, in the same order.
fn unknown(all: Vec<u32>, known: impl Iterator<Item = u32>) -> Vec<u32> {
    let known: HashSet<u32> = known.collect();
    let is_unknown = |tid: &u32| !known.contains(tid);
    all.into_iter().filter(is_unknown).collect()
}

/// The exit code of a main thread that has ended. None if the process has gone.
fn main_code(space: &Space, pid: u32) -> Option<ExitCode> {
    while !space.has_ended() && !space.is_hung_up() {
        match procfs::leader_exit_code(pid) {
            Ok(Some(code)) => return Some(code),
            Err(ProcError::Gone) => return None,
            // There is no descriptor to read it with. A process must not end with a code that was made up.
            Ok(None) | Err(_) => std::thread::sleep(CODE_PACE),
        }
    }
    None
}

/// Is this the agent's thread? The agent has told its id as its own pid namespace numbers it.
fn is_agent(process: &Process, tid: u32) -> bool {
    procfs::innermost_tid(process.pid, tid)
        .is_ok_and(|tid| tid == process.agent.tid().cast_unsigned())
}

/// The exit code of the last of these ended threads.
fn last_of(gone: &[(u32, PidFd)]) -> Option<ExitCode> {
    gone.iter()
        .filter_map(|(_, pidfd)| pidfd.exit_code())
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_followed_already_are_not_opened_again() {
        assert_eq!(unknown(vec![7, 3, 9, 4], [3, 8, 4].into_iter()), [7, 9]);
        assert_eq!(unknown(vec![7, 3], std::iter::empty()), [7, 3]);
        // Each known thread is looked at once, however many there are.
        let mut looked_at = 0;
        let known = (0..10_000).inspect(|_| looked_at += 1);
        let new = unknown((5_000..15_000).collect(), known);
        assert_eq!((new.len(), looked_at), (5_000, 10_000));
    }
}
