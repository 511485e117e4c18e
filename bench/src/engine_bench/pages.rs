//! The memory of a measured engine: mapped as `vswap run` maps it, and counted.
//!
//! Unsafe is needed here because `PageSource` and `PageArena` hand out raw memory, and the compiler cannot check their
//! promises.

use std::ptr::NonNull;

use vswap_engine::{PAGE_BYTES, Page, PageSource};
use vswap_sys::memory::{HugePages, PageArena};

use crate::engine_bench::Failure;

/// Address space of one engine. Only the used part takes memory. 64 GiB is ten times what the largest table needs.
const RESERVATION_BYTES: usize = 1 << 36;

/// A page source on mapped memory. The memory of an empty table goes back to the system, which costs the same system
/// call as in `vswap run`.
#[derive(Debug)]
pub(crate) struct MappedPages(PageArena);

impl MappedPages {
    pub(crate) fn new() -> Result<MappedPages, Failure> {
        let arena = PageArena::new(RESERVATION_BYTES, HugePages::Never);
        Ok(MappedPages(arena.map_err(Failure::of(
            "no address space for the engine's memory: raise the limit (ulimit -v)",
        ))?))
    }

    /// Bytes that the engine holds: its frames, and those of its tables that were ever in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.0.used_bytes()
    }
}

// SAFETY: Runs of the arena are mapped, page aligned, initialised by the kernel, and given to one user at a time.
unsafe impl PageSource for MappedPages {
    fn alloc(&self, pages: usize) -> Option<NonNull<u8>> {
        self.0.alloc(pages)
    }

    unsafe fn free(&self, run: NonNull<u8>, pages: usize) {
        // SAFETY: By contract the caller hands back an unused run that came from `alloc`.
        unsafe { self.0.free(run, pages) }
    }

    unsafe fn discard(&self, run: NonNull<u8>, pages: usize) {
        // SAFETY: The caller makes the same promise.
        unsafe { self.0.clear(run, pages) }
    }
}

/// Fills a page with words of eight bytes.
pub(crate) fn fill_words(page: &mut Page, mut word: impl FnMut() -> u64) {
    let (words, _) = page.0.as_chunks_mut::<8>();
    words.iter_mut().for_each(|to| *to = word().to_le_bytes());
}

/// Bytes of memory that this process has now, according to `/proc/self/statm`.
pub(crate) fn resident_bytes() -> Result<u64, Failure> {
    let statm = std::fs::read_to_string("/proc/self/statm").map_err(Failure::of(
        "cannot read /proc/self/statm: is /proc mounted?",
    ))?;
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|word| word.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| Failure::new("/proc/self/statm has no second number"))?;
    Ok(pages * PAGE_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted() {
        let pages = MappedPages::new().unwrap();
        assert_eq!(pages.used_bytes(), 0);
        let run = pages.alloc(2).unwrap();
        assert_eq!(pages.used_bytes(), 2 * PAGE_BYTES as u64);
        // SAFETY: The run came from `alloc(2)` just now and is not used again.
        unsafe { pages.free(run, 2) };
        assert_eq!(pages.used_bytes(), 0);
        assert!(resident_bytes().unwrap() > 0);
    }
}
