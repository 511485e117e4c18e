//! Forks of a process whose agent was attached from outside. It has no hooks, so its forks stop in the filter.
//!
//! What the hooks do is done from here. The fork is announced, or counted where nothing is registered yet. The thread
//! is traced while the kernel makes the child. The child stands still from its birth on, and is made to start the agent
//! of which it has a copy before it runs its first instruction. Then both go on, and nobody traces them.
//!
//! A fork that cannot be traced (a debugger has the process, or the program has asked for an untraced child) runs all
//! the same. Its child is served, but none of its pages move out, and calls that need an agent fail in it.
//!
//! All of it happens on the thread that answers the moves of the space: ptrace knows its tracer by thread.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vswap_sys::inject::{self, Forking, InjectError, Kin, Seen, Tracee};
use vswap_sys::process::task;
use vswap_sys::ring::{AGENT_NAME, RESERVATION_BYTES, origin};
use vswap_sys::{process, random};

use crate::base::page_run::PAGE_BYTES;
use crate::events::fork;
use crate::events::listening::Listening;
use crate::space::Space;
use crate::space::call::Call;
use crate::space::process::Process;

/// How often a fork that is not announced is looked at.
const PACE: Duration = Duration::from_millis(1);
/// How long the child may take to stop, which it does before it runs.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// A fork that waits in the filter.
struct Waiting {
    tid: u32,
    /// Until the thread goes on.
    call: Cell<Option<Call>>,
    /// From then on, if it could be traced.
    forking: OnceCell<Forking>,
    child: Cell<Option<Tracee>>,
}

impl fork::Caller for Waiting {
    fn is_room(&self, forks: usize) -> bool {
        process::could_have_descriptors(forks * fork::DESCRIPTORS)
    }

    fn acknowledge(&self) {
        if let Ok(forking) = Forking::seize(self.tid) {
            let _ = self.forking.set(forking);
        }
        // The kernel makes the call when this is dropped.
        drop(self.call.take());
    }

    fn has_ended(&self, patience: Duration) -> bool {
        let Some(forking) = self.forking.get() else {
            // It waits for us, or nobody can tell what it does.
            let call = self.call.take();
            let waits = call.is_some() && !task::has_ended(self.tid);
            self.call.set(call);
            if waits {
                std::thread::sleep(patience);
            }
            return !waits;
        };
        match forking.wait(patience) {
            Some(Seen::Child(child)) => {
                self.child.set(Some(child));
                true
            }
            Some(Seen::NoChild) => true,
            None => false,
        }
    }
}

/// Let the process fork, and see to it that the child has an agent.
pub fn carry_out(listening: &Arc<Listening>, space: &Arc<Space>, process: &Process, call: Call) {
    let tid = call.notification.tid;
    let Some(entry) = process.entry else { return };
    if space.is_confined() || has_filter_of_its_own(process, tid) {
        // The child's agent might be killed for its first call. Dropping the call has the kernel make it.
        return;
    }
    let Ok(token) = random::word() else { return };
    let waiting = Waiting {
        tid,
        call: Cell::new(Some(call)),
        forking: OnceCell::new(),
        child: Cell::new(None),
    };
    let origin = announce(listening, space, process, token, &waiting);
    let own = process.agent.own_pages;
    let kin = Kin {
        entry,
        base: (own.first + own.pages) * PAGE_BYTES - RESERVATION_BYTES as u64,
        origin,
        fork: if origin == origin::INHERITED {
            token
        } else {
            0
        },
    };
    let child = waiting.child.take();
    let has_agent = child.is_some_and(|child| begin_child(child, &kin).is_ok());
    if !has_agent {
        // Whoever has read the event of the fork may still be applying it.
        space.wait_for_fork();
        for child in listening.forks.candidates(token) {
            child.is_attached_copy.store(true, Ordering::Release);
        }
    }
}

/// Has the fork made, and tells how its child begins.
fn announce(
    listening: &Arc<Listening>,
    space: &Arc<Space>,
    process: &Process,
    token: u64,
    waiting: &Waiting,
) -> usize {
    if let Some(quiet) = process.agent.begin_quiet_fork() {
        fork::Caller::acknowledge(waiting);
        while !fork::Caller::has_ended(waiting, PACE) {}
        drop(quiet);
        return origin::FORKED;
    }
    fork::hold_window(listening, space, token, waiting);
    origin::INHERITED
}

fn begin_child(mut child: Tracee, kin: &Kin) -> Result<(), InjectError> {
    let since = Instant::now();
    loop {
        match child.stop()? {
            Ok(stopped) => return inject::adopt(stopped, kin),
            Err(_) if since.elapsed() > STOP_PATIENCE => return Err(InjectError::Busy),
            Err(running) => child = running,
        }
    }
}

/// Has the thread a seccomp filter that the agent has not?
fn has_filter_of_its_own(process: &Process, tid: u32) -> bool {
    let agent = task::named(process.pid, AGENT_NAME);
    let filters = |tid: u32| task::filters_of(tid.cast_signed()).unwrap_or(0);
    agent.is_none_or(|agent| filters(tid) > filters(agent))
}
