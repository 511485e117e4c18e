//! Forks that stop in the filter because no hook announces them: in a process whose agent was attached from outside,
//! and in every process where the kernel tells of no forks.
//!
//! What the hooks do is done from here. A fork is counted where nothing is registered yet, else announced, or carried
//! out without fork events (`copied_fork`). It is followed (`followed_fork`), so that the child has an agent before it
//! runs.
//!
//! A fork that cannot be traced (a debugger has the process, or the program has asked for an untraced child) runs all
//! the same where the kernel tells of it. So does one that had begun before the filter was there. Its child is served,
//! but none of its pages move out, and it is let go of when it makes a call that needs an agent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vswap_sys::inject::{InjectError, Kin};
use vswap_sys::process::memory_file::MemoryFile;
use vswap_sys::process::{procfs, task};
use vswap_sys::random;
use vswap_sys::ring::{AGENT_NAME, origin};

use crate::calls::followed_fork::{NotBegun, Waiting, begin_child, kin};
use crate::calls::{confine, copied_fork};
use crate::events::fork::{self, Caller as _};
use crate::events::listening::Listening;
use crate::space::Space;
use crate::space::call::Call;
use crate::space::process::Process;

/// How often a fork that is not announced is looked at.
const PACE: Duration = Duration::from_millis(1);
/// How long it is looked for the child of a fork that nobody can follow.
const UNSEEN_PATIENCE: Duration = Duration::from_millis(100);

/// Let the process fork, and see to it that the child has an agent. Returns a call that the thread has made since then,
/// and that nobody has looked at.
pub fn carry_out(
    listening: &Arc<Listening>,
    space: &Arc<Space>,
    process: &Process,
    call: Call,
) -> Option<Call> {
    // Nothing is registered, or the caller is the next program image, whose agent has not said hello. Dropping the call
    // has the kernel make it.
    if space.runs_calls_as_they_are() || space.uffd.is_gone() {
        return None;
    }
    let waiting = Waiting::new(space, call);
    follow(listening, space, process, &waiting);
    waiting.next()
}

fn follow(
    listening: &Arc<Listening>,
    space: &Arc<Space>,
    process: &Process,
    waiting: &Waiting<'_>,
) {
    let obstacle = obstacle(process, waiting.tid);
    if let Some(quiet) = process.agent.begin_quiet_fork() {
        let is_traced = obstacle.is_none() && waiting.trace();
        let children = procfs::children_listed(process.pid).unwrap_or_default();
        waiting.go();
        if is_traced {
            while !waiting.has_ended(PACE) {}
        } else if process.is_followed() {
            await_child(process.pid, &children);
        }
        drop(quiet);
        begin(
            listening,
            process,
            waiting,
            &kin(process, origin::FORKED, 0),
        );
    } else if process.is_followed() {
        copied_fork::carry_out(listening, space, process, waiting, obstacle);
    } else if obstacle.is_none() {
        announce(listening, space, process, waiting);
    }
}

/// The fork is announced from here, and the kernel tells of it.
fn announce(
    listening: &Arc<Listening>,
    space: &Arc<Space>,
    process: &Process,
    waiting: &Waiting<'_>,
) {
    let Ok(token) = random::word() else { return };
    fork::hold_window(listening, space, token, waiting);
    // Whoever has read the event of the fork may still be applying it.
    space.wait_for_fork();
    let children = listening.forks.candidates(token);
    // Without an event nothing was registered: the process was let go of before it forked. Nobody waits for the child
    // then, so it must not rely on anybody.
    let kin = if children.is_empty() {
        kin(process, origin::FORKED, 0)
    } else {
        kin(process, origin::INHERITED, token)
    };
    if !begin(listening, process, waiting, &kin) {
        for child in children {
            child.is_bare.store(true, Ordering::Release);
        }
    }
}

/// Has the child start its agent. False if it has none.
fn begin(listening: &Listening, process: &Process, waiting: &Waiting<'_>, kin: &Kin) -> bool {
    match begin_child(waiting, kin, |_| Ok(())) {
        Ok(has_begun) => has_begun,
        Err(error) => {
            // Otherwise it runs on, or has ended by itself.
            let was_killed = matches!(error, NotBegun::Injecting(InjectError::GivenUp(_)));
            if was_killed && !listening.serving.quiet {
                tracing::warn!(
                    "a forked child of process {} got no agent: {error}",
                    process.pid
                );
            }
            false
        }
    }
}

/// Waits until a fork that cannot be traced has made its child, or for a while: nothing may move out before.
fn await_child(pid: u32, before: &[u32]) {
    let since = Instant::now();
    let is_over = || procfs::children_listed(pid).is_ok_and(|children| children != before);
    while !is_over() && since.elapsed() < UNSEEN_PATIENCE {
        std::thread::sleep(PACE);
    }
}

/// What keeps the child of a thread from having an agent.
fn obstacle(process: &Process, tid: u32) -> Option<&'static str> {
    // The agent of a child with more filters might be killed for its first call.
    if has_filter_of_its_own(process, tid) {
        return Some(confine::FILTER_OF_A_FORK);
    }
    // The same right as to trace it.
    let is_forbidden = MemoryFile::open(tid)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    is_forbidden.then_some(confine::UNTRACEABLE_FORK)
}

/// Has the thread a seccomp filter that the agent has not?
fn has_filter_of_its_own(process: &Process, tid: u32) -> bool {
    let agent = task::named(process.pid, AGENT_NAME);
    let filters = |tid: u32| task::filters_of(tid.cast_signed()).unwrap_or(0);
    agent.is_none_or(|agent| filters(tid) > filters(agent))
}
