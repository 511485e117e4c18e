//! `prctl` and `syscall` where they install a seccomp filter of the program's own: vswap's filter comes first.
//!
//! A filter confines every thread and child that the calling thread makes afterwards. And once one thread has a filter
//! of its own, no filter can be given to all threads any more. So the agent asks the pager to install vswap's filter
//! before, while that is still possible. The agent's thread was made before the program's filter, so it is not
//! confined. Later threads and children are confined, so nobody new can be sent to the pager. So children get no agent,
//! as if the bare instruction had made them, and the agent does not step aside. A filter for all threads (TSYNC)
//! confines the agent too; nothing is prepared for that.
//!
//! For program threads only. Unsafe is needed here because the program's own calls are passed on as bare system calls.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crate::base::kernel::{block_signals, call, restore_signals};
use crate::base::libc;
use crate::hooks::herald;
use crate::raw;
use crate::ring::hello;
use crate::state::STATE;

const PR_SET_SECCOMP: usize = 22;
const SECCOMP_MODE_FILTER: usize = 2;
const SECCOMP_SET_MODE_FILTER: usize = 1;
const SECCOMP_FILTER_FLAG_TSYNC: usize = 1;
/// A process has one listener at most, so the kernel would refuse the program's after vswap's.
const SECCOMP_FILTER_FLAG_NEW_LISTENER: usize = 1 << 3;

/// libc's `prctl`, `int prctl(option, ...)`.
///
/// # Safety
/// As for prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let option = option.cast_unsigned() as usize;
    // SAFETY: the program asked for exactly this call, and answers for it.
    let make = || unsafe { raw::syscall5(call::PRCTL, option, a, b, c, d) };
    let returned = if option == PR_SET_SECCOMP && a == SECCOMP_MODE_FILTER && b != 0 {
        install(0, make)
    } else {
        make()
    };
    match raw::result(returned) {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "prctl returns an int"
        )]
        Ok(value) => value as c_int,
        Err(errno) => {
            libc::set_errno(errno);
            -1
        }
    }
}

/// The system call seccomp. Returns what the kernel returned.
pub fn seccomp(arguments: [usize; 6]) -> isize {
    let [operation, flags, program, ..] = arguments;
    // SAFETY: the program asked for exactly this call, and answers for it.
    let make = || unsafe { raw::syscall6(call::SECCOMP, arguments) };
    // A call without a program only asks the kernel what it knows.
    if operation == SECCOMP_SET_MODE_FILTER && program != 0 {
        install(flags, make)
    } else {
        make()
    }
}

fn install(flags: usize, make: impl FnOnce() -> isize) -> isize {
    // After the first one vswap's filter is there, and what the herald calls may kill the thread.
    let is_first = STATE.sandboxed.load(Ordering::SeqCst) == 0;
    if is_first && flags & (SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_NEW_LISTENER) == 0 {
        let signals = block_signals();
        herald::lock();
        herald::tell(hello::FILTER);
        herald::unlock();
        restore_signals(signals);
    }
    let before = STATE.sandboxed.swap(1, Ordering::SeqCst);
    let returned = make();
    if raw::result(returned).is_err() {
        STATE.sandboxed.store(before, Ordering::SeqCst);
    }
    returned
}
