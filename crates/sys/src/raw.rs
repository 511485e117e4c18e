//! System calls without a C library: no errno, no thread-local storage, no allocation, no lock.
//!
//! The agent runs a thread that libc does not know, and hooks in which libc may not be called. This file is all that
//! they need. It uses only `core`, because the agent is built without std and includes the file by path. Functions
//! return what the kernel returned: a value, or a negative errno that `result` turns into an error.
//!
//! Unsafe is needed here because a system call is an instruction, which Rust knows only as inline assembly.

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux"
)))]
compile_error!(
    "vswap is for Linux on x86_64 and on aarch64; docs/versions.md lists what is written for each of them"
);

// By path, because the agent includes this file from another folder.
#[cfg_attr(target_arch = "x86_64", path = "raw/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "raw/aarch64.rs")]
mod machine;

use core::sync::atomic::AtomicU32;

pub use machine::syscall6;

/// Highest errno: the kernel returns -4095..=-1 for errors and anything else for success.
const ERRNO_MAX: isize = 4095;

/// Splits what a system call returned into a value and an errno (positive).
#[inline(always)]
pub const fn result(returned: isize) -> Result<usize, i32> {
    if returned < 0 && returned >= -ERRNO_MAX {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "at most 4095, checked above"
        )]
        return Err(-returned as i32);
    }
    Ok(returned.cast_unsigned())
}

/// System call `number` without arguments.
///
/// # Safety
/// See [`syscall6`].
#[inline(always)]
pub unsafe fn syscall0(number: usize) -> isize {
    // SAFETY: the caller's promise. The kernel ignores arguments that the call does not have.
    unsafe { syscall6(number, [0; 6]) }
}

/// System call `number` with one argument.
///
/// # Safety
/// See [`syscall6`].
#[inline(always)]
pub unsafe fn syscall1(number: usize, a: usize) -> isize {
    // SAFETY: the caller's promise. The kernel ignores arguments that the call does not have.
    unsafe { syscall6(number, [a, 0, 0, 0, 0, 0]) }
}

/// System call `number` with two arguments.
///
/// # Safety
/// See [`syscall6`].
#[inline(always)]
pub unsafe fn syscall2(number: usize, a: usize, b: usize) -> isize {
    // SAFETY: the caller's promise. The kernel ignores arguments that the call does not have.
    unsafe { syscall6(number, [a, b, 0, 0, 0, 0]) }
}

/// System call `number` with three arguments.
///
/// # Safety
/// See [`syscall6`].
#[inline(always)]
pub unsafe fn syscall3(number: usize, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: the caller's promise. The kernel ignores arguments that the call does not have.
    unsafe { syscall6(number, [a, b, c, 0, 0, 0]) }
}

/// System call `number` with four arguments.
///
/// # Safety
/// See [`syscall6`].
#[inline(always)]
pub unsafe fn syscall4(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    // SAFETY: the caller's promise. The kernel ignores arguments that the call does not have.
    unsafe { syscall6(number, [a, b, c, d, 0, 0]) }
}

/// System call `number` with five arguments.
///
/// # Safety
/// See [`syscall6`].
#[inline(always)]
pub unsafe fn syscall5(number: usize, a: usize, b: usize, c: usize, d: usize, e: usize) -> isize {
    // SAFETY: the caller's promise. The kernel ignores arguments that the call does not have.
    unsafe { syscall6(number, [a, b, c, d, e, 0]) }
}

const CLONE_VM: usize = 0x100;
const CLONE_FILES: usize = 0x400;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_SETTLS: usize = 0x8_0000;
const CLONE_CHILD_CLEARTID: usize = 0x20_0000;

