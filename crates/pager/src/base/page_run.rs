//! Runs of pages, as an eviction window names them.

use std::ops::Range;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Above the last page of any program: the half of the addresses that is the kernel's begins there, if page tables have
/// five levels. The address of this page, and of any below it, is a number that can be reckoned with.
pub const PAGES_END: u64 = (1 << 56) / PAGE_BYTES;

/// The pages that `bytes` bytes from address `start` on touch, as far as a program can have them.
pub fn pages_of(start: u64, bytes: u64) -> Range<u64> {
    let end = start.saturating_add(bytes).div_ceil(PAGE_BYTES);
    (start / PAGE_BYTES).min(PAGES_END)..end.min(PAGES_END)
}

/// Some pages in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// Number of the first page (address / 4096).
    pub first: u64,
    /// Number of pages.
    pub pages: u64,
}

impl PageRun {
    /// Address of the first byte.
    pub fn address(self) -> u64 {
        self.first * PAGE_BYTES
    }

    /// The pages as a range.
    pub fn range(self) -> Range<u64> {
        self.first..self.first + self.pages
    }
}

/// Gather ascending page numbers into runs.
pub fn runs_of(pages: impl Iterator<Item = u64>) -> Vec<PageRun> {
    let mut runs: Vec<PageRun> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some(run) if run.first + run.pages == page => run.pages += 1,
            _ => runs.push(PageRun {
                first: page,
                pages: 1,
            }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_range_leaves_the_addresses_of_a_program() {
        assert_eq!(pages_of(4095, 2), 0..2);
        assert_eq!(pages_of(u64::MAX, u64::MAX), PAGES_END..PAGES_END);
        assert_eq!(pages_of(0, u64::MAX), 0..PAGES_END);
        assert!((PAGES_END * 2).checked_mul(PAGE_BYTES).is_some());
    }

    #[test]
    fn neighbours_share_a_run() {
        let runs = runs_of([3, 4, 5, 9, 11, 12].into_iter());
        let listed: Vec<(u64, u64)> = runs.iter().map(|run| (run.first, run.pages)).collect();
        assert_eq!(listed, [(3, 3), (9, 1), (11, 2)]);
    }
}
