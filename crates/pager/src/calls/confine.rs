//! Processes that vswap lets go of, or never manages.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::events::regions;
use crate::fault::serving::Serving;
use crate::space::Space;
use crate::space::process::Process;

/// Why such a process is let go of: its agent may be killed for whatever it does next.
pub const CONFINED: &str = "its agent is confined";
/// What confines the agent.
pub const FILTER_OF_ALL: &str =
    "the program has put a seccomp filter of its own on all its threads";
/// What confines the agents of its children.
pub const FILTER_OF_A_FORK: &str = "the program forks under a seccomp filter of its own";
/// What keeps agents out of its children.
pub const UNTRACEABLE_FORK: &str =
    "the program forks after it has forbidden to look into it (PR_SET_DUMPABLE)";

/// The program is about to install a seccomp filter on all its threads, the agent's included. The agent may then be
/// killed for what it does. So let go of the process. The program waits meanwhile. `what` says to the user what
/// confines it.
pub fn confine(serving: &Serving, space: &Arc<Space>, process: &Process, what: &str) {
    if let_go(serving, space, process) {
        refuse(serving.quiet, space, CONFINED, &what);
    }
}

/// Bring everything back, whatever the limit says, and ask nothing of the agent any more. False if somebody has begun
/// that already. Waits for the end of a fork, and for a stopped process whose agent has been asked for something. Then
/// it waits for nothing of the program: calls that come meanwhile wait for this.
pub fn let_go(serving: &Serving, space: &Arc<Space>, process: &Process) -> bool {
    // With the slot held no window and no fork is under way, and no other begins.
    let slot = process.agent.slot();
    if space.confined.swap(true, Ordering::AcqRel) {
        return false;
    }
    regions::let_go_of_all(serving, space, &slot);
    never_ask(space, process);
    true
}

/// The same for a forked child that has no agent. Returns when it is done, whoever does it.
pub fn let_go_of_copy(serving: &Serving, space: &Arc<Space>) {
    if space.confined.swap(true, Ordering::AcqRel) {
        space.runs_calls_as_they_are();
        return;
    }
    regions::let_go_of_copy(serving, space);
    space.let_go.store(true, Ordering::Release);
}

/// Nothing is registered, and nothing will be: the agent has nothing to do any more.
pub fn never_ask(space: &Space, process: &Process) {
    process.agent.confine();
    space.confined.store(true, Ordering::Release);
    space.let_go.store(true, Ordering::Release);
}

/// The process stays unmanaged, and the user is told once. One reason: without the filter an mremap could lose pages.
pub fn refuse(quiet: bool, space: &Space, why: &str, error: &dyn Display) -> bool {
    if !space.refused.swap(true, Ordering::Relaxed) && !quiet {
        let pid = space.pid().unwrap_or(0);
        tracing::warn!("process {pid} cannot be managed: {why} ({error}); it runs on without swap");
    }
    false
}