/// Starts a thread that libc does not know, and returns its id or a negative errno.
///
/// The thread shares memory, signal handlers and, until it unshares them, descriptors. It does *not* share the current
/// directory and root, so that the process can still enter a mount namespace. Nor does it share the undo list of System
/// V semaphores. Its thread pointer is 0: code that uses thread-local storage faults at once instead of damaging
/// another thread's. It inherits the caller's signal mask, so block everything around the call. When the thread exits,
/// the kernel sets `exited` to 0 and wakes its futex. If `exited` is null, the kernel does neither.
///
/// # Safety
/// `stack_top` is the end of writable memory that nothing else uses while the thread runs; `exited` is null or lives as
/// long as the thread; `entry` and all it calls use no thread-local storage and no libc function that does.
#[inline(never)]
pub unsafe fn clone_thread(
    stack_top: usize,
    exited: *const AtomicU32,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    let shared = CLONE_VM | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SETTLS;
    let flags = if exited.is_null() {
        shared
    } else {
        shared | CLONE_CHILD_CLEARTID
    };
    let word = exited.expose_provenance();
    // SAFETY: the caller's promises.
    unsafe { machine::clone((flags, stack_top & !15, word), entry, argument) }
}

/// Calls `entry` on another stack.
///
/// # Safety
/// `stack_top` is the end of writable memory that nothing else uses meanwhile, and `entry` does not unwind.
#[inline(never)]
pub unsafe fn call_on_stack(stack_top: usize, entry: extern "C" fn(usize), argument: usize) {
    // SAFETY: the caller's promises.
    unsafe { machine::call_on_stack(stack_top & !15, entry, argument) }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

    use super::machine::number;
    use super::{call_on_stack, clone_thread, result, syscall0, syscall1};

    #[test]
    fn result_knows_the_edges_of_errno() {
        assert_eq!(result(0), Ok(0));
        assert_eq!(result(-1), Err(1));
        assert_eq!(result(-4095), Err(4095));
        assert_eq!(result(-4096), Ok((-4096_isize).cast_unsigned()));
        assert_eq!(result(isize::MIN), Ok(isize::MIN.cast_unsigned()));
    }

    #[test]
    fn calls_reach_the_kernel() {
        const EBADF: i32 = 9;
        // SAFETY: getpid has no effects. Closing a number that was never given out has none either.
        let (pid, closed) = unsafe {
            (
                syscall0(number::GETPID),
                syscall1(number::CLOSE, 0x7fff_ffff),
            )
        };
        assert_eq!(pid, isize::try_from(std::process::id()).unwrap());
        assert_eq!(result(closed), Err(EBADF));
    }

    /// Where a stack of the tests ends. It is never given back: threads end on it.
    fn stack() -> usize {
        const BYTES: usize = 64 << 10;
        let stack: &'static mut [u8] = Vec::leak(vec![0; BYTES]);
        stack.as_mut_ptr().expose_provenance() + BYTES
    }

    #[test]
    fn code_runs_on_another_stack_and_comes_back() {
        static SEEN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
        extern "C" fn look(argument: usize) {
            let local = 0_u8;
            SEEN[0].store(argument, Ordering::Relaxed);
            SEEN[1].store((&raw const local).addr(), Ordering::Relaxed);
        }
        let end = stack();
        // An end that is not aligned is made so.
        // SAFETY: the stack is this test's alone, and the function does not unwind.
        unsafe { call_on_stack(end - 3, look, 7) };
        assert_eq!(SEEN[0].load(Ordering::Relaxed), 7);
        assert!((end - 4096..end).contains(&SEEN[1].load(Ordering::Relaxed)));
    }

    #[test]
    fn a_bare_thread_runs_and_its_end_is_told() {
        static CAME: AtomicUsize = AtomicUsize::new(0);
        static RUNS: AtomicU32 = AtomicU32::new(1);
        extern "C" fn thread(argument: usize) -> ! {
            CAME.store(argument, Ordering::Release);
            loop {
                // SAFETY: ends this thread alone, which has nothing.
                unsafe { syscall1(number::EXIT, 0) };
            }
        }
        const EINVAL: i32 = 22;
        // SAFETY: the stack is the thread's alone, the word lives for ever, and the thread only stores a number and
        // makes a system call.
        let started = result(unsafe { clone_thread(stack(), &raw const RUNS, thread, 7) });
        if started == Err(EINVAL) {
            return eprintln!(
                "SKIP: this kernel (qemu-user) has no threads that share no directory"
            );
        }
        assert!(started.is_ok_and(|tid| tid > 0), "{started:?}");
        while RUNS.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
        assert_eq!(CAME.load(Ordering::Acquire), 7);
    }
}
