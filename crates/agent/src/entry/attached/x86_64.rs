//! The entry point of the library on x86-64 (build.rs).

use core::arch::naked_asm;

use super::attached;

/// The address of the parameters is in rdi.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_attached() -> ! {
    naked_asm!("call {attached}", "ud2", attached = sym attached)
}
