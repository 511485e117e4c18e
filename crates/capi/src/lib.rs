//! The interface for C of an arena: `include/vswap.h` says what each call does.
//!
//! A call does as little as it can here: it looks at its arguments, has `vswap-arena` do the work, and turns what went
//! wrong into a code and a text. Nothing is kept but the handle of an arena and the last error of each thread.
//!
//! Nothing unwinds into C: a function that is `extern "C"` ends the process instead, and there is no panic that a
//! caller could provoke. What C does wrong with memory (frees twice, frees what is foreign) ends the process with a
//! message, because its memory cannot be trusted any more. Everything else is an error that is returned.
//!
//! Unsafe is needed here because all that C passes is addresses. Every function says under `Safety` what the header
//! demands of its caller.

// The floors, lowest first.

// What went wrong.
mod failure;
// What an arena is to be like; the handle.
mod options;
mod handle;
// What ThreadSanitizer has to know.
mod tsan;
// Memory as malloc gives it, and ranges of it.
mod memory;
mod range;
mod stats;
// System calls on memory of an arena.
mod way;
mod parts;
mod calls;
