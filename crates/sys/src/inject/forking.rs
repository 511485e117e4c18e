//! A thread that is about to fork, watched until its child has been made and stands still.
//!
//! The thread waits in a system call, so it cannot be stopped yet, but it can be traced. The kernel then stops it when
//! it has made a child, and the child before its first instruction. Whoever traces lets the call begin, and asks from
//! time to time what has become of it.
//!
//! The kernel begins no fork while a signal is pending: it lets the handler run and has the call made again. Natively
//! the second call begins a moment later. Here it goes through the filter once more, and a timer that is faster than
//! that would keep the thread from ever forking. So from the first such signal on the thread's signals are blocked.
//! They come as soon as the fork is over, for the child none of them.

use std::cell::Cell;
use std::ptr;
use std::time::{Duration, Instant};

use super::InjectError;
use super::registers::Registers;
use super::request::{failed, request};
use super::tracee::{self, Stop, Tracee, has_ended, seize, signal_of_stop};

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
    blocked: Cell<Option<Blocked>>,
}

/// The thread's signals are blocked.
#[derive(Debug, Clone, Copy)]
struct Blocked {
    /// Its signal mask before.
    mask: u64,
    /// The thread has begun the call anew since then.
    is_in_call: bool,
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
            blocked: Cell::new(None),
        })
    }

    /// Lets the thread go, because it is not the one that was meant. It stops for a moment, and waits until it can.
    pub fn cancel(self) {
        // It may have gone.
        let _ = request(libc::PTRACE_INTERRUPT, self.tid, 0, 0);
        while Registers::read(self.tid).is_err() {
            if has_ended(self.tid) {
                return;
            }
            std::thread::sleep(PACE);
        }
        tracee::forget_stop(self.tid);
        let Seen::Child(mut child) = self.let_go() else {
            return;
        };
        // It has forked meanwhile.
        loop {
            match child.stop() {
                Ok(Err(running)) => child = running,
                Ok(Ok(stopped)) => break drop(stopped.release()),
                Err(_) => break,
            }
        }
    }

    /// The call is about to begin.
    pub fn begin(&self) {
        self.began.set(Instant::now());
    }

    /// Waits up to `patience` until the fork is over. The thread goes on then. None if it is not over.
    pub fn wait(&self, patience: Duration) -> Option<Seen> {
        let since = Instant::now();
        loop {
            if let Ok(registers) = Registers::read(self.tid) {
                tracee::forget_stop(self.tid);
                if !self.has_call_made(&registers) {
                    return Some(self.let_go());
                }
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

    /// It has stopped: if that is because of a signal that keeps the fork from beginning, has the call made without it.
    /// False if it is not to go on with its fork.
    fn has_call_made(&self, registers: &Registers) -> bool {
        let signal = match (tracee::stop_of(self.tid), self.blocked.get()) {
            (Some(Stop::Signal(signal)), None)
                if is_to_be_made_again(registers, self.tid, signal) =>
            {
                if self.block().is_err() {
                    return false;
                }
                // Blocked by now, so the kernel puts it back to those that are pending.
                signal
            }
            // The next call of the thread is this one. From its exit it is let go.
            (Some(Stop::Call), Some(mut blocked)) if !blocked.is_in_call => {
                blocked.is_in_call = true;
                self.blocked.set(Some(blocked));
                0
            }
            _ => return false,
        };
        let signal = usize::try_from(signal).unwrap_or(0);
        request(libc::PTRACE_SYSCALL, self.tid, 0, signal).is_ok()
    }

    fn block(&self) -> Result<(), InjectError> {
        let mask = tracee::signal_mask(self.tid)?;
        let is_in_call = false;
        self.blocked.set(Some(Blocked { mask, is_in_call }));
        tracee::set_signal_mask(self.tid, u64::MAX)
    }

    /// It has stopped: finds out why and lets it go on.
    fn let_go(&self) -> Seen {
        let child = self.child().unwrap_or(None);
        let mask = self.blocked.take().map(|blocked| blocked.mask);
        if let Some(mask) = mask {
            // It may have gone.
            let _ = tracee::set_signal_mask(self.tid, mask);
        }
        // A signal that it was about to get is not to be lost.
        let signal = signal_of_stop(self.tid).and_then(|signal| usize::try_from(signal).ok());
        let _ = tracee::detach(self.tid, signal.unwrap_or(0));
        child.map_or(Seen::NoChild, |tid| Seen::Child(Tracee::born(tid, mask)))
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

/// Has the thread stopped for a signal that can be blocked, before the fork that the kernel will have it make again?
fn is_to_be_made_again(registers: &Registers, tid: i32, signal: i32) -> bool {
    // A group that is stopped, or another tracer's doing.
    let is_for_tracer = [0, libc::SIGSTOP, libc::SIGTRAP].contains(&signal);
    !is_for_tracer && registers.is_to_fork_again(tid)
}
