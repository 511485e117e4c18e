//! The compiler's functions on x86-64.

use core::arch::global_asm;

global_asm!(
    ".pushsection .text.vswap_memory, \"ax\", @progbits",
    ".globl memcpy, memset, strlen",
    ".hidden memcpy, memset, strlen",
    "memcpy:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "memset:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "strlen:",
    "xor eax, eax",
    "2:",
    "cmp byte ptr [rdi + rax], 0",
    "je 3f",
    "inc rax",
    "jmp 2b",
    "3:",
    "ret",
    ".popsection",
);

#[cfg(panic = "abort")]
global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    "ud2"
);
