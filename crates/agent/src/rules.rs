//! The switch that leaves rule P7 out (ARCHITECTURE.md, Rules of the pager), so that its test can be tested.
//!
//! Without the feature `break-rules`, which no product is built with, the rule holds. With it the environment variable
//! `VSWAP_BREAK_RULE` may name it; `cargo xtask rules` does that.

#[cfg(feature = "break-rules")]
use core::sync::atomic::{AtomicBool, Ordering};

/// Must the process die with its pager? In `.data`, as everything that the agent's thread reads.
#[cfg(feature = "break-rules")]
#[unsafe(link_section = ".data")]
static BROKEN: AtomicBool = AtomicBool::new(false);

/// Read the environment. Called by the constructor.
#[cfg(feature = "break-rules")]
pub fn read() {
    let named = crate::libc::environment(b"VSWAP_BREAK_RULE=");
    let broken = named.is_some_and(|name| name.to_bytes() == b"P7");
    BROKEN.store(broken, Ordering::SeqCst);
}

/// Is P7 kept in this run?
#[cfg(feature = "break-rules")]
pub fn dies_with_pager() -> bool {
    !BROKEN.load(Ordering::SeqCst)
}

/// There is nothing to read.
#[cfg(not(feature = "break-rules"))]
pub const fn read() {}

/// P7 is kept.
#[cfg(not(feature = "break-rules"))]
pub const fn dies_with_pager() -> bool {
    true
}
