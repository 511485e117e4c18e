//! The registers of aarch64: x19 to x28, and the lower halves of v8 to v15.

use core::arch::{asm, naked_asm};

use super::Entry;

/// How many registers a function has to keep.
pub const KEPT: usize = 18;

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
        "stp x29, x30, [sp, #-176]!",
        "mov x29, sp",
        "str x2, [sp, #160]",
        "add x9, sp, #16",
        "stp x19, x20, [x9]",
        "stp x21, x22, [x9, #16]",
        "stp x23, x24, [x9, #32]",
        "stp x25, x26, [x9, #48]",
        "stp x27, x28, [x9, #64]",
        "stp d8, d9, [x9, #80]",
        "stp d10, d11, [x9, #96]",
        "stp d12, d13, [x9, #112]",
        "stp d14, d15, [x9, #128]",
        "ldp x19, x20, [x2]",
        "ldp x21, x22, [x2, #16]",
        "ldp x23, x24, [x2, #32]",
        "ldp x25, x26, [x2, #48]",
        "ldp x27, x28, [x2, #64]",
        "ldp d8, d9, [x2, #80]",
        "ldp d10, d11, [x2, #96]",
        "ldp d12, d13, [x2, #112]",
        "ldp d14, d15, [x2, #128]",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [x17]",
        "ldp x2, x3, [x17, #16]",
        "ldp x4, x5, [x17, #32]",
        "ldp x6, x7, [x17, #48]",
        "blr x16",
        "ldr x2, [sp, #160]",
        "stp x19, x20, [x2]",
        "stp x21, x22, [x2, #16]",
        "stp x23, x24, [x2, #32]",
        "stp x25, x26, [x2, #48]",
        "stp x27, x28, [x2, #64]",
        "stp d8, d9, [x2, #80]",
        "stp d10, d11, [x2, #96]",
        "stp d12, d13, [x2, #112]",
        "stp d14, d15, [x2, #128]",
        "add x9, sp, #16",
        "ldp x19, x20, [x9]",
        "ldp x21, x22, [x9, #16]",
        "ldp x23, x24, [x9, #32]",
        "ldp x25, x26, [x9, #48]",
        "ldp x27, x28, [x9, #64]",
        "ldp d8, d9, [x9, #80]",
        "ldp d10, d11, [x9, #96]",
        "ldp d12, d13, [x9, #112]",
        "ldp d14, d15, [x9, #128]",
        "ldp x29, x30, [sp], #176",
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
        "hint #34",
        "adrp x9, {seen}",
        "add x9, x9, #:lo12:{seen}",
        "mov x10, sp",
        "stp x0, x1, [x9]",
        "stp x2, x10, [x9, #16]",
        "stp x19, x20, [x9, #32]",
        "stp x21, x22, [x9, #48]",
        "stp x23, x24, [x9, #64]",
        "stp x25, x26, [x9, #80]",
        "stp x27, x28, [x9, #96]",
        "stp d8, d9, [x9, #112]",
        "stp d10, d11, [x9, #128]",
        "stp d12, d13, [x9, #144]",
        "stp d14, d15, [x9, #160]",
        "mov x8, #0",
        "mov x15, #0",
        "fmov d0, xzr",
        "ret",
        seen = sym SEEN,
    )
}

/// The thread pointer.
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: this only reads a register.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem)) };
    pointer
}

/// Stands behind the instruction of a call as if the call had been interrupted, until a handler's stand-in has had it
/// made or has put a result there. Returns the result. mmap is given a page of private anonymous memory.
#[unsafe(naked)]
pub unsafe extern "C" fn spin_behind_call(number: usize) -> usize {
    naked_asm!(
        "mov x8, x0",
        "mov x1, #4096",
        "mov x2, #3",
        "mov x3, #0x22",
        "mov x4, #-1",
        "mov x5, #0",
        "mov x0, #-4",
        "b 3f",
        "svc #0",
        // While the result is below 0.
        "3:",
        "tbnz x0, #63, 3b",
        "ret",
    )
}

/// Starts a function with an argument as an injector does: without a place to return to, on an aligned stack.
///
/// # Safety
/// The function never returns, and the stack is nobody's.
#[unsafe(naked)]
pub unsafe extern "C" fn start(function: *const (), argument: usize, stack_end: usize) -> ! {
    naked_asm!("mov sp, x2", "mov x16, x0", "mov x0, x1", "br x16",)
}
