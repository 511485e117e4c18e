//! x86-64.

/// How messages call it.
pub const NAME: &str = "x86-64";
/// Its programs' number in their headers (`EM_X86_64`).
pub const ELF_MACHINE: u16 = 62;
/// Where the addresses of a process may end (`TASK_SIZE`), unless it asks for more: the largest first.
pub const ADDRESSES_ENDS: &[u64] = &[(1 << 47) - 4096];
/// Bits of an address that the kernel does not look at where a call names memory that is there.
pub const IGNORED_BITS: u64 = 0;
/// What whoever has an older kernel than the oldest for vswap is told. That one is the first with `UFFDIO_MOVE`.
pub const NEWER_KERNEL: &str = "use a newer kernel: Linux 6.8 or later";
