//! aarch64.

/// How messages call it.
pub const NAME: &str = "Arm";
/// Its programs' number in their headers (`EM_AARCH64`).
pub const ELF_MACHINE: u16 = 183;
/// Where the addresses of a process may end (`DEFAULT_MAP_WINDOW`), unless it asks for more: the largest first. It is
/// the kernel's configuration (`CONFIG_ARM64_VA_BITS`) that decides.
pub const ADDRESSES_ENDS: &[u64] = &[1 << 48, 1 << 47, 1 << 42, 1 << 39, 1 << 36];
/// Bits of an address that the kernel does not look at where a call names memory that is there. The processor ignores
/// the highest byte of a pointer too, and programs keep tags there.
pub const IGNORED_BITS: u64 = 0xFF << 56;
/// What whoever has an older kernel than the oldest for vswap is told. That one is the first that can protect pages
/// from writing for a userfaultfd.
pub const NEWER_KERNEL: &str = "use a newer kernel: Linux 6.10 or later";
