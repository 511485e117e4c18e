//! System calls without a C library: no errno, no thread-local storage, no allocation, no lock.
//!
//! The agent runs a thread that libc does not know, and hooks in which libc may not be called. This file is all that
//! they need. It uses only `core`, because the agent is built without std and includes the file by path. Functions
//! return what the kernel returned: a value, or a negative errno that `result` turns into an error.
//!
//! Unsafe is needed here because a system call is an instruction, which Rust knows only as inline assembly.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!(
    "vswap runs on x86_64 Linux alone; docs/versions.md lists what is written for it and missing elsewhere"
);

use core::arch::asm;
use core::sync::atomic::AtomicU32;

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

/// System call `number` with six arguments.
///
/// # Safety
/// The call may do anything to the process. The caller answers for the meaning of every argument, as the manual page
/// of the call states it.
#[inline(always)]
pub unsafe fn syscall6(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let returned: isize;
    // SAFETY: the kernel keeps every register but rax, rcx and r11, and does not touch the red zone. The caller answers
    // for what the call itself does.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => returned,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    returned
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

const SYS_CLONE: usize = 56;
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
/// V semaphores. Its fs base is 0: code that uses thread-local storage faults at once instead of damaging another
/// thread's. It inherits the caller's signal mask, so block everything around the call. When the thread exits, the
/// kernel sets `exited` to 0 and wakes its futex. If `exited` is null, the kernel does neither.
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
    let returned: isize;
    // SAFETY: the parent goes on at label 2 with every register but rax, rcx and r11 as before. The child starts with
    // the same registers but on its own stack, which is aligned as for a call, and never comes back from `entry`.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") SYS_CLONE => returned,
            in("rdi") flags, in("rsi") stack_top & !15, in("rdx") 0_usize, in("r10") exited, in("r8") 0_usize,
            in("r12") entry, in("r13") argument,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    returned
}

/// Calls `entry` on another stack.
///
/// # Safety
/// `stack_top` is the end of writable memory that nothing else uses meanwhile, and `entry` does not unwind.
#[inline(never)]
pub unsafe fn call_on_stack(stack_top: usize, entry: extern "C" fn(usize), argument: usize) {
    // SAFETY: the caller answers for the stack, which is aligned as for a call. The old stack pointer is kept in r13,
    // which a called function preserves, and restored before this returns.
    unsafe {
        asm!(
            "mov r13, rsp",
            "mov rsp, {stack}",
            "call {entry}",
            "mov rsp, r13",
            stack = in(reg) stack_top & !15,
            entry = in(reg) entry,
            in("rdi") argument,
            out("r13") _,
            clobber_abi("C"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{result, syscall0, syscall1};

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
        const SYS_CLOSE: usize = 3;
        const SYS_GETPID: usize = 39;
        const EBADF: i32 = 9;
        // SAFETY: getpid has no effects. Closing a number that was never given out has none either.
        let (pid, closed) = unsafe { (syscall0(SYS_GETPID), syscall1(SYS_CLOSE, 0x7fff_ffff)) };
        assert_eq!(pid, isize::try_from(std::process::id()).unwrap());
        assert_eq!(result(closed), Err(EBADF));
    }
}
