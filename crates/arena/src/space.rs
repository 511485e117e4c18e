//! Which addresses of the arena are free: runs of pages, the smallest that fits first. Pure data; its user locks it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Free runs of pages.
#[derive(Debug)]
pub struct Space {
    /// Start and length of each run.
    runs: BTreeMap<usize, usize>,
    /// The same by length.
    by_length: BTreeSet<(usize, usize)>,
    /// Pages that were ever handed out. Those behind are untouched.
    top: usize,
    used: usize,
}

impl Space {
    /// Pages that are all free.
    pub fn new(pages: usize) -> Space {
        Space {
            runs: BTreeMap::from([(0, pages)]),
            by_length: BTreeSet::from([(pages, 0)]),
            top: 0,
            used: 0,
        }
    }

    /// Pages handed out.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The end of what was ever handed out.
    pub fn top(&self) -> usize {
        self.top
    }

    /// The end of the pages in a row that are handed out, from this one on.
    pub fn end_of_used(&self, page: usize) -> usize {
        let next_free = self.runs.range(page..).next();
        next_free
            .map_or(self.top, |(&start, _)| start)
            .min(self.top)
    }

    /// Takes a run that starts at a multiple of `align`, which is a power of two.
    pub fn take(&mut self, pages: usize, align: usize) -> Option<Range<usize>> {
        let fits = |&(length, start): &(usize, usize)| {
            let aligned = start.checked_next_multiple_of(align)?;
            let end = aligned.checked_add(pages)?;
            (end <= start + length).then_some((start, length, aligned))
        };
        let (start, length, aligned) = self.by_length.range((pages, 0)..).find_map(fits)?;
        self.forget(start, length);
        self.remember(start, aligned - start);
        self.remember(aligned + pages, start + length - aligned - pages);
        self.top = self.top.max(aligned + pages);
        self.used += pages;
        Some(aligned..aligned + pages)
    }

    /// Takes the run that begins at this page. False if some of it is not free.
    pub fn take_at(&mut self, start: usize, pages: usize) -> bool {
        // A run that begins before has its end here, or the page before is free as well.
        let Some(&length) = self.runs.get(&start).filter(|length| **length >= pages) else {
            return false;
        };
        self.forget(start, length);
        self.remember(start + pages, length - pages);
        self.top = self.top.max(start + pages);
        self.used += pages;
        true
    }

    /// Gives a run back that was taken.
    pub fn give(&mut self, run: Range<usize>) {
        self.used -= run.len();
        let (mut start, mut end) = (run.start, run.end);
        if let Some((&before, &length)) = self.runs.range(..start).next_back()
            && before + length == start
        {
            self.forget(before, length);
            start = before;
        }
        if let Some(&length) = self.runs.get(&end) {
            self.forget(end, length);
            end += length;
        }
        self.remember(start, end - start);
    }

    fn forget(&mut self, start: usize, length: usize) {
        self.runs.remove(&start);
        self.by_length.remove(&(length, start));
    }

    fn remember(&mut self, start: usize, length: usize) {
        if length > 0 {
            self.runs.insert(start, length);
            self.by_length.insert((length, start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_taken_aligned_and_join_again() {
        let mut space = Space::new(100);
        assert_eq!(space.take(3, 1), Some(0..3));
        assert_eq!(space.take(4, 4), Some(4..8));
        // The page between the two is the smallest that fits.
        assert_eq!(space.take(1, 1), Some(3..4));
        assert_eq!(space.take(93, 1), None);
        assert_eq!(space.take(92, 1), Some(8..100));
        assert_eq!((space.used(), space.top()), (100, 100));
        assert_eq!(space.end_of_used(5), 100);
        space.give(0..3);
        space.give(50..60);
        assert_eq!((space.end_of_used(3), space.end_of_used(60)), (50, 100));
        assert_eq!(space.take(3, 1), Some(0..3));
        assert_eq!(space.take(10, 1), Some(50..60));
        for run in [4..8, 0..3, 8..100, 3..4] {
            space.give(run);
        }
        assert_eq!(space.take(100, 1), Some(0..100));
        assert_eq!(space.take(usize::MAX, 1), None);
    }

    #[test]
    fn a_run_grows_where_what_follows_is_free() {
        let mut space = Space::new(10);
        assert_eq!(space.take(2, 1), Some(0..2));
        assert!(space.take_at(2, 3));
        assert_eq!((space.used(), space.top()), (5, 5));
        assert_eq!(space.take(1, 1), Some(5..6));
        assert!(!space.take_at(5, 1) && !space.take_at(6, 5) && !space.take_at(10, 1));
        assert!(space.take_at(6, 4));
        assert_eq!((space.used(), space.take(1, 1)), (10, None));
        space.give(0..10);
        assert_eq!(space.take(10, 1), Some(0..10));
    }

    #[test]
    fn no_page_is_handed_out_twice() {
        let mut space = Space::new(256);
        let mut held: Vec<Range<usize>> = Vec::new();
        let mut owner = [false; 256];
        let mut seed = 7_usize;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = seed >> 33;
            if random.is_multiple_of(2)
                && let Some(run) = space.take(random / 2 % 16 + 1, 1 << (random % 3))
            {
                for page in run.clone() {
                    assert!(!std::mem::replace(&mut owner[page], true), "{page} twice");
                }
                held.push(run);
            } else if !held.is_empty() {
                let run = held.swap_remove(random % held.len());
                owner[run.clone()].fill(false);
                space.give(run);
            }
            assert_eq!(space.used(), owner.iter().filter(|one| **one).count());
        }
    }
}
