//! What the compiler takes for granted, and what a program without std does not have.
//!
//! It calls functions that copy and fill memory, and there may be no libc. They are hidden: the program's own calls go
//! to its libc. Few and short copies are made, so a byte at a time will do.
//!
//! core is compiled for unwinding, and names `rust_eh_personality` where it is linked with debug assertions. Nothing
//! unwinds here, so whoever comes there is stopped.

#[cfg_attr(target_arch = "x86_64", path = "runtime/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "runtime/aarch64.rs")]
mod machine;

#[cfg(test)]
#[path = "runtime/tests.rs"]
mod tests;
