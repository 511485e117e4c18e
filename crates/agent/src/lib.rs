//! The preloaded library inside the program: one thread that carries out the pager's commands, and three hooks.
//!
//! It is loaded into every dynamic program of a run by LD_PRELOAD. `init` finds the pager's socket in the environment
//! and starts a thread that libc does not know (`thread`); that thread opens everything else in a descriptor table of
//! its own and from then on carries out commands from the ring that it shares with the pager (`commands`). Program
//! threads run agent code in two places only: around a fork (`fork`) and at the start of a thread (`threads`).
//!
//! The agent allocates nothing, prints nothing unless it must kill the process (`die`), and never lets the program run
//! on when the pager is gone. If anything is missing at the start the program runs as if there were no agent. Nothing
//! here may touch memory that the pager could evict: statics lie in `.data`, which is file backed, never in `.bss`.

#![cfg_attr(panic = "abort", no_std)]

mod commands;
mod die;
mod filter;
mod fork;
mod init;
mod kernel;
mod libc;
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
mod socket;
mod state;
mod thread;
mod threads;
mod uffd;

/// Nothing in the agent panics; if something does all the same, the process must not go on.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    die::die(b"vswap-agent: internal error, process killed\n")
}

// core is compiled for unwinding and names this where it is linked with debug assertions. Nothing unwinds here.
#[cfg(panic = "abort")]
core::arch::global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    "ud2"
);
