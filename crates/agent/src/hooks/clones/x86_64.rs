//! `clone` and `syscall` on x86-64. The first six arguments are in registers, the seventh lies behind the return
//! address.

use core::arch::naked_asm;

use super::{NEXT_SYSCALL, judge_clone, judge_syscall, set_errno};
use crate::base::kernel::call;

/// libc's `clone`, `int clone(fn, stack, flags, argument, parent_tid, tls, child_tid)`.
///
/// # Safety
/// As for clone(2).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone() {
    naked_asm!(
        "push qword ptr [rsp + 8]",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov rdi, rsp",
        "call {judge}",
        "mov r11, rax",
        "mov rax, rdx",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop r8",
        "pop r9",
        "lea rsp, [rsp + 8]",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "ret",
        judge = sym judge_clone,
    )
}

/// The other name of `clone`.
///
/// # Safety
/// As for clone(2).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __clone() {
    naked_asm!("jmp {clone}", clone = sym clone)
}

/// libc's `syscall`, `long syscall(number, ...)`.
///
/// # Safety
/// As for syscall(2).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp rdi, {clone}",
        "je 3f",
        "cmp rdi, {fork}",
        "je 3f",
        "cmp rdi, {clone3}",
        "je 3f",
        "cmp rdi, {unshare}",
        "je 3f",
        "cmp rdi, {setns}",
        "je 3f",
        "cmp rdi, {seccomp}",
        "je 3f",
        "jmp qword ptr [rip + {next}]",
        "3:",
        "push qword ptr [rsp + 8]",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov rdi, rsp",
        "call {judge}",
        "mov r11, rax",
        "mov rax, rdx",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop r8",
        "pop r9",
        "lea rsp, [rsp + 8]",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "ret",
        clone = const call::CLONE,
        fork = const call::FORK,
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
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "push rax",
        "mov edi, eax",
        "neg edi",
        "call {set_errno}",
        "pop rcx",
        "mov rax, -1",
        "ret",
        set_errno = sym set_errno,
    )
}
