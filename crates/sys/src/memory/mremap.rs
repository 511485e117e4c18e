//! What this kernel's mremap can do.
//!
//! Unsafe is needed here because mappings are made, moved and unmapped by address.

use std::sync::OnceLock;

/// Does one mremap call move several mappings (Linux 6.17)? Tried once, on memory made for it.
pub fn moves_several_mappings() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(try_it)
}

fn try_it() -> bool {
    const PAGE: usize = 4096;
    const PAGES: usize = 2;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let map = || {
        // SAFETY: without MAP_FIXED the kernel picks a place where nothing is mapped.
        unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * PAGE,
                libc::PROT_READ,
                private,
                -1,
                0,
            )
        }
    };
    let (from, to) = (map(), map());
    if from == libc::MAP_FAILED || to == libc::MAP_FAILED {
        return false;
    }
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both ranges were mapped just now and nobody else knows of them. Unmapping a range that has moved away
    // does nothing.
    unsafe {
        // A different protection splits the range into two mappings.
        libc::mprotect(from, PAGE, libc::PROT_NONE);
        let moved = libc::mremap(from, PAGES * PAGE, PAGES * PAGE, flags, to);
        libc::munmap(to, PAGES * PAGE);
        if moved == libc::MAP_FAILED {
            libc::munmap(from, PAGES * PAGE);
        }
        moved != libc::MAP_FAILED
    }
}
