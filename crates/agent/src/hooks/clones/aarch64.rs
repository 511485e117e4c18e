//! `clone` and `syscall` on aarch64. All arguments are in registers, also those of functions that take any number.
//!
//! Each function begins with `bti c` (`hint #34`), because callers come by address. It goes on by `br x16`, which may
//! lead to such an instruction.

use core::arch::naked_asm;

use super::{NEXT_SYSCALL, judge_clone, judge_syscall, set_errno};
use crate::base::kernel::call;

/// What `clone` and `syscall` have in common: asks `{judge}`, which gets the address of the arguments, and either
/// returns or goes on to libc with all registers of arguments as they were.
macro_rules! asking {
    ($($before:literal,)* ; $($operands:tt)*) => {
        naked_asm!(
            "hint #34",
            $($before,)*
            "stp x29, x30, [sp, #-80]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "add x0, sp, #16",
            "bl {judge}",
            "cbz x0, 2f",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "ldp x29, x30, [sp], #80",
            "br x16",
            "2:",
            "mov x0, x1",
            "ldp x29, x30, [sp], #80",
            "ret",
            $($operands)*
        )
    };
}

/// libc's `clone`, `int clone(fn, stack, flags, argument, parent_tid, tls, child_tid)`.
///
/// # Safety
/// As for clone(2).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone() {
    asking!(; judge = sym judge_clone)
}

/// The other name of `clone`.
///
/// # Safety
/// As for clone(2).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __clone() {
    naked_asm!("hint #34", "b {clone}", clone = sym clone)
}

/// libc's `syscall`, `long syscall(number, ...)`. There is no call that is named fork.
///
/// # Safety
/// As for syscall(2).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    asking!(
        "cmp x0, #{clone}",
        "b.eq 3f",
        "cmp x0, #{clone3}",
        "b.eq 3f",
        "cmp x0, #{unshare}",
        "b.eq 3f",
        "cmp x0, #{setns}",
        "b.eq 3f",
        "cmp x0, #{seccomp}",
        "b.eq 3f",
        "adrp x16, {next}",
        "ldr x16, [x16, #:lo12:{next}]",
        "br x16",
        "3:",
        ;
        clone = const call::CLONE,
        clone3 = const call::CLONE3,
        unshare = const call::UNSHARE,
        setns = const call::SETNS,
        seccomp = const call::SECCOMP,
        next = sym NEXT_SYSCALL,
        judge = sym judge_syscall,
    )
}

/// Does what libc's `syscall` does, for calls before the constructor.
#[unsafe(naked)]
pub extern "C" fn plain_syscall() {
    naked_asm!(
        "hint #34",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc #0",
        // Is it at least -4095, as a number without a sign?
        "cmn x0, #4095",
        "b.hs 2f",
        "ret",
        "2:",
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "neg w0, w0",
        "bl {set_errno}",
        "mov x0, #-1",
        "ldp x29, x30, [sp], #16",
        "ret",
        set_errno = sym set_errno,
    )
}
