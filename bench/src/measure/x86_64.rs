//! The counter of x86-64.

/// A reading of the time-stamp counter.
#[must_use]
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: reading the counter has no effect on memory, and every x86-64 has it. There is no safe function for it.
    unsafe { core::arch::x86_64::_rdtsc() }
}
