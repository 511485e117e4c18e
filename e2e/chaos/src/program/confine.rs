//! A process shuts itself in, as sandboxes do: by namespaces, and by filters of its own above that of vswap.
//!
//! Unsafe is needed for calls that have no wrapper.

use crate::program::actor::{Actor, LEFT_OUT};
use crate::program::calls::{self, Answer};
use crate::step::Shut;

/// What a filter answers: no call of a program fails so by itself, so one that does has done nothing.
pub(crate) const REFUSED: i32 = libc::ENOTRECOVERABLE;

impl Actor<'_> {
    /// Namespaces and filters stay, so a process with other threads leaves them out.
    pub(crate) fn shut_in(&mut self, how: Shut) -> Answer {
        if !self.alone {
            return (LEFT_OUT, 0);
        }
        match how {
            Shut::Files => unshare(libc::CLONE_FILES | libc::CLONE_FS),
            Shut::Names => unshare(libc::CLONE_NEWUTS | libc::CLONE_NEWIPC | libc::CLONE_NEWNET),
            Shut::Mounts => unshare(libc::CLONE_NEWNS),
            Shut::Pids => {
                // The end of the init waits until all others were waited for, and this process waits for the init.
                self.births_left = self.births_left.min(1);
                self.divided = true;
                unshare(libc::CLONE_NEWPID)
            }
            Shut::FromNothing => refuse(libc::SYS_swapon),
            Shut::FromMoving => refuse(libc::SYS_mremap),
            Shut::FromAdvice => refuse(libc::SYS_madvise),
            Shut::FromProtection => refuse(libc::SYS_mprotect),
            Shut::FromUnmapping => refuse(libc::SYS_munmap),
        }
    }
}

fn unshare(what: i32) -> Answer {
    // SAFETY: the only thread leaves what it shares with other processes, which no reference of Rust knows.
    calls::answer(unsafe { libc::unshare(what) }.into())
}

/// Has the kernel refuse this call from now on.
fn refuse(call: libc::c_long) -> Answer {
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let filter = [
        // The number of the call is the first field of what the filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call as u32),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | REFUSED as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel only reads the program, which lives during the call.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program)
    };
    calls::answer(result)
}
