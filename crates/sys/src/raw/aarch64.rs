//! System calls, threads and stacks of aarch64.
//!
//! A call's number is in x8, its arguments are in x0 to x5, and its result is in x0. The kernel keeps every other
//! register. Of vectors longer than 128 bits (SVE) it keeps the first 128, as a call of a function does.

use core::arch::asm;

const SYS_CLONE: usize = 220;

/// System call `number` with six arguments.
///
/// # Safety
/// The call may do anything to the process. The caller answers for the meaning of every argument, as the manual page
/// of the call states it.
#[inline(always)]
pub unsafe fn syscall6(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let returned: isize;
    // SAFETY: the kernel keeps every register but x0, and does not touch the stack. The caller answers for what the
    // call itself does.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a => returned,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    returned
}

/// `clone` with these flags, a thread pointer of 0 and this word for the thread's end. The new thread runs `entry`.
///
/// The last two arguments are the other way round than on x86-64: the thread pointer comes first. What a C library
/// keeps for a thread lies right before and right behind the place where it points, so at 0 as well each use of it
/// faults.
///
/// # Safety
/// As for [`super::clone_thread`].
#[inline(always)]
pub unsafe fn clone(
    (flags, stack_top, exited): (usize, usize, usize),
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    let returned: isize;
    // SAFETY: the parent goes on at label 2 with every register but x0 as before. The child starts with the same
    // registers but on its own stack, which is aligned as for a call, with neither a frame nor a place to return to,
    // and never comes back from `entry`.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x10",
            "blr x9",
            "brk #1",
            "2:",
            in("x8") SYS_CLONE,
            inlateout("x0") flags => returned,
            in("x1") stack_top, in("x2") 0_usize, in("x3") 0_usize, in("x4") exited,
            in("x9") entry, in("x10") argument,
        );
    }
    returned
}

/// Calls `entry` on the stack that ends at `stack_top`.
///
/// # Safety
/// As for [`super::call_on_stack`]; `stack_top` is aligned to 16 bytes.
#[inline(always)]
pub unsafe fn call_on_stack(stack_top: usize, entry: extern "C" fn(usize), argument: usize) {
    // SAFETY: the caller answers for the stack, which is aligned as for a call. The old stack pointer is kept in x20,
    // which a called function preserves, and restored before this returns.
    unsafe {
        asm!(
            "mov x20, sp",
            "mov sp, {stack}",
            "blr {entry}",
            "mov sp, x20",
            stack = in(reg) stack_top,
            entry = in(reg) entry,
            in("x0") argument,
            out("x20") _,
            clobber_abi("C"),
        );
    }
}

/// Numbers for tests.
#[cfg(test)]
pub mod number {
    pub const CLOSE: usize = 57;
    pub const EXIT: usize = 93;
    pub const GETPID: usize = 172;
}
