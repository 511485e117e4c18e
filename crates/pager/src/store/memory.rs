//! The engine's memory: runs of pages from one reservation.

use std::ops::RangeInclusive;
use std::ptr::NonNull;

use vswap_engine::PageSource;
use vswap_sys::memory::{HugePages, MemoryError, PageArena};
use vswap_sys::process::procfs;

/// Address space reserved for pool and frames: this many times the machine's memory, because a machine may be given
/// more, and runs of pages leave gaps. Only used pages take memory. `top` shows all of it as VIRT.
const RESERVED_TIMES: u64 = 4;
/// The least and the most that is reserved.
const RESERVED_BYTES: RangeInclusive<u64> = 1 << 36..=1 << 40;

/// A page source on mapped memory.
#[derive(Debug)]
pub struct MappedPages(PageArena);

impl MappedPages {
    /// Reserve the address space.
    ///
    /// # Errors
    /// `MemoryError` when the address space may not be reserved (RLIMIT_AS).
    pub fn new() -> Result<MappedPages, MemoryError> {
        let machine = procfs::meminfo().map_or(0, |memory| memory.total_bytes);
        let bytes = usize::try_from(reserved_bytes(machine)).unwrap_or(usize::MAX);
        Ok(MappedPages(PageArena::new(bytes, HugePages::Never)?))
    }
}

fn reserved_bytes(machine_bytes: u64) -> u64 {
    let bytes = machine_bytes.saturating_mul(RESERVED_TIMES);
    bytes
        .clamp(*RESERVED_BYTES.start(), *RESERVED_BYTES.end())
        .next_power_of_two()
}

// SAFETY: runs of the arena are mapped, page aligned and initialised by the kernel, and each has one user at a time.
// Unsafe is needed because the engine takes its memory as raw pointers, and the trait demands these promises.
unsafe impl PageSource for MappedPages {
    fn alloc(&self, pages: usize) -> Option<NonNull<u8>> {
        self.0.alloc(pages)
    }

    unsafe fn free(&self, run: NonNull<u8>, pages: usize) {
        // SAFETY: the caller gives back what `alloc` returned and does not use it any more.
        unsafe { self.0.free(run, pages) }
    }

    unsafe fn discard(&self, run: NonNull<u8>, pages: usize) {
        // SAFETY: the caller makes the promise that `clear` demands.
        unsafe { self.0.clear(run, pages) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_reserved_as_the_machine_may_come_to_have() {
        const GIB: u64 = 1 << 30;
        for (machine, reserved) in [(0, 64), (GIB, 64), (24 * GIB, 128), (900 * GIB, 1024)] {
            assert_eq!(reserved_bytes(machine), reserved * GIB);
        }
        assert_eq!(reserved_bytes(u64::MAX), 1024 * GIB);
    }
}
