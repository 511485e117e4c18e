//! The compiler's functions on aarch64. Each begins with `bti c`, as what is called by address must where the kernel
//! checks that.

mod atomics;

use core::arch::global_asm;

global_asm!(
    ".pushsection .text.vswap_memory, \"ax\", @progbits",
    ".p2align 2",
    ".globl memcpy, memset, strlen",
    ".hidden memcpy, memset, strlen",
    "memcpy:",
    "hint #34",
    "mov x3, x0",
    "cbz x2, 3f",
    "2:",
    "ldrb w4, [x1], #1",
    "strb w4, [x3], #1",
    "subs x2, x2, #1",
    "b.ne 2b",
    "3:",
    "ret",
    "memset:",
    "hint #34",
    "mov x3, x0",
    "cbz x2, 3f",
    "2:",
    "strb w1, [x3], #1",
    "subs x2, x2, #1",
    "b.ne 2b",
    "3:",
    "ret",
    "strlen:",
    "hint #34",
    "mov x1, x0",
    "2:",
    "ldrb w2, [x1], #1",
    "cbnz w2, 2b",
    "sub x0, x1, x0",
    "sub x0, x0, #1",
    "ret",
    ".popsection",
);

#[cfg(panic = "abort")]
global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    ".p2align 2",
    "rust_eh_personality:",
    "udf #0"
);
