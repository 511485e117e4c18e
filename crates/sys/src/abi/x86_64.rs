//! Numbers of system calls of x86-64.

/// As filters see whose numbers these are (`AUDIT_ARCH_X86_64`).
pub const ARCHITECTURE: u32 = 0xC000_003E;
/// The same for the calls of 32-bit programs (`AUDIT_ARCH_I386`).
pub const ARCHITECTURE_32_BIT: u32 = 0x4000_0003;

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

/// Arguments of `clone`, besides flags and stack: where in the parent the child's id goes, and where in the child.
pub const CLONE_PARENT: usize = 2;
pub const CLONE_CHILD: usize = 3;
