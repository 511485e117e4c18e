//! Calls a function with known values in all registers that a function has to keep, for the tests of functions that are
//! written in assembly.

// How that is done.
#[cfg_attr(target_arch = "x86_64", path = "registers/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "registers/aarch64.rs")]
mod machine;

use self::machine::{KEPT, SEEN};
pub use self::machine::{note_entry, spin_behind_call, start, thread_pointer};

/// Values that nobody else has.
fn known() -> [usize; KEPT] {
    core::array::from_fn(|index| 0x5eed_0000_0000 + index * 0x0101_0101)
}

/// Calls the function at this address with eight words. Panics if it does not keep what it has to.
pub fn call_and_check(function: *const (), arguments: [usize; 8]) -> usize {
    let mut kept = known();
    // SAFETY: the function takes at most eight words. The buffers are as large as the code wants.
    let returned = unsafe { machine::call_with(function, &raw const arguments, &raw mut kept) };
    assert_eq!(kept, known());
    returned
}

/// What [`note_entry`] has seen the last time.
pub fn seen() -> Entry {
    // SAFETY: the handler runs only inside a call of the thread that asks here.
    unsafe { (&raw const SEEN).read_volatile() }
}

/// What [`note_entry`] saw when the kernel, or a stand-in, called it as a handler.
#[repr(C)]
#[derive(Debug)]
pub struct Entry {
    /// Its three arguments.
    pub arguments: [usize; 3],
    pub stack_pointer: usize,
    pub kept: [usize; KEPT],
}

impl Entry {
    /// Are the registers those of [`call_and_check`]?
    pub fn has_known_registers(&self) -> bool {
        self.kept == known()
    }
}

/// An int as an argument.
pub fn word(int: i32) -> usize {
    int.cast_unsigned() as usize
}

/// What a function that returns an int has returned.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the rest of the register means nothing"
)]
pub fn int(returned: usize) -> i32 {
    (returned as u32).cast_signed()
}
