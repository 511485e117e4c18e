//! Mistakes that the kernel's swap has made, each by its number in `docs/kernel-bugs.md`, tried on this engine.
//!
//! A test's comment says which mistake would make it fail. Races whose every interleaving can be tried are not here
//! but in `tests/races`; the table names them.

#![cfg(not(any(loom, shuttle)))]

mod coming_back;
mod counts;
mod leaving;
mod support;
mod words;
mod writing_back;
