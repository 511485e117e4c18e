//! What differs from machine to machine and is no code: names, numbers, addresses, and the size of pages.

mod address;
mod page_size;
#[cfg_attr(target_arch = "x86_64", path = "machine/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "machine/aarch64.rs")]
mod this;

pub use address::untagged;
pub use page_size::{OtherPages, check_page_size};
pub use this::{ADDRESSES_ENDS, ELF_MACHINE, NAME, NEWER_KERNEL};
