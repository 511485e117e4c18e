//! The entry point of the library on aarch64 (build.rs).

use core::arch::naked_asm;

use super::attached;

/// The address of the parameters is in x0. The chain of frames ends here: what the registers hold is the program's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_attached() -> ! {
    naked_asm!(
        "hint #34",
        "mov x29, xzr",
        "mov x30, xzr",
        "bl {attached}",
        "udf #0",
        attached = sym attached,
    )
}
