//! Orders: how many neighbouring slots are taken at once, as a power of two.
//!
//! A run of an order starts at a multiple of its length and so never leaves its cluster. Pages that go to storage
//! together get a run, so that one request writes them; each slot of a run is freed by itself.

use super::geometry::SLOTS_PER_CLUSTER;

/// log2 of the length of a run: 0 to 9, of which the last is a whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order(u32);

/// The part of a run that may stay free behind its pages, 1 in so many. A run cut off like this is one request where
/// the runs that fit would be several; what stays free of it is taken slot by slot when nothing else is left.
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

    /// The order with this number; one that is too large is taken for the largest.
    #[inline]
    pub(crate) const fn from_raw(raw: u32) -> Order {
        Order(if raw < LARGEST { raw } else { LARGEST })
    }

    /// Its number, 0 to [`Order::COUNT`] - 1.
    #[inline]
    pub(crate) const fn raw(self) -> u32 {
        self.0
    }

    /// Its number as an index.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Slots of a run.
    #[inline]
    pub(crate) const fn slots(self) -> usize {
        1 << self.0
    }

    /// Is it a single slot's?
    #[inline]
    pub(crate) const fn is_slot(self) -> bool {
        self.0 == 0
    }

    /// The order in which to look for slots for so many pages: that of the longest run which they fill, or of one that
    /// takes them all and has little left. `None` for no pages.
    pub(crate) fn for_pages(pages: usize) -> Option<Order> {
        let filled = Order::from_raw(pages.checked_ilog2()?);
        let covering = Order::from_raw(filled.raw() + 1);
        let tail = covering.slots().saturating_sub(pages);
        let has_short_tail = pages < covering.slots() && tail * TAIL_PART_MAX <= covering.slots();
        Some(if has_short_tail { covering } else { filled })
    }

    /// All orders, the smallest first.
    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Order> {
        (0..=LARGEST).map(Order)
    }

    /// All orders but that of single slots, the smallest first.
    pub(crate) fn runs() -> impl DoubleEndedIterator<Item = Order> {
        (1..=LARGEST).map(Order)
    }

    /// This order and all below it, the largest first.
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
