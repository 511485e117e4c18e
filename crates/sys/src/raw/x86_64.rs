//! System calls, threads and stacks of x86-64.
//!
//! A call's number is in rax, and so is its result. The kernel changes rcx and r11 besides.

use core::arch::asm;

const SYS_CLONE: usize = 56;

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

/// `clone` with these flags, a thread pointer of 0 and this word for the thread's end. The new thread runs `entry`.
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
            in("rdi") flags, in("rsi") stack_top, in("rdx") 0_usize, in("r10") exited, in("r8") 0_usize,
            in("r12") entry, in("r13") argument,
            lateout("rcx") _, lateout("r11") _,
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
    // SAFETY: the caller answers for the stack, which is aligned as for a call. The old stack pointer is kept in r13,
    // which a called function preserves, and restored before this returns.
    unsafe {
        asm!(
            "mov r13, rsp",
            "mov rsp, {stack}",
            "call {entry}",
            "mov rsp, r13",
            stack = in(reg) stack_top,
            entry = in(reg) entry,
            in("rdi") argument,
            out("r13") _,
            clobber_abi("C"),
        );
    }
}

/// Numbers for tests.
#[cfg(test)]
pub mod number {
    pub const CLOSE: usize = 3;
    pub const EXIT: usize = 60;
    pub const GETPID: usize = 39;
}
