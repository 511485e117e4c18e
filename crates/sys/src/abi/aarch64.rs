//! Numbers of system calls of aarch64, which are those of every newer architecture.

/// As filters see whose numbers these are (`AUDIT_ARCH_AARCH64`).
pub const ARCHITECTURE: u32 = 0xC000_00B7;
/// The same for the calls of 32-bit programs (`AUDIT_ARCH_ARM`).
pub const ARCHITECTURE_32_BIT: u32 = 0x4000_0028;

pub const IOCTL: u32 = 29;
pub const EXIT: u32 = 93;
pub const SET_TID_ADDRESS: u32 = 96;
pub const PTRACE: u32 = 117;
pub const RT_SIGACTION: u32 = 134;
pub const BRK: u32 = 214;
pub const MREMAP: u32 = 216;
pub const CLONE: u32 = 220;
pub const MMAP: u32 = 222;
pub const MADVISE: u32 = 233;
pub const SECCOMP: u32 = 277;
pub const IO_URING_SETUP: u32 = 425;
pub const CLONE3: u32 = 435;
pub const PROCESS_MADVISE: u32 = 440;
/// There is no such call: programs fork by `clone`. A number that no call has.
pub const FORK: u32 = i32::MAX.cast_unsigned();

/// Arguments of `clone`, besides flags and stack: where in the parent the child's id goes, and where in the child. The
/// thread pointer is between the two.
pub const CLONE_PARENT: usize = 2;
pub const CLONE_CHILD: usize = 4;
