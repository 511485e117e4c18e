//! What the C library keeps of memory that was freed.
//!
//! glibc gives each thread a heap of its own, and raises the size from which a block is a mapping of its own to that of
//! the largest block freed so far. Each thread that ever had a large buffer then keeps as much for good: 11 MiB after
//! 200 `vswap swapoff`, of the 40 that the run had. With a size that is set once the heaps stay small, and a large
//! block goes back to the kernel when it is freed.
//!
//! Unsafe is needed here because the setting is a call of the C library.

/// Blocks from this size on are mappings of their own. It is glibc's value before it raises it.
#[cfg(target_env = "gnu")]
const OWN_MAPPING_BYTES: i32 = 128 << 10;

/// Lets large blocks go back to the kernel when they are freed. For the start of a process. Another C library than
/// glibc does so by itself.
pub fn give_large_blocks_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes plain integers. It changes where later blocks lie, which nobody relies on.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING_BYTES);
    }
}
