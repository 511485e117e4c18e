//! The switch that breaks rule P7 (ARCHITECTURE.md, Rules of the pager), so that the test of P7 can be tested.
//!
//! No product is built with the feature `break-rules`; without it the rule holds. With it the environment variable
//! `VSWAP_BREAK_RULE` may name the rule; `cargo xtask rules` sets that variable.

#[cfg(feature = "break-rules")]
use core::sync::atomic::{AtomicBool, Ordering};

/// Is P7 broken? In `.data`, like everything that the agent's thread reads.
#[cfg(feature = "break-rules")]
#[unsafe(link_section = ".data")]
static BROKEN: AtomicBool = AtomicBool::new(false);

/// Reads the environment. Called by the constructor.
#[cfg(feature = "break-rules")]
pub fn read() {
    let named = crate::base::libc::environment(b"VSWAP_BREAK_RULE=");
    let broken = named.is_some_and(|name| name.to_bytes() == b"P7");
    BROKEN.store(broken, Ordering::SeqCst);
}

/// Is P7 kept in this run?
#[cfg(feature = "break-rules")]
pub fn dies_with_pager() -> bool {
    !BROKEN.load(Ordering::SeqCst)
}

/// Does nothing: there is no variable to read.
#[cfg(not(feature = "break-rules"))]
pub const fn read() {}

/// P7 is always kept.
#[cfg(not(feature = "break-rules"))]
pub const fn dies_with_pager() -> bool {
    true
}
