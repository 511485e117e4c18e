//! The preloaded library inside the program: one thread that carries out the pager's commands, and a few hooks.
//!
//! LD_PRELOAD loads it into every dynamic program of a run. `init` finds the pager's socket in the environment and
//! starts a thread that libc does not know (`thread`). That thread opens everything else in a descriptor table of its
//! own. From then on it carries out commands from the ring that it shares with the pager (`commands`). Program threads
//! run agent code around a fork (`fork`), whichever function of libc makes the fork (`clones`), and when they ask for
//! the list of libraries (`unseen`).
//!
//! The agent allocates nothing and prints nothing unless it must kill the process (`die`). It never lets the program
//! run on when the pager is gone. If anything is missing at the start, the program runs as if there were no agent.
//! Nothing here may touch memory that the pager could evict: statics lie in `.data`, which is file backed, never in
//! `.bss`.
//!
//! Unsafe is needed throughout this crate. The agent may not use std, rustix or libc's wrappers: they use thread-local
//! storage (errno), may allocate, and cost time in every exec. So each system call is a bare one through `raw`, and the
//! compiler cannot check what the kernel does with its arguments. Only soundness is said at the single calls.

#![cfg_attr(panic = "abort", no_std)]

#[allow(dead_code, reason = "shared with the pager, which uses the rest")]
#[path = "../../sys/src/abi.rs"]
mod abi;
mod alone;
mod aside;
mod attached;
mod clones;
mod commands;
mod die;
mod execs;
mod filter;
mod fork;
mod init;
mod kernel;
mod libc;
mod limits;
#[allow(
    dead_code,
    reason = "shared with vswap-sys, which has std; the agent needs some of it"
)]
#[path = "../../sys/src/raw.rs"]
mod raw;
mod reservation;
#[allow(dead_code, reason = "shared with the pager, which uses the rest")]
#[path = "../../sys/src/ring.rs"]
mod ring;
mod rules;
mod sandbox;
mod socket;
mod state;
mod thread;
mod uffd;
mod unseen;

/// Nothing in the agent panics. If something does all the same, the process must not go on.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    die::die(b"vswap-agent: internal error, process killed\n")
}

// core is compiled for unwinding and names this symbol where it is linked with debug assertions. Nothing unwinds here.
#[cfg(panic = "abort")]
core::arch::global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    "ud2"
);
