//! `sigaction` on aarch64.

use core::arch::naked_asm;

use super::act;

/// libc's `sigaction`.
///
/// # Safety
/// As for sigaction(2).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction() {
    naked_asm!("hint #34", "b {act}", act = sym act)
}

/// The other name of `sigaction`.
///
/// # Safety
/// As for sigaction(2).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction() {
    naked_asm!("hint #34", "b {act}", act = sym act)
}
