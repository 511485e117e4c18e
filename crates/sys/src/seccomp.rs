//! Answering the notifications of the seccomp filter that traps layout calls.
//!
//! userfaultfd messages lose the order between threads. So a program's mremap, MADV_FREE and UFFDIO_REGISTER calls,
//! among others, stop in the kernel until the pager has answered them, one at a time. The agent installs the filter;
//! the pager holds the listener. A notification names a thread id, and that thread may die at any moment. So call
//! `id_valid` after learning something about the thread from elsewhere. Nothing here allocates.
//!
//! Unsafe is needed here because rustix has no wrappers for these ioctls. The number of each fixes the size of its
//! record.

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use linux_raw_sys::ptrace::{seccomp_data, seccomp_notif, seccomp_notif_resp};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, Updater, opcode};

use crate::eventfd::{EventFd, PollFd, PollFlags, poll};
use crate::kind::{self, Kind};
use crate::taken;

const RECV: Opcode = opcode::read_write::<seccomp_notif>(b'!', 0);
const SEND: Opcode = opcode::read_write::<seccomp_notif_resp>(b'!', 1);
const ID_VALID: Opcode = opcode::write::<u64>(b'!', 2);
const SET_FLAGS: Opcode = opcode::write::<u64>(b'!', 4);
const _: () = assert!(RECV == 0xc050_2100 && SEND == 0xc018_2101 && ID_VALID == 0x4008_2102);
const _: () = assert!(size_of::<seccomp_data>() == 64);

/// Let the call run as the program made it (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`).
const FLAG_CONTINUE: u32 = 1;
/// Wake on the CPU of the caller (`SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, Linux 6.6).
const FD_SYNC_WAKE_UP: u64 = 1;

/// Which numbers of calls are tried, before the last one that is known and after it. A call that waited while so many
/// others were answered stays without an answer. The process may have been killed before it could note the last ones.
const TAKEN_BEFORE: u64 = 4096;
const TAKEN_AFTER: u64 = 16;

/// Why a listener call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotifyError {
    /// The caller died or was interrupted (ENOENT), or has been answered already (EINPROGRESS).
    #[error("the trapped call is over: forget it")]
    Over,
    /// No process uses the filter any more.
    #[error("no process uses the filter any more: close the listener")]
    Closed,
    /// Any other errno.
    #[error("seccomp notification call failed with errno {0}")]
    Other(i32),
}

fn meaning(errno: Errno) -> NotifyError {
    match errno {
        Errno::NOENT | Errno::INTR | Errno::INPROGRESS => NotifyError::Over,
        other => NotifyError::Other(other.raw_os_error()),
    }
}

/// A trapped system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// Names the call in answers.
    pub id: u64,
    /// Thread id of the caller in the listener's pid namespace, 0 when it is not visible there.
    pub tid: u32,
    /// System call number.
    pub nr: i32,
    /// Arguments.
    pub args: [u64; 6],
}

/// An answer to a trapped system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The call returns this value.
    Value(i64),
    /// The call fails with this errno, 1..=4095.
    Errno(i32),
    /// The kernel carries the call out as it was made. Its arguments in memory may have changed since.
    Continue,
}

