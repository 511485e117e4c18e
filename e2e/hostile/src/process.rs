//! Calls that end, fork and bind processes.
//!
//! Unsafe is needed here because this crate calls libc directly.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use vswap_drive::processes::die_with_parent;

/// The other side of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fork {
    Child,
    Parent(i32),
    Failed,
}

/// Forks. The child may only do what the caller knows to be safe there.
pub(crate) fn fork() -> Fork {
    // SAFETY: the callers' children use memory that they have touched before, system calls, and at most the allocator,
    // whose locks the C library takes across a fork.
    match unsafe { libc::fork() } {
        0 => Fork::Child,
        pid if pid > 0 => Fork::Parent(pid),
        _ => Fork::Failed,
    }
}

/// Ends this process at once.
pub(crate) fn leave(status: i32) -> ! {
    // SAFETY: ends the process, and touches no memory.
    unsafe { libc::_exit(status) }
}

/// Sends a signal. A negative id names a group. If nobody is there any more nothing happens.
pub(crate) fn signal(pid: i32, signal: i32) {
    // SAFETY: sends a signal, and touches no memory.
    unsafe { libc::kill(pid, signal) };
}

/// Waits for a child. Its status as `wait` gives it, or -1.
pub(crate) fn wait_for(pid: i32) -> i32 {
    let mut status = -1;
    // SAFETY: `status` is a valid place.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if waited == pid { status } else { -1 }
}

/// No core files: lies end in SIGSEGV and SIGBUS all the time.
pub(crate) fn leave_no_core() {
    set_limit(libc::RLIMIT_CORE, 0);
}

/// Takes all of the heap that there will be: whoever answers the pager must not ask for memory by a call that stops
/// until the pager was answered.
pub(crate) fn take_heap_at_once() {
    const HEAP_BYTES: i32 = 32 << 20;
    // SAFETY: these change how the allocator grows and when it gives memory back.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, HEAP_BYTES);
        libc::mallopt(libc::M_TOP_PAD, HEAP_BYTES);
    }
    // The heap grows by the padding now.
    drop(std::hint::black_box(vec![0_u8; 1 << 20]));
}

fn set_limit(which: libc::__rlimit_resource_t, most: u64) {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: the call reads one record.
    unsafe { libc::setrlimit(which, &raw const limit) };
}

/// The command dies with its parent, and may have so many descriptors, if a number is given.
pub(crate) fn bind(command: &mut Command, descriptors: Option<u64>) {
    die_with_parent(command);
    let Some(most) = descriptors else { return };
    let limit = move || {
        set_limit(libc::RLIMIT_NOFILE, most);
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one system call and neither allocates nor takes a lock. Only
    // `pre_exec`, which is unsafe, runs code in the child.
    unsafe { command.pre_exec(limit) };
}
