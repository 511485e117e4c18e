//! Numbers of the kernel's interface that agent and pager both need.
//!
//! The agent takes this file as it is, and has no crate with the kernel's headers. A test compares with those.

/// System calls that the filter stops.
// By path, because the agent includes this file from another folder.
#[cfg_attr(target_arch = "x86_64", path = "abi/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "abi/aarch64.rs")]
pub mod call;

/// Advice of `madvise`.
pub mod advice {
    pub const DONTNEED: u32 = 4;
    pub const FREE: u32 = 8;
    pub const DONTFORK: u32 = 10;
    pub const NOHUGEPAGE: u32 = 15;
    pub const WIPEONFORK: u32 = 18;
    pub const KEEPONFORK: u32 = 19;
    pub const POPULATE_WRITE: u32 = 23;
    pub const DONTNEED_LOCKED: u32 = 24;
    pub const GUARD_INSTALL: u32 = 102;
    pub const GUARD_REMOVE: u32 = 103;
}

/// Flags of `mremap`.
pub mod remap {
    pub const MAYMOVE: u32 = 1;
    pub const FIXED: u32 = 2;
    pub const DONTUNMAP: u32 = 4;
}
