//! What differs from machine to machine and is no code: names, numbers, and where addresses end.

mod address;
#[cfg_attr(target_arch = "x86_64", path = "machine/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "machine/aarch64.rs")]
mod this;

pub use address::untagged;
pub use this::{ADDRESSES_ENDS, ELF_MACHINE, NAME};
