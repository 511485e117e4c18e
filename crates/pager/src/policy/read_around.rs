//! How much of an area to read around a lone fault: by how much of what was read so before was wanted.
//!
//! A fault that continues a stream of addresses gets a window of addresses (`stream.rs`). Any other brings along what
//! lies around its page in the area, into the swap cache (`Engine::swap_in_around`): pages that left together, whatever
//! their addresses. The rule is that of the kernel's cluster readahead (`__swapin_nr_pages` in swap_state.c): the
//! window follows the hits of the windows before, shrinks by half at a time, and is a single page where nothing is hit.
//! Pure; guarded by the space lock.

/// Most pages of a window: the kernel's default, as `vm.page-cluster` is 3.
const WINDOW_PAGES_MAX: u64 = 8;
/// Least pages of a window that follows a hit.
const WINDOW_PAGES_HIT: u64 = 4;
/// Hits that the first window is made of, so that it is a large one: something has to be tried.
const HITS_FIRST: u64 = 4;

/// The windows of one space.
#[derive(Debug)]
pub struct ReadAround {
    /// Pages wanted, of those that came along, since the last window.
    hits: u64,
    /// The last window.
    window: u64,
    /// Page of the last fault whose windows before had no hit.
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
    /// `pages` pages were wanted that had come along.
    pub fn hit(&mut self, pages: u64) {
        self.hits += pages;
    }

    /// The window of a fault on `page`, in pages, itself included: a power of two.
    pub fn window(&mut self, page: u64) -> u64 {
        let hits = std::mem::take(&mut self.hits);
        let wanted = if hits > 0 {
            (hits + 2).next_power_of_two().max(WINDOW_PAGES_HIT)
        } else {
            let is_beside = page.abs_diff(self.before) == 1;
            self.before = page;
            if is_beside { 2 } else { 1 }
        };
        self.window = wanted.min(WINDOW_PAGES_MAX).max(self.window / 2);
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_faults_come_down_to_one_page() {
        let mut around = ReadAround::default();
        let windows = [7, 5000, 90, 123_456, 42].map(|page| around.window(page));
        assert_eq!(windows, [8, 4, 2, 1, 1]);
    }

    #[test]
    fn hits_open_the_window_and_neighbours_try_it() {
        let mut around = ReadAround::default();
        let random = [100, 200, 300, 400, 1000].map(|page| around.window(page));
        assert_eq!(random.last(), Some(&1));
        assert_eq!(around.window(999), 2, "downwards counts as well");
        around.hit(1);
        assert_eq!(around.window(997), 4);
        around.hit(3);
        assert_eq!(around.window(993), 8);
        around.hit(7);
        assert_eq!(around.window(985), 8, "there is a bound");
    }
}
