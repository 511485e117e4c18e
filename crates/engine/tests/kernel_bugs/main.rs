//! Mistakes that the kernel's swap has made, tried on this engine. Each has its number in `docs/kernel-bugs.md`.
//!
//! A test's comment says which mistake would make it fail. Races whose every interleaving can be tried are not here but
//! in `tests/races`; the table names them.

#![cfg(not(any(loom, shuttle)))]

mod coming_back;
mod counts;
mod leaving;
mod support;
mod words;
mod writing_back;
