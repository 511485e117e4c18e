//! A thread that is about to fork, watched until its child has been made and stands still.
//!
//! The thread waits in a system call, so it cannot be stopped yet, but it can be traced. The kernel then stops it when
//! it has made a child, and the child before its first instruction. Whoever traces lets the call begin, and asks from
//! time to time what has become of it.

use std::cell::Cell;
use std::ptr;
use std::time::{Duration, Instant};

use super::InjectError;
use super::tracee::{self, Tracee, failed, has_ended, registers, request, seize, signal_of_stop};

const OPTIONS: usize = tracee::OPTIONS
    | (libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE) as usize;
/// How long a fork may take until it is looked whether it has failed. The thread stops when it leaves the call then.
/// One that has not begun yet is made again after that stop.
const FORK_PATIENCE: Duration = Duration::from_millis(100);
const PACE: Duration = Duration::from_micros(50);

/// A thread that is traced across a fork. It is let go when it has forked, or not, and with the tracing thread at the
/// latest.
#[derive(Debug)]
pub struct Forking {
    tid: i32,
    began: Cell<Instant>,
    is_interrupted: Cell<bool>,
}

/// What has become of a fork.
#[derive(Debug)]
pub enum Seen {
    /// It has made this child, which stands before its first instruction, or will at once.
    Child(Tracee),
    /// The call failed, or will be made again after a signal, or the kernel was asked not to have the child traced.
    NoChild,
}

impl Forking {
    /// Begins to trace a thread.
    ///
    /// # Errors
    /// As for [`Tracee::seize`].
    pub fn seize(tid: u32) -> Result<Forking, InjectError> {
        let tid = i32::try_from(tid).map_err(|_| InjectError::Gone)?;
        seize(tid, OPTIONS)?;
        Ok(Forking {
            tid,
            began: Cell::new(Instant::now()),
            is_interrupted: Cell::new(false),
        })
    }

    /// The call is about to begin.
    pub fn begin(&self) {
        self.began.set(Instant::now());
    }

    /// Waits up to `patience` until the fork is over. The thread goes on then. None if it is not over.
    pub fn wait(&self, patience: Duration) -> Option<Seen> {
        let since = Instant::now();
        loop {
            if registers(self.tid).is_ok() {
                return Some(self.let_go());
            }
            if has_ended(self.tid) {
                return Some(Seen::NoChild);
            }
            if self.began.get().elapsed() > FORK_PATIENCE && !self.is_interrupted.replace(true) {
                // It may have gone.
                let _ = request(libc::PTRACE_INTERRUPT, self.tid, 0, 0);
            }
            if since.elapsed() >= patience {
                return None;
            }
            std::thread::sleep(PACE);
        }
    }

    /// It has stopped: finds out why and lets it go on.
    fn let_go(&self) -> Seen {
        tracee::forget_stop(self.tid);
        let child = self.child().unwrap_or(None);
        // A signal that it was about to get is not to be lost.
        let signal = signal_of_stop(self.tid).and_then(|signal| usize::try_from(signal).ok());
        let _ = tracee::detach(self.tid, signal.unwrap_or(0));
        child.map_or(Seen::NoChild, |tid| Seen::Child(Tracee::born(tid)))
    }

    /// The child that it has made, if it has stopped for that.
    fn child(&self) -> Result<Option<i32>, InjectError> {
        // SAFETY: a record of integers and pointers that are not used.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let place = ptr::from_mut(&mut info).expose_provenance();
        request(libc::PTRACE_GETSIGINFO, self.tid, 0, place).map_err(failed)?;
        let event = info.si_code >> 8;
        let is_fork = [
            libc::PTRACE_EVENT_FORK,
            libc::PTRACE_EVENT_VFORK,
            libc::PTRACE_EVENT_CLONE,
        ]
        .contains(&event);
        if info.si_signo != libc::SIGTRAP || !is_fork {
            return Ok(None);
        }
        let mut child: libc::c_ulong = 0;
        let place = ptr::from_mut(&mut child).expose_provenance();
        request(libc::PTRACE_GETEVENTMSG, self.tid, 0, place).map_err(failed)?;
        Ok(i32::try_from(child).ok())
    }
}
