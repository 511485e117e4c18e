//! How much of an area to read around a lone fault. It depends on how much was wanted of what was read this way before.
//!
//! A fault that continues a stream of addresses gets a window of addresses (`stream.rs`). Any other fault brings the
//! neighbours of its page in the area into the swap cache (`Engine::swap_in_around`). These are pages that left
//! together, whatever their addresses. The rule is that of the kernel's cluster readahead (`__swapin_nr_pages` in
//! swap_state.c). The window follows the hits of earlier windows, shrinks by at most half at a time, and is a single
//! page when nothing is hit. The kernel's largest window is a setting (`vm.page-cluster`). Here it is what the area is
//! measured to make worth a request (`Engine::read_around_max`). Pure, guarded by the space lock.

/// Smallest window after a hit, in pages.
const WINDOW_PAGES_HIT: u64 = 4;
/// Hits assumed for the first window, so that it is large: something has to be tried.
const HITS_FIRST: u64 = 4;

/// The windows of one space.
#[derive(Debug)]
pub struct ReadAround {
    /// Hits since the last window: pages that had come along and were wanted.
    hits: u64,
    /// The last window.
    window: u64,
    /// Page of the last fault before which no window had a hit.
    before: u64,
}

impl Default for ReadAround {
    fn default() -> ReadAround {
        ReadAround {
            hits: HITS_FIRST,
            window: 0,
            before: u64::MAX,
        }
    }
}

impl ReadAround {
    /// `pages` pages that had come along were wanted.
    pub fn hit(&mut self, pages: u64) {
        self.hits += pages;
    }

    /// The window of a fault on `page`, in pages, itself included. A power of two. So is `most_pages`, which it does
    /// not exceed.
    pub fn window(&mut self, page: u64, most_pages: u64) -> u64 {
        if most_pages <= 1 {
            // It says nothing about what is wanted: another area may be worth more, or this one next time.
            return 1;
        }
        let hits = std::mem::take(&mut self.hits);
        let wanted = if hits > 0 {
            (hits + 2).next_power_of_two().max(WINDOW_PAGES_HIT)
        } else {
            let is_beside = page.abs_diff(self.before) == 1;
            self.before = page;
            if is_beside { 2 } else { 1 }
        };
        self.window = wanted.min(most_pages).max(self.window / 2);
        self.window.min(most_pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest window of an area that is not known yet.
    const MOST: u64 = 8;

    #[test]
    fn random_faults_come_down_to_one_page() {
        let mut around = ReadAround::default();
        let windows = [7, 5000, 90, 123_456, 42].map(|page| around.window(page, MOST));
        assert_eq!(windows, [8, 4, 2, 1, 1]);
    }

    #[test]
    fn hits_open_the_window_and_neighbours_try_it() {
        let mut around = ReadAround::default();
        let random = [100, 200, 300, 400, 1000].map(|page| around.window(page, MOST));
        assert_eq!(random.last(), Some(&1));
        assert_eq!(around.window(999, MOST), 2, "downwards counts as well");
        around.hit(1);
        assert_eq!(around.window(997, MOST), 4);
        around.hit(3);
        assert_eq!(around.window(993, MOST), 8);
        around.hit(7);
        assert_eq!(around.window(985, MOST), 8, "there is a bound");
    }

    #[test]
    fn hits_open_the_window_as_far_as_the_area_is_worth_it() {
        let mut around = ReadAround::default();
        let mut windows = Vec::new();
        for page in 0..6 {
            let window = around.window(page * 1000, 64);
            windows.push(window);
            around.hit(window - 1);
        }
        assert_eq!(windows, [8, 16, 32, 64, 64, 64]);
        assert_eq!(around.window(7000, 16), 16, "another area");
        around.hit(15);
        assert_eq!(around.window(8000, 4), 4);
        assert_eq!(around.window(9000, 64), 8, "nothing was hit");
    }

    #[test]
    fn an_area_where_pages_come_alone_does_not_end_a_row_of_hits() {
        let mut around = ReadAround::default();
        assert_eq!(around.window(1, 32), 8);
        around.hit(7);
        assert_eq!(around.window(1000, 1), 1);
        assert_eq!(around.window(2000, 32), 16);
    }
}
