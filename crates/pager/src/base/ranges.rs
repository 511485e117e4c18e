//! A set of page ranges, kept merged and in address order.
//!
//! Pure data, no locks of its own: it lives inside a space's layout and is guarded by the space lock. All numbers
//! are page numbers (address / 4096), ranges are half open.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint, non-touching, non-empty page ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    ends: BTreeMap<u64, u64>,
}

/// The overlap of two ranges, or None if there is none.
pub fn shared(a: &Range<u64>, b: &Range<u64>) -> Option<Range<u64>> {
    let shared = a.start.max(b.start)..a.end.min(b.end);
    (!shared.is_empty()).then_some(shared)
}

impl RangeSet {
    /// A set of one range.
    pub fn of(range: Range<u64>) -> RangeSet {
        let mut set = RangeSet::new();
        set.insert(range);
        set
    }

    /// An empty set.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// Add `range`, merged with the ranges that it touches.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut merged = range;
        while let Some((&start, &end)) = self.ends.range(..=merged.end).next_back() {
            if end < merged.start {
                break;
            }
            self.ends.remove(&start);
            merged = start.min(merged.start)..end.max(merged.end);
        }
        self.ends.insert(merged.start, merged.end);
    }

    /// Remove `range`. Returns the parts of it that were in the set.
    pub fn remove(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let parts: Vec<Range<u64>> = self.overlaps(range.clone()).collect();
        for part in &parts {
            let (start, end) = self
                .ends
                .range(..=part.start)
                .next_back()
                .map_or((0, 0), |(&s, &e)| (s, e));
            self.ends.remove(&start);
            if start < part.start {
                self.ends.insert(start, part.start);
            }
            if part.end < end {
                self.ends.insert(part.end, end);
            }
        }
        parts
    }

    /// Is `page` in the set?
    pub fn contains(&self, page: u64) -> bool {
        self.ends
            .range(..=page)
            .next_back()
            .is_some_and(|(_, &end)| page < end)
    }

    /// The range of the set that holds `page`.
    pub fn range_of(&self, page: u64) -> Option<Range<u64>> {
        self.ends
            .range(..=page)
            .next_back()
            .map(|(&start, &end)| start..end)
            .filter(|r| r.contains(&page))
    }

    /// The parts of `range` that are in the set, in address order.
    pub fn overlaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self
            .ends
            .range(..=range.start)
            .next_back()
            .map_or(range.start, |(&start, _)| start);
        let (low, high) = (range.start, range.end.max(range.start));
        self.ends
            .range(first..high.max(first))
            .map(move |(&start, &end)| start.max(low)..end.min(high))
            .filter(|part| !part.is_empty())
    }

    /// Are the ranges disjoint, not touching and not empty?
    pub fn is_valid(&self) -> bool {
        let mut behind = None;
        self.ends.iter().all(|(&start, &end)| {
            let is_apart = behind.is_none_or(|behind| behind < start);
            behind = Some(end);
            is_apart && start < end
        })
    }

    /// All ranges in address order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// How many pages of `range` are in the set.
    pub fn covered(&self, range: Range<u64>) -> u64 {
        self.overlaps(range).map(|part| part.end - part.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn check(set: &RangeSet, model: &BTreeSet<u64>) {
        let listed: BTreeSet<u64> = set.iter().flatten().collect();
        assert_eq!(&listed, model);
        assert_eq!(set.covered(0..70 + 20), model.len() as u64);
        for page in 0..70 {
            assert_eq!(set.contains(page), model.contains(&page), "page {page}");
        }
        let ranges: Vec<Range<u64>> = set.iter().collect();
        for pair in ranges.windows(2) {
            assert!(
                pair[0].end < pair[1].start,
                "touching ranges were not merged: {ranges:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_set_of_pages(steps in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..20), 1..60)) {
            let mut set = RangeSet::new();
            let mut model = BTreeSet::new();
            for (insert, start, pages) in steps {
                let range = start..start + pages;
                if insert {
                    set.insert(range.clone());
                    model.extend(range);
                } else {
                    let expected: Vec<u64> = range.clone().filter(|page| model.contains(page)).collect();
                    let found: Vec<u64> = set.remove(range.clone()).into_iter().flatten().collect();
                    prop_assert_eq!(found, expected);
                    model.retain(|page| !range.contains(page));
                }
                check(&set, &model);
            }
        }

        #[test]
        fn overlaps_are_clipped(start in 0u64..40, pages in 0u64..40) {
            let mut set = RangeSet::new();
            set.insert(5..10);
            set.insert(20..30);
            let expected: Vec<u64> =
                (start..start + pages).filter(|p| (5..10).contains(p) || (20..30).contains(p)).collect();
            let found: Vec<u64> = set.overlaps(start..start + pages).flatten().collect();
            prop_assert_eq!(found, expected);
        }
    }
}
