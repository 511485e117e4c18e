//! The counter of aarch64.

/// A reading of the timer's virtual counter. On most machines it counts slower than the processor's clock: accesses
/// that take less than one of its ticks seem to take none.
#[must_use]
#[inline]
pub fn ticks() -> u64 {
    let now;
    // SAFETY: reading the counter has no effect on memory, and Linux lets programs read it. There is no safe function.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack, preserves_flags));
    }
    now
}
