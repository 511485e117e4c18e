//! Orders: how many neighbouring slots are taken at once, as a power of two.
//!
//! A run of an order starts at a multiple of its length, so it never leaves its cluster. Pages that go to storage
//! together get a run, so that one request writes them. Each slot of a run is freed by itself.

use super::geometry::SLOTS_PER_CLUSTER;

/// log2 of the length of a run: 0 to 9. Order 9 is a whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order(u32);

/// The part of a run that may stay free behind its pages, as 1 in this number. Such a run needs one request where
/// several shorter runs would need several. Its free slots are taken one by one when nothing else is left.
const TAIL_PART_MAX: usize = 4;

const LARGEST: u32 = {
    assert!(SLOTS_PER_CLUSTER.is_power_of_two() && SLOTS_PER_CLUSTER <= 512);
    SLOTS_PER_CLUSTER.trailing_zeros()
};

impl Order {
    /// A single slot.
    pub(crate) const SLOT: Order = Order(0);
    /// How many orders there are.
    pub(crate) const COUNT: usize = LARGEST as usize + 1;

    /// The order with this number. A number that is too large gives the largest order.
    #[inline]
    pub(crate) const fn from_raw(raw: u32) -> Order {
        Order(if raw < LARGEST { raw } else { LARGEST })
    }

    /// Its number, 0 to [`Order::COUNT`] - 1.
    #[inline]
    pub(crate) const fn raw(self) -> u32 {
        self.0
    }

    /// The number as an index.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Number of slots in a run.
    #[inline]
    pub(crate) const fn slots(self) -> usize {
        1 << self.0
    }

    /// Whether this is the order of single slots.
    #[inline]
    pub(crate) const fn is_slot(self) -> bool {
        self.0 == 0
    }

    /// The order to use when looking for slots for so many pages. It is the longest run that the pages fill, or the
    /// next longer run if it takes them all and little of it stays free. `None` for no pages.
    pub(crate) fn for_pages(pages: usize) -> Option<Order> {
        let filled = Order::from_raw(pages.checked_ilog2()?);
        let covering = Order::from_raw(filled.raw() + 1);
        let tail = covering.slots().saturating_sub(pages);
        let has_short_tail = pages < covering.slots() && tail * TAIL_PART_MAX <= covering.slots();
        Some(if has_short_tail { covering } else { filled })
    }

    /// All orders, smallest first.
    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Order> {
        (0..=LARGEST).map(Order)
    }

    /// All orders except that of single slots, smallest first.
    pub(crate) fn runs() -> impl DoubleEndedIterator<Item = Order> {
        (1..=LARGEST).map(Order)
    }

    /// This order and all smaller ones, largest first.
    pub(crate) fn and_below(self) -> impl Iterator<Item = Order> {
        (0..=self.0).rev().map(Order)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_the_largest_run_is_a_cluster() {
        for (at, order) in Order::all().enumerate() {
            assert_eq!(order.index(), at);
            assert_eq!(Order::from_raw(order.raw()), order);
            assert_eq!(order.slots(), 1 << at);
            assert_eq!(order.is_slot(), at == 0);
        }
        assert_eq!(Order::all().count(), Order::COUNT);
        let largest = Order::from_raw(u32::MAX);
        assert_eq!(largest.slots(), SLOTS_PER_CLUSTER);
        assert!(largest.and_below().eq(Order::all().rev()));
    }

    #[test]
    fn pages_get_the_longest_run_they_fill_or_one_they_nearly_fill() {
        assert_eq!(Order::for_pages(0), None);
        for (pages, slots) in [(1, 1), (2, 2), (3, 4), (4, 4)] {
            assert_eq!(Order::for_pages(pages).map(Order::slots), Some(slots));
        }
        for pages in 1..=3 * SLOTS_PER_CLUSTER {
            let run = Order::for_pages(pages).expect("some pages").slots();
            let tail = run.saturating_sub(pages);
            assert!(tail * TAIL_PART_MAX <= run, "{pages} pages, run of {run}");
            assert!(run * 2 > pages || run == SLOTS_PER_CLUSTER);
        }
    }

    #[test]
    #[cfg(not(any(miri, feature = "tests-small")))]
    fn a_window_of_pages_gets_few_runs() {
        for (pages, slots) in [
            (5, 4),
            (6, 8),
            (24, 32),
            (33, 32),
            (47, 32),
            (48, 64),
            (63, 64),
        ] {
            assert_eq!(Order::for_pages(pages).map(Order::slots), Some(slots));
        }
    }
}
