//! The fail-closed end: a process whose pager is gone must not read one more page.
//!
//! When the last copy of a userfaultfd closes, the kernel fills every hole with zeros. The agent's thread holds a copy
//! in its own table, so the kernel fills nothing before the whole process is dead. Any thread may call `die`.

use core::ffi::c_short;

use crate::base::kernel::{self, call, process_id};
use crate::raw;

const SIGKILL: usize = 9;
const POLLOUT: c_short = 4;
const STDERR: usize = 2;

/// Kills the process at once. Writes `why` to the program's standard error if that takes it without waiting.
pub fn die(why: &[u8]) -> ! {
    let pid = process_id();
    say(pid.unsigned_abs() as usize, why);
    loop {
        // SAFETY: this ends the own process, which is the purpose. A process may always kill itself, whatever
        // credentials it has taken on. The second call is for pid 1 of a namespace, which the first does not reach.
        // Unsafe: bare system calls.
        unsafe {
            raw::syscall2(call::KILL, pid.unsigned_abs() as usize, SIGKILL);
            raw::syscall1(call::EXIT_GROUP, 128 + SIGKILL);
        }
    }
}

/// The agent's thread has no standard error of its own, because that would keep pipes open. So it borrows the
/// program's.
fn say(pid: usize, why: &[u8]) {
    #[repr(C)]
    struct Poll {
        descriptor: i32,
        events: c_short,
        returned: c_short,
    }
    // SAFETY: the calls name descriptors of this process, and a buffer and a record that outlive the calls.
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
        let ready = kernel::poll((&raw mut poll).addr(), 1, false);
        if ready == 1 && poll.returned & POLLOUT != 0 {
            raw::syscall3(call::WRITE, stderr, why.as_ptr().addr(), why.len());
        }
    }
}
