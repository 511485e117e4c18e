//! Threads that touch one page after the other, and how far ahead of them pages are worth bringing.
//!
//! A signal costs several times what a page of the pool costs. So who touches pages in order gets the next ones along:
//! twice as many each time, as the kernel's read-ahead does with its window. Who touches pages at random gets none.
//!
//! A place remembers where the last fault in its part of the memory left off. These are hints: two threads in the same
//! part spoil each other's, and nothing worse happens. Filled by handlers, without locks.

use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of the memory share these places.
const PLACES: usize = 64;
/// Pages of a part: 2 MiB.
const PART_PAGES: usize = 512;
/// Pages that are brought along at first, and at the most.
const FIRST: u64 = 4;
pub const MOST: u64 = 16;
/// How far behind the page that was expected the fault may be. Pages in between were in memory already.
const GAP_PAGES: u64 = 16;
/// The lowest bits of a place are its window, the others the page that is expected.
const WINDOW_BITS: u32 = 8;

/// Where faults are expected.
#[derive(Debug)]
pub struct Streams([AtomicU64; PLACES]);

impl Default for Streams {
    fn default() -> Streams {
        Streams(std::array::from_fn(|_| AtomicU64::new(u64::MAX)))
    }
}

impl Streams {
    /// How many pages behind this one, which faults, are likely to be touched next. 0 if it was not expected.
    pub fn window(&self, page: usize) -> u64 {
        let seen = self.place(page).load(Ordering::Relaxed);
        let (expected, window) = (seen >> WINDOW_BITS, seen & ((1 << WINDOW_BITS) - 1));
        let gap = (page as u64).checked_sub(expected);
        match gap {
            Some(..=GAP_PAGES) => (window * 2).clamp(FIRST, MOST),
            _ => 0,
        }
    }

    /// The page and those up to `next` are in memory; `window` is what was answered for it.
    pub fn expect(&self, page: usize, next: usize, window: u64) {
        let value = ((next as u64) << WINDOW_BITS) | window;
        self.place(page).store(value, Ordering::Relaxed);
        // Whoever goes on into the next part is known there.
        if next / PART_PAGES != page / PART_PAGES {
            self.place(next).store(value, Ordering::Relaxed);
        }
    }

    fn place(&self, page: usize) -> &AtomicU64 {
        &self.0[page / PART_PAGES % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves a fault, and all pages that are brought along. Returns the next page.
    fn fault(streams: &Streams, page: usize) -> usize {
        let window = streams.window(page);
        let next = page + 1 + usize::try_from(window).expect("a few");
        streams.expect(page, next, window);
        next
    }

    #[test]
    fn who_goes_on_in_order_gets_more_each_time_also_across_parts() {
        let streams = Streams::default();
        let begin = PART_PAGES - 20;
        let mut page = begin;
        let mut pages = Vec::new();
        for _ in 0..7 {
            page = fault(&streams, page);
            pages.push(page - begin);
        }
        assert_eq!(pages, [1, 6, 15, 32, 49, 66, 83]);
        // Some pages were there already.
        assert_eq!(streams.window(page + 16), MOST);
        assert_eq!(streams.window(page + 17), 0);
        assert_eq!(streams.window(page - 1), 0);
    }

    #[test]
    fn who_jumps_gets_nothing_more() {
        let streams = Streams::default();
        for page in [0, 70, 20, 5000, 40, 3, 100_000] {
            assert_eq!(fault(&streams, page), page + 1);
        }
        // Each of two in different parts goes on in order.
        fault(&streams, PART_PAGES);
        fault(&streams, 200);
        assert_eq!(fault(&streams, PART_PAGES + 1), PART_PAGES + 6);
        assert_eq!(fault(&streams, 201), 206);
    }
}
