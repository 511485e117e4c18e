//! The fail-closed end: a process whose pager is gone must not read one more page.
//!
//! When the last copy of a userfaultfd closes, the kernel fills every hole with zeros. The agent's thread holds a copy
//! in its own table, so nothing is filled before the whole process is dead. Any thread may call this.

use core::ffi::c_short;

use crate::kernel::{call, process_id};
use crate::raw;

const SIGKILL: usize = 9;
const POLLOUT: c_short = 4;
const STDERR: usize = 2;

/// Kills the process at once. `why` goes to the program's standard error if that takes it without waiting.
pub fn die(why: &[u8]) -> ! {
    let pid = process_id();
    say(pid.unsigned_abs() as usize, why);
    loop {
        // SAFETY: ends this process, whatever credentials the program has taken on: a process may always kill itself.
        // The second call is for a process that is out of reach of the first (pid 1 of a namespace).
        unsafe {
            raw::syscall2(call::KILL, pid.unsigned_abs() as usize, SIGKILL);
            raw::syscall1(call::EXIT_GROUP, 128 + SIGKILL);
        }
    }
}

/// The agent's thread has no standard error of its own (it would keep pipes open), so it borrows the program's.
fn say(pid: usize, why: &[u8]) {
    #[repr(C)]
    struct Poll {
        descriptor: i32,
        events: c_short,
        returned: c_short,
    }
    // SAFETY: the calls name this process's own descriptors and a buffer and a record that live here.
    unsafe {
        let Ok(process) = raw::result(raw::syscall2(call::PIDFD_OPEN, pid, 0)) else {
            return;
        };
        let Ok(stderr) = raw::result(raw::syscall3(call::PIDFD_GETFD, process, STDERR, 0)) else {
            return;
        };
        let descriptor = i32::try_from(stderr).unwrap_or(-1);
        let mut poll = Poll {
            descriptor,
            events: POLLOUT,
            returned: 0,
        };
        let ready = raw::syscall3(call::POLL, (&raw mut poll).addr(), 1, 0);
        if ready == 1 && poll.returned & POLLOUT != 0 {
            raw::syscall3(call::WRITE, stderr, why.as_ptr().addr(), why.len());
        }
    }
}
