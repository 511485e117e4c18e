//! The engine's memory: runs of pages from one reservation.

use std::ptr::NonNull;

use vswap_engine::PageSource;
use vswap_sys::memory::{HugePages, MemoryError, PageArena, RUN_PAGES_MAX};
use vswap_sys::process::procfs;

/// Address space reserved for pool and frames: all that page numbers of an arena can name, 16 TiB less a page. Runs are
/// never joined. So in the worst order of lengths, what holds up to B bytes at a time needs `RUN_PAGES_MAX` times B.
/// This is enough for B = 2 TiB, whatever the limit is now or becomes, and however much memory the machine gets. Only
/// used pages take memory. `top` shows all of it as VIRT.
const RESERVED_BYTES: u64 = (1 << 44) - 4096;
/// The least that is of use.
const RESERVED_LEAST_BYTES: u64 = 1 << 30;

/// A page source on mapped memory.
#[derive(Debug)]
pub struct MappedPages(PageArena);

impl MappedPages {
    /// Reserve the address space, or part of it if the kernel allows no more.
    ///
    /// # Errors
    /// `MemoryError` when not even the least may be reserved.
    pub fn new() -> Result<MappedPages, MemoryError> {
        let map = |bytes| {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            PageArena::new(bytes, HugePages::Never)
        };
        let arena = reserve(map)?;
        let machine = procfs::meminfo().map_or(0, |memory| memory.total_bytes);
        let reserved = arena.bytes().reserved;
        if !is_enough(reserved, machine) {
            tracing::warn!(
                "only {} MiB of addresses can be reserved for swapped pages: raise ulimit -v, or set \
                 vm.overcommit_memory to 0 or 1; when they are used up, pages stay in the programs' memory",
                reserved >> 20
            );
        }
        Ok(MappedPages(arena))
    }
}

/// Map all, else half of the most that the kernel allows. The other half is left to others: where less is allowed, what
/// is reserved counts against what all of this process or machine may have.
fn reserve<T>(map: impl Fn(u64) -> Result<T, MemoryError>) -> Result<T, MemoryError> {
    if let Ok(all) = map(RESERVED_BYTES) {
        return Ok(all);
    }
    let mut bytes = RESERVED_BYTES.next_power_of_two() / 2;
    loop {
        match map(bytes) {
            Ok(most) => {
                drop(most);
                return map(bytes / 2);
            }
            Err(refused) if bytes <= 2 * RESERVED_LEAST_BYTES => return Err(refused),
            Err(_) => bytes /= 2,
        }
    }
}

/// Can the machine's memory be swapped pages in any order of lengths?
fn is_enough(reserved_bytes: u64, machine_bytes: u64) -> bool {
    reserved_bytes / RUN_PAGES_MAX as u64 >= machine_bytes || reserved_bytes == RESERVED_BYTES
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

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_limit_of_512_gib_has_addresses_for_the_worst_order_of_lengths() {
        let limit = 512 * GIB;
        let pages = MappedPages::new().unwrap();
        let reserved = pages.0.bytes().reserved;
        assert!(reserved >= RUN_PAGES_MAX as u64 * limit, "{reserved} bytes");
        assert_eq!(reserved, RESERVED_BYTES);
        // Page numbers name no more.
        assert_eq!(RESERVED_BYTES / 4096, u64::from(u32::MAX));
    }

    #[test]
    fn less_is_reserved_where_less_is_allowed_and_half_of_that_is_left() {
        let most = |allowed: u64| {
            reserve(|bytes| match usize::try_from(bytes) {
                Ok(_) if bytes <= allowed => Ok(bytes),
                number => Err(MemoryError::Refused {
                    bytes: number.unwrap_or(usize::MAX),
                    errno: 12,
                }),
            })
        };
        assert_eq!(most(u64::MAX), Ok(RESERVED_BYTES));
        for allowed in [3 * GIB, 65 * GIB, 500 * GIB, RESERVED_BYTES - 1] {
            let reserved = most(allowed).unwrap();
            assert!(reserved <= allowed / 2, "{reserved} of {allowed}");
            assert!(reserved >= allowed / 4, "{reserved} of {allowed}");
        }
        assert!(most(GIB).is_err() && most(0).is_err());
    }

    #[test]
    fn it_is_told_when_the_machine_has_more_memory_than_addresses_serve() {
        assert!(is_enough(RESERVED_BYTES, 24 * GIB) && is_enough(RESERVED_BYTES, 8192 * GIB));
        assert!(is_enough(256 * GIB, 24 * GIB) && !is_enough(128 * GIB, 24 * GIB));
    }
}
