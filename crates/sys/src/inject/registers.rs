//! The registers of a stopped thread: reading, writing, and what they have to be for a call, for other code and for
//! going on.
//!
//! How they are read and what they mean is the machine's matter; the rest of this folder names none of them.

#[cfg_attr(target_arch = "x86_64", path = "registers/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "registers/aarch64.rs")]
mod machine;
mod regset;

pub(super) use machine::{ALL_WRITTEN_AT_CALLS, Registers, Vectors, call_instruction_in};
