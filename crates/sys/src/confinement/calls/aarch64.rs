//! What the lists have besides on aarch64: nothing. Every call that it has is one that x86-64 has too.

use libc::c_long;

/// As in the parent.
pub const ALLOWED: &[c_long] = &[];

/// As in the parent.
pub const TRACING: &[u32] = &[];

/// As in the parent.
pub const FATAL: &[c_long] = &[];
