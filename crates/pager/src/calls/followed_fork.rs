//! One fork that stops in the filter and is followed from there on by ptrace.
//!
//! The thread is traced while the kernel makes the child. The child stands still from its birth on, and is made to
//! start the agent of which it has a copy before it runs its first instruction. Then both go on, and nobody traces
//! them. All of it happens on one thread, because ptrace knows its tracer by thread.

use std::cell::{Cell, OnceCell};
use std::time::Duration;

use vswap_sys::inject::{self, Forking, InjectError, Kin, Seen, Stopped, Tracee};
use vswap_sys::process::task;
use vswap_sys::ring::origin;
use vswap_sys::seccomp::{Answer, Notification};

use crate::events::fork;
use crate::space::Space;
use crate::space::call::Call;
use crate::space::process::Process;

/// A fork that waits in the filter.
pub struct Waiting<'a> {
    space: &'a Space,
    /// The thread that forks.
    pub tid: u32,
    /// Until the thread goes on.
    call: Cell<Option<Call>>,
    /// From then on, if it could be traced.
    forking: OnceCell<Forking>,
    child: Cell<Option<Tracee>>,
    /// The thread's next call that makes a process or a thread, if it came before it was known that this one is over.
    next: Cell<Option<Call>>,
}

impl<'a> Waiting<'a> {
    /// The fork that this call asks for.
    pub fn new(space: &'a Space, call: Call) -> Waiting<'a> {
        space.forking.begin(call.notification.tid);
        Waiting {
            space,
            tid: call.notification.tid,
            call: Cell::new(Some(call)),
            forking: OnceCell::new(),
            child: Cell::new(None),
            next: Cell::new(None),
        }
    }

    /// Begins to trace the thread. False if that cannot be.
    pub fn trace(&self) -> bool {
        let Ok(forking) = Forking::seize(self.tid) else {
            return false;
        };
        // The caller may have died, and its id be another thread's, before it was traced.
        if !self.is_waiting() {
            forking.cancel();
            return false;
        }
        self.forking.set(forking).is_ok()
    }

    /// Does the call still wait for its answer? Not if its caller has died.
    pub fn is_waiting(&self) -> bool {
        let call = self.call.take();
        let is_waiting = call.as_ref().is_some_and(Call::is_waiting);
        self.call.set(call);
        is_waiting
    }

    /// The call, until its thread goes on.
    pub fn call(&self) -> Option<Notification> {
        let call = self.call.take();
        let notification = call.as_ref().map(|call| call.notification);
        self.call.set(call);
        notification
    }

    /// The kernel makes the call now.
    pub fn go(&self) {
        if let Some(forking) = self.forking.get() {
            forking.begin();
        }
        drop(self.call.take());
    }

    /// The call fails, and its caller may try again.
    pub fn refuse(&self) {
        const EAGAIN: i32 = 11;
        if let Some(call) = self.call.take() {
            call.answer(Answer::Errno(EAGAIN));
        }
    }
}

impl Waiting<'_> {
    /// The thread's next call that makes a process or a thread, if it has come already.
    pub fn next(self) -> Option<Call> {
        self.finish();
        self.next.take()
    }

    /// The fork is over: whatever the thread does from now on is something else.
    fn finish(&self) {
        if let Some(next) = self.space.forking.end() {
            self.next.set(Some(next));
        }
    }

    fn look(&self, patience: Duration) -> bool {
        let Some(forking) = self.forking.get() else {
            // It waits for us, or nobody can tell what it does.
            let waits = self.call().is_some() && !task::has_ended(self.tid);
            if waits {
                std::thread::sleep(patience);
            }
            return !waits;
        };
        // The kernel has begun it anew: nothing has happened yet, and it goes on like the first time.
        if let Some(again) = self.space.forking.again() {
            forking.begin();
            drop(again);
        }
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

impl fork::Caller for Waiting<'_> {
    fn is_room(&self, forks: usize) -> bool {
        fork::has_descriptors(forks)
    }

    fn acknowledge(&self) {
        self.trace();
        self.go();
    }

    fn has_ended(&self, patience: Duration) -> bool {
        let has_ended = self.look(patience);
        if has_ended {
            self.finish();
        }
        has_ended
    }
}

/// Why a child has no agent.
#[derive(Debug, thiserror::Error)]
pub enum NotBegun {
    /// It could not be made to start it.
    #[error(transparent)]
    Injecting(#[from] InjectError),
    /// The caller could not prepare it. It was killed.
    #[error("{0}")]
    Preparing(String),
}

/// What the child of a fork of this process is told.
pub fn kin(process: &Process, origin: usize, fork: u64) -> Kin {
    Kin {
        entry: process.entry.address,
        stack: process.entry.stack_end,
        origin,
        fork,
    }
}

/// Has the child start its agent, and lets it go on. False if there is no child. `prepare` is called while the child
/// stands still.
///
/// # Errors
/// What has failed. If that was `prepare`, or if the child has holes (COPIED), it is killed.
pub fn begin_child(
    waiting: &Waiting<'_>,
    kin: &Kin,
    prepare: impl FnOnce(&mut Stopped) -> Result<(), String>,
) -> Result<bool, NotBegun> {
    let Some(mut child) = waiting.child.take() else {
        return Ok(false);
    };
    if kin.origin == origin::COPIED {
        child.hold();
    }
    // It stops before it runs, as soon as it gets a processor, and would then stand still for ever if nobody waited.
    let mut stopped = loop {
        match child.stop()? {
            Ok(stopped) => break stopped,
            Err(not_yet) => child = not_yet,
        }
    };
    if let Err(why) = prepare(&mut stopped) {
        stopped.end();
        return Err(NotBegun::Preparing(why));
    }
    inject::adopt(stopped, kin)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;
    use std::sync::Arc;

    use vswap_sys::seccomp::Listener;

    use super::*;
    use crate::simulator::bare_space;

    #[test]
    fn nobody_is_traced_who_has_got_the_id_of_a_caller_that_died() {
        let mut other = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let space = bare_space(7);
        // No call waits at any other kind of file.
        let file = File::open("/dev/null").expect("a file");
        let listener = Arc::new(Listener::from_fd(file.into()));
        let notification = Notification {
            id: 1,
            tid: other.id(),
            nr: 0,
            args: [0; 6],
        };
        let waiting = Waiting::new(&space, Call::new(listener, notification));
        assert!(!waiting.is_waiting() && !waiting.trace());
        assert_eq!(task::tracer_of(other.id()), None);
        assert!(!task::has_ended(other.id()));
        other.kill().expect("it runs");
        other.wait().expect("it is ours");
    }
}
