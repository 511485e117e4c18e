//! Atomic operations that the compiler calls on aarch64.
//!
//! The first processors of this kind have no instructions for them, and the compiler's own functions ask libc what the
//! processor has, keep the answer in `.bss` and add constructors. All of that is out here. So these do without: each is
//! a loop of an exclusive load and an exclusive store, which every processor has. All are as strict as the strictest.
//!
//! Names and registers as the compiler has them: the name ends with the size in bytes and the order of memory. A
//! compare-and-swap has its expected value in x0, the new one in x1 and the address in x2; all others have their value
//! in x0 and the address in x1. The old value is returned. x15 to x17 are free. What a name here would miss, the linker
//! takes from the compiler; the test of the exports sees that.

use core::arch::global_asm;

global_asm!(
    // One function under the names of all four orders.
    ".macro vswap_named operation, size",
    ".irp order, relax, acq, rel, acq_rel",
    ".globl __aarch64_\\operation\\size\\()_\\order",
    ".hidden __aarch64_\\operation\\size\\()_\\order",
    "__aarch64_\\operation\\size\\()_\\order:",
    ".endr",
    "hint #34",
    ".endm",
    // `suffix` is that of exclusive accesses of this size, `r` the kind of register, `extend` clears what is above.
    ".macro vswap_swap size, suffix, r, extend",
    "vswap_named cas, \\size",
    "\\extend \\r\\()16, \\r\\()0",
    "2:",
    "ldaxr\\suffix \\r\\()0, [x2]",
    "cmp \\r\\()0, \\r\\()16",
    "b.ne 3f",
    "stlxr\\suffix w17, \\r\\()1, [x2]",
    "cbnz w17, 2b",
    "3:",
    "ret",
    "vswap_named swp, \\size",
    "mov \\r\\()16, \\r\\()0",
    "2:",
    "ldaxr\\suffix \\r\\()0, [x1]",
    "stlxr\\suffix w17, \\r\\()16, [x1]",
    "cbnz w17, 2b",
    "ret",
    ".endm",
    ".macro vswap_change operation, instruction, size, suffix, r",
    "vswap_named \\operation, \\size",
    "mov \\r\\()16, \\r\\()0",
    "2:",
    "ldaxr\\suffix \\r\\()0, [x1]",
    "\\instruction \\r\\()17, \\r\\()0, \\r\\()16",
    "stlxr\\suffix w15, \\r\\()17, [x1]",
    "cbnz w15, 2b",
    "ret",
    ".endm",
    ".macro vswap_all size, suffix, r, extend",
    "vswap_swap \\size, \\suffix, \\r, \\extend",
    "vswap_change ldadd, add, \\size, \\suffix, \\r",
    "vswap_change ldclr, bic, \\size, \\suffix, \\r",
    "vswap_change ldeor, eor, \\size, \\suffix, \\r",
    "vswap_change ldset, orr, \\size, \\suffix, \\r",
    ".endm",
    ".pushsection .text.vswap_atomics, \"ax\", @progbits",
    ".p2align 2",
    "vswap_all 1, b, w, uxtb",
    "vswap_all 2, h, w, uxth",
    "vswap_all 4, , w, mov",
    "vswap_all 8, , x, mov",
    ".popsection",
    ".purgem vswap_all",
    ".purgem vswap_change",
    ".purgem vswap_swap",
    ".purgem vswap_named",
);
