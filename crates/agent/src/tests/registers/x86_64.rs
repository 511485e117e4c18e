//! The registers of x86-64: rbx, rbp, r12 to r15.

use core::arch::{asm, naked_asm};

use super::Entry;

/// How many registers a function has to keep.
pub const KEPT: usize = 6;

/// Calls `function` with `arguments` and, in the registers that it has to keep, the words of `kept`. Stores there what
/// the registers hold afterwards.
///
/// # Safety
/// The function takes at most eight words and comes back.
#[unsafe(naked)]
pub unsafe extern "C" fn call_with(
    function: *const (),
    arguments: *const [usize; 8],
    kept: *mut [usize; KEPT],
) -> usize {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdx",
        "push qword ptr [rsi + 56]",
        "push qword ptr [rsi + 48]",
        "mov r11, rdi",
        "mov rbx, [rdx]",
        "mov rbp, [rdx + 8]",
        "mov r12, [rdx + 16]",
        "mov r13, [rdx + 24]",
        "mov r14, [rdx + 32]",
        "mov r15, [rdx + 40]",
        "mov rdi, [rsi]",
        "mov rdx, [rsi + 16]",
        "mov rcx, [rsi + 24]",
        "mov r8, [rsi + 32]",
        "mov r9, [rsi + 40]",
        "mov rsi, [rsi + 8]",
        "xor eax, eax",
        "call r11",
        "add rsp, 16",
        "pop rdx",
        "mov [rdx], rbx",
        "mov [rdx + 8], rbp",
        "mov [rdx + 16], r12",
        "mov [rdx + 24], r13",
        "mov [rdx + 32], r14",
        "mov [rdx + 40], r15",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// What [`note_entry`] has seen.
pub static mut SEEN: Entry = Entry {
    arguments: [0; 3],
    stack_pointer: 0,
    kept: [0; KEPT],
};

/// A handler that notes what it finds, and then does as compiled code does with registers that it need not keep.
#[unsafe(naked)]
pub unsafe extern "C" fn note_entry() {
    naked_asm!(
        "lea rax, [rip + {seen}]",
        "mov [rax], rdi",
        "mov [rax + 8], rsi",
        "mov [rax + 16], rdx",
        "mov [rax + 24], rsp",
        "mov [rax + 32], rbx",
        "mov [rax + 40], rbp",
        "mov [rax + 48], r12",
        "mov [rax + 56], r13",
        "mov [rax + 64], r14",
        "mov [rax + 72], r15",
        "xor ecx, ecx",
        "xor r8d, r8d",
        "xor r11d, r11d",
        "ret",
        seen = sym SEEN,
    )
}

/// The thread pointer, in whose place a word lies that holds it.
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the word is there in every thread that has a thread pointer.
    unsafe { asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly)) };
    pointer
}

/// Stands behind the instruction of a call as if the call had been interrupted, until a handler's stand-in has had it
/// made. Returns the result. Here the call is always brk: its number has to be in the code.
#[unsafe(naked)]
pub unsafe extern "C" fn spin_behind_call(_number: usize) -> usize {
    naked_asm!(
        "xor edi, edi",
        "xor ecx, ecx",
        "mov rax, -4",
        "jmp 3f",
        "mov eax, 12",
        "syscall",
        // The call changes rcx.
        "3:",
        "jrcxz 3b",
        "ret",
    )
}

/// Starts a function with an argument as an injector does: without a place to return to, on an aligned stack.
///
/// # Safety
/// The function never returns, and the stack is nobody's.
#[unsafe(naked)]
pub unsafe extern "C" fn start(function: *const (), argument: usize, stack_end: usize) -> ! {
    naked_asm!("mov rsp, rdx", "mov rax, rdi", "mov rdi, rsi", "jmp rax",)
}
