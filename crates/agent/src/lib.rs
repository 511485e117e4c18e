//! The preloaded library inside the program: one thread that carries out the pager's commands, and a few hooks.
//!
//! LD_PRELOAD loads it into every dynamic program of a run. `entry` finds the pager's socket in the environment and
//! starts a thread that libc does not know (`thread`). That thread opens everything else in a descriptor table of its
//! own (`session`). From then on it carries out commands from the ring that it shares with the pager (`commands`).
//! Program threads run agent code around a fork, whichever function of libc makes the fork, and in place of some other
//! functions of libc (`hooks`).
//!
//! The agent allocates nothing and prints nothing unless it must kill the process (`base/die.rs`). It never lets the
//! program run on when the pager is gone. If anything is missing at the start, the program runs as if there were no
//! agent. Nothing here may touch memory that the pager could evict: statics lie in `.data`, which is file backed, never
//! in `.bss`.
//!
//! Unsafe is needed throughout this crate. The agent may not use std, rustix or libc's wrappers: they use thread-local
//! storage (errno), may allocate, and cost time in every exec. So each system call is a bare one through `raw`, and the
//! compiler cannot check what the kernel does with its arguments. Only soundness is said at the single calls.

#![cfg_attr(panic = "abort", no_std)]

// The floors, lowest first: a module names only modules above it in this list (`cargo xtask tidy` checks that).

// What agent and pager share.
#[allow(dead_code, reason = "shared with the pager, which uses the rest")]
#[path = "../../sys/src/abi.rs"]
mod abi;
#[allow(
    dead_code,
    reason = "shared with vswap-sys, which has std; the agent needs some of it"
)]
#[path = "../../sys/src/raw.rs"]
mod raw;
#[allow(dead_code, reason = "shared with the pager, which uses the rest")]
#[path = "../../sys/src/ring.rs"]
mod ring;
// Bare calls of kernel and libc, limits, the end of the process.
mod base;
// What the agent has in a process: one static and one mapping.
mod state;
// What the agent's thread holds: the connection and the userfaultfds.
mod session;
// What the pager asks for: moving pages, trapped calls, the filter.
mod commands;
// The agent's thread, from its start to its end.
mod thread;
// What program threads run: around forks, and in place of functions of libc.
mod hooks;
// Where it all begins in a process.
mod entry;
// Registers, for tests of what is written in assembly.
#[cfg(test)]
#[path = "tests/registers.rs"]
mod registers_tests;

/// Nothing in the agent panics. If something does all the same, the process must not go on.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    base::die::die(b"vswap-agent: internal error, process killed\n")
}
