//! Processes whose main thread ends before the process does: with SYS_exit, not exit_group.
//!
//! A process ends with its last thread, and its status is what that one exited with. The agent's thread must not be the
//! one that keeps it alive. The kernel tells nobody of the end of a main thread (a pidfd says nothing of it since Linux
//! 6.15), but its memory counters become 0, which the governor reads anyway. Where the process goes on after that, a
//! thread here follows the program's threads to the last one, and tells the agent to end as that did.

use std::sync::Arc;
use std::time::Duration;

use vswap_sys::eventfd::{PollFd, PollFlags, poll};
use vswap_sys::process::PidFd;
use vswap_sys::process::procfs;
use vswap_sys::ring::op;

use crate::base::threads;
use crate::space::Space;
use crate::space::process::Process;

/// How often threads are looked for that were made since the last look.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The status that a process ends with if its agent's thread is all that is left of it.
pub fn status_if_alone(pid: u32, agent_tid: u32) -> Option<u8> {
    let status = procfs::leader_exit_status(pid).ok()??;
    let others = procfs::threads(pid).ok()?;
    let is_alone = others
        .into_iter()
        .all(|tid| tid == pid || procfs::innermost_tid(pid, tid).is_ok_and(|tid| tid == agent_tid));
    is_alone.then_some(status)
}

/// Look whether the main thread of a process has ended: for a server that has nothing else to do, while the governor
/// may sleep for seconds.
pub fn look(space: &Arc<Space>) {
    if let Some(process) = space.process.get() {
        process.anonymous_bytes();
        if process.leader.has_ended() {
            follow_now(space);
        }
    }
}

/// If the main thread of a process has ended, look after the process until its last thread has.
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
    // What the last thread to end has exited with; at first the main thread, whom nobody has waited for.
    let mut status = procfs::leader_exit_status(process.pid)
        .ok()
        .flatten()
        .unwrap_or(0);
    let mut threads: Vec<(u32, PidFd)> = Vec::new();
    while !space.has_ended() && !space.is_hung_up() {
        let Ok(all) = procfs::threads(process.pid) else {
            return;
        };
        let of_program = |tid: &u32| *tid != process.pid && !is_agent(process, *tid);
        let unknown = |tid: &u32| threads.iter().all(|(known, _)| known != tid);
        let left = all.iter().copied().filter(of_program);
        let new: Vec<u32> = left.clone().filter(unknown).collect();
        if left.count() == 0 {
            // None is left that could make another.
            let status = last_of(&threads).unwrap_or(status);
            let _ = process
                .agent
                .slot()
                .post(op::LEAVE, &[u64::from(status)], &[]);
            return;
        }
        let opened = new
            .into_iter()
            .filter_map(|tid| Some((tid, PidFd::open_thread(tid).ok()?)));
        threads.extend(opened);
        let mut fds: Vec<PollFd<'_>> = threads
            .iter()
            .map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN))
            .collect();
        // A signal is as good as the time: look again.
        let _ = poll(&mut fds, Some(LOOK_EVERY));
        let ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ended = ended.into_iter();
        let (gone, still): (Vec<_>, Vec<_>) = threads
            .into_iter()
            .partition(|_| ended.next().unwrap_or(false));
        threads = still;
        status = last_of(&gone).unwrap_or(status);
    }
}

/// Is it the agent's thread? It has told the id that it has in its own namespace.
fn is_agent(process: &Process, tid: u32) -> bool {
    procfs::innermost_tid(process.pid, tid)
        .is_ok_and(|tid| tid == process.agent.tid().cast_unsigned())
}

/// The status of the last of some threads that have ended.
fn last_of(gone: &[(u32, PidFd)]) -> Option<u8> {
    gone.iter()
        .filter_map(|(_, pidfd)| pidfd.exit_status())
        .next_back()
}
