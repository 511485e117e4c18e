//! Numbers of the kernel's interface that agent and pager both need.
//!
//! The agent takes this file as it is, and has no crate with the kernel's headers. A test compares with those.

/// System calls that the filter stops.
pub mod call {
    pub const MMAP: u32 = 9;
    pub const BRK: u32 = 12;
    pub const RT_SIGACTION: u32 = 13;
    pub const IOCTL: u32 = 16;
    pub const MREMAP: u32 = 25;
    pub const MADVISE: u32 = 28;
    pub const CLONE: u32 = 56;
    pub const FORK: u32 = 57;
    pub const EXIT: u32 = 60;
    pub const PTRACE: u32 = 101;
    pub const SET_TID_ADDRESS: u32 = 218;
    pub const SECCOMP: u32 = 317;
    pub const IO_URING_SETUP: u32 = 425;
    pub const CLONE3: u32 = 435;
    pub const PROCESS_MADVISE: u32 = 440;
}

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
