//! Seeded content of pages: every word depends on a tag, a version and the word's place.
//!
//! Version 0 stands for a page that was never written or was given back: it must read as zeros. All words of other
//! versions are non-zero, so that lost pages never look right.

use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use vswap_drive::random::{Random, mix};

use crate::wrong::{Checked, Wrong};

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// Set by `--sabotage` until the first strike. Relaxed, because it guards nothing.
static SABOTAGE: AtomicBool = AtomicBool::new(false);

pub(crate) fn arm_sabotage() {
    SABOTAGE.store(true, Ordering::Relaxed);
}

/// Flips one bit of the page if sabotage was asked for and has not happened yet. Victims call it where a later check
/// must notice the damage.
pub(crate) fn strike(page: *mut u64) {
    if SABOTAGE.swap(false, Ordering::Relaxed) {
        // SAFETY: victims pass their own pages, which are mapped and writable.
        unsafe { *page.add(PAGE_WORDS / 2 + 3) ^= 1 << 21 };
    }
}

/// Word `index` of a page. A quarter of the words is noise and the rest is regular, so that pages compress about 3x.
pub(crate) const fn word(tag: u64, version: u32, index: usize) -> u64 {
    if version == 0 {
        return 0;
    }
    match index & 3 {
        0 => mix(tag ^ (version as u64) << 40 ^ index as u64) | 1,
        1 => tag | 1,
        2 => 1 << 63 | version as u64,
        _ => 0x0101_0101_0000_0000 | index as u64,
    }
}

/// Writes a page.
///
/// # Safety
/// `page` is mapped and writable for a page, and nobody else uses it meanwhile.
pub(crate) unsafe fn fill(page: *mut u64, tag: u64, version: u32) {
    for index in 0..PAGE_WORDS {
        // SAFETY: the word is inside the page, for which the caller vouches.
        unsafe { page.add(index).write_volatile(word(tag, version, index)) };
    }
}

/// Compares every word of a page with what it must contain.
///
/// # Safety
/// `page` is mapped and readable for a page, and nobody writes it meanwhile.
pub(crate) unsafe fn check(
    what: &'static str,
    page: *const u64,
    tag: u64,
    version: u32,
) -> Checked {
    for index in 0..PAGE_WORDS {
        let expected = word(tag, version, index);
        // SAFETY: the word is inside the page, for which the caller vouches.
        let found = unsafe { page.add(index).read_volatile() };
        if found != expected {
            let address = page.addr() + index * 8;
            return Err(Wrong::Content {
                what,
                address,
                page: page.addr() / PAGE_BYTES,
                word: index,
                expected,
                found,
            });
        }
    }
    Ok(())
}
