//! Bare threads: libc does not know them, and nothing of the program reaches them.
//!
//! Such a thread has no thread-local storage, and all signals are blocked. The agent's thread and the herald are made
//! here. Each first gives itself a descriptor table of its own.
//!
//! Unsafe is needed here because no wrapper makes such a thread: libc's threads have thread-local storage and are
//! counted.

use core::sync::atomic::AtomicU32;

use crate::base::kernel::{Descriptor, Errno, block_signals, call, restore_signals};
use crate::raw;
use crate::ring::AGENT_NAME;
use crate::session::socket;

/// Starts a bare thread with all signals blocked, and returns its id.
///
/// # Safety
/// See [`raw::clone_thread`].
pub unsafe fn spawn(
    stack_top: usize,
    exited: *const AtomicU32,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<i32, Errno> {
    let signals = block_signals();
    // SAFETY: the caller keeps the promises of `clone_thread`.
    let started = raw::result(unsafe { raw::clone_thread(stack_top, exited, entry, argument) });
    restore_signals(signals);
    started.map(|tid| i32::try_from(tid).unwrap_or(0))
}

/// Ahead of the program, whose threads wait for the agent. The pager's threads have the same nice value.
const NICE: usize = (-15_isize).cast_unsigned();

/// Gives the calling thread an empty descriptor table of its own, leaves the program's directory, and connects.
pub fn connect_alone() -> Result<Descriptor, Errno> {
    keep_descriptors(&[])?;
    settle_in();
    socket::connect()
}

/// Gives the calling thread a descriptor table of its own, which keeps only these of the program's descriptors.
pub fn keep_descriptors(kept: &[Descriptor]) -> Result<(), Errno> {
    const CLOSE_RANGE_UNSHARE: usize = 2;
    let mut from = 0;
    loop {
        let next = kept.iter().copied().filter(|kept| *kept >= from).min();
        let last = next
            .unwrap_or(LAST_DESCRIPTOR)
            .wrapping_sub(usize::from(next.is_some()));
        if next != Some(from) {
            // SAFETY: the first call unshares the table, so the program's descriptors stay as they are.
            unsafe {
                call(
                    call::CLOSE_RANGE,
                    [from, last, CLOSE_RANGE_UNSHARE, 0, 0, 0],
                )
            }?;
        }
        match next {
            Some(next) => from = next.wrapping_add(1),
            None => return Ok(()),
        }
    }
}

const LAST_DESCRIPTOR: usize = u32::MAX as usize;

/// Changes of the agent's thread to itself.
pub fn settle_in() {
    const PR_SET_NAME: usize = 15;
    let (root, name) = (c"/".as_ptr().addr(), AGENT_NAME.as_ptr().addr());
    // SAFETY: both arguments are C strings. The thread has its own current directory since the clone; at the root that
    // directory keeps no file system from being unmounted.
    unsafe {
        raw::syscall1(call::CHDIR, root);
        raw::syscall2(call::PRCTL, PR_SET_NAME, name);
        // For this thread alone. An ordinary user may not do this, and the agent then has to wait its turn.
        raw::syscall3(call::SETPRIORITY, 0, 0, NICE);
    }
}
