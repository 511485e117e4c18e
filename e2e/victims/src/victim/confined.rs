//! The program installs its own seccomp filter on all its threads when its memory is in use. The filter kills for calls
//! that the program never makes.

use std::time::Duration;

use crate::pages::Pages;
use crate::run::Options;
use crate::wrong::{Checked, call};

/// ioctl, socket, connect, sendto, recvfrom, sendmsg, recvmsg, seccomp, memfd_create, userfaultfd, close_range,
/// process_madvise.
const FORBIDDEN: [u32; 12] = [16, 41, 42, 44, 45, 46, 47, 317, 319, 323, 436, 440];
/// Time for everything to be evicted before the filter is installed.
const NAP: Duration = Duration::from_millis(300);

pub(crate) fn run(options: &Options) -> Checked {
    let mut pages = Pages::filled(options.pages() / 2, options.tag(0))?;
    let mut random = options.random(0, 47);
    std::thread::sleep(NAP);
    install(libc::SECCOMP_FILTER_FLAG_TSYNC)?;
    let clock = options.clock();
    while clock.running() {
        pages.stir("page under a filter", &mut random, 256)?;
        let fresh = Pages::filled(options.pages() / 8, options.tag(1))?;
        options.parallel(|_| fresh.check_all("fresh page under a filter"))?;
    }
    pages.check_all("page under a filter")
}

/// Installs the filter with these flags.
pub(crate) fn install(flags: libc::c_ulong) -> Checked {
    with_program(|program| {
        // SAFETY: the filter program lives until the call returns.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                program,
            )
        };
        i32::try_from(failed).unwrap_or(-1)
    })
}

/// Installs the filter on the calling thread by the older call.
pub(crate) fn install_by_prctl() -> Checked {
    with_program(|program| {
        // SAFETY: the filter program lives until the call returns.
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, program) }
    })
}

fn with_program(set: impl FnOnce(*const libc::sock_fprog) -> i32) -> Checked {
    let statement = |code, value| libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k: value,
    };
    // Load the number (BPF_LD | BPF_W | BPF_ABS); jumps that skip the next statement on another number; the answers.
    let mut program = vec![statement(0x20, 0)];
    for number in FORBIDDEN {
        let jump = statement(0x15, number);
        program.push(libc::sock_filter { jf: 1, ..jump });
        program.push(statement(0x06, libc::SECCOMP_RET_KILL_PROCESS));
    }
    program.push(statement(0x06, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(0),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: does not affect memory.
    call("PR_SET_NO_NEW_PRIVS", unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    })?;
    call("a seccomp filter", set(&raw const program)).map(drop)
}
