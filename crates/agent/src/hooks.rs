//! What program threads run of the agent: around forks, and in place of functions of libc.
//!
//! A function in here that the agent exports comes before libc's of the same name. Only `arenas` is for programs that
//! know vswap.

pub mod herald;
pub mod fork;
mod alone;
mod sandbox;
pub mod clones;
pub mod execs;
pub mod signals;
pub mod unseen;
mod arenas;