/// The pager's end of a filter.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listener {
    /// Takes a descriptor that is known to be a listener.
    pub fn from_fd(fd: OwnedFd) -> Listener {
        Listener { fd }
    }

    /// Takes a descriptor that came from a program. None if it is something else.
    pub fn received(fd: OwnedFd) -> Option<Listener> {
        kind::is(&fd, Kind::Listener).then(|| Listener { fd })
    }

    /// Asks the kernel to hand the CPU over directly between caller and listener (Linux 6.6). It is a hint that older
    /// kernels refuse.
    ///
    /// # Errors
    /// `Other { EINVAL }` from a kernel that does not know it.
    pub fn wake_on_callers_cpu(&self) -> Result<(), NotifyError> {
        // SAFETY: the ioctl takes a value, not a pointer.
        let done = unsafe {
            rustix::ioctl::ioctl(
                &self.fd,
                rustix::ioctl::IntegerSetter::<SET_FLAGS>::new_usize(
                    usize::try_from(FD_SYNC_WAKE_UP).unwrap_or(0),
                ),
            )
        };
        done.map_err(meaning)
    }

    /// Waits until there is a notification, or `stop` is signalled. False if there is no notification.
    ///
    /// # Errors
    /// `Closed` once the last process of the filter has exited.
    pub fn wait(&self, stop: &EventFd) -> Result<bool, NotifyError> {
        let mut fds = [
            PollFd::new(&self.fd, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        poll(&mut fds, None).map_err(meaning)?;
        match fds[0].revents() {
            events if events.contains(PollFlags::IN) => Ok(true),
            events if !events.is_empty() => Err(NotifyError::Closed),
            _ => Ok(false),
        }
    }

    /// Takes the next notification, and waits for it. To avoid waiting, call `wait` first.
    ///
    /// # Errors
    /// `Over` if the caller died before its notification could be read, or if a signal came.
    pub fn receive(&self) -> Result<Notification, NotifyError> {
        let data = seccomp_data {
            nr: 0,
            arch: 0,
            instruction_pointer: 0,
            args: [0; 6],
        };
        // The kernel refuses a record that is not all zeros.
        let mut notif = seccomp_notif {
            id: 0,
            pid: 0,
            flags: 0,
            data,
        };
        // SAFETY: the ioctl writes one seccomp_notif, whose size is part of its number.
        let done = unsafe { rustix::ioctl::ioctl(&self.fd, Updater::<RECV, _>::new(&mut notif)) };
        done.map_err(meaning)?;
        taken::note(self.fd.as_fd(), notif.id);
        Ok(Notification {
            id: notif.id,
            tid: notif.pid,
            nr: notif.data.nr,
            args: notif.data.args,
        })
    }

    /// Takes the next notification and lets the call run as it is. It does nothing if the caller has died.
    pub fn let_through(&self) {
        if let Ok(notification) = self.receive() {
            // The caller may have been killed.
            let _ = self.respond(notification.id, Answer::Continue);
        }
    }

    /// Lets the calls run as they are that a process which is gone now has taken in by this listener, and not answered.
    pub fn let_taken_through(&self) {
        let Some(last) = taken::last(self.fd.as_fd()) else {
            return;
        };
        let first = last.wrapping_sub(TAKEN_BEFORE);
        for step in 0..=TAKEN_BEFORE + TAKEN_AFTER {
            // Most of them were answered.
            let _ = self.respond(first.wrapping_add(step), Answer::Continue);
        }
    }

    /// Leaves the descriptor open when this process ends, for whoever shares its table.
    pub fn leave_open(self) {
        let _ = self.fd.into_raw_fd();
    }

    /// Does the caller still wait for the answer? If so, its thread id was not reused before this call.
    pub fn id_valid(&self, id: u64) -> bool {
        // SAFETY: the ioctl reads one u64.
        unsafe { rustix::ioctl::ioctl(&self.fd, Setter::<ID_VALID, _>::new(id)) }.is_ok()
    }

    /// Answers a notification; the caller goes on.
    ///
    /// # Errors
    /// `Over` when the caller no longer waits.
    pub fn respond(&self, id: u64, answer: Answer) -> Result<(), NotifyError> {
        let (val, error, flags) = match answer {
            Answer::Value(value) => (value, 0, 0),
            Answer::Errno(errno) => (0, -errno, 0),
            Answer::Continue => (0, 0, FLAG_CONTINUE),
        };
        let mut response = seccomp_notif_resp {
            id,
            val,
            error,
            flags,
        };
        // SAFETY: the ioctl reads one seccomp_notif_resp.
        let done =
            unsafe { rustix::ioctl::ioctl(&self.fd, Updater::<SEND, _>::new(&mut response)) };
        done.map_err(meaning)
    }
}
