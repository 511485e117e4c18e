//! Orders: how many neighbouring slots are taken at once, as a power of two.
//!
//! A run of an order starts at a multiple of its length and so never leaves its cluster. Pages that go to storage
//! together get a run, so that one request writes them; each slot of a run is freed by itself.

use crate::cluster::SLOTS_PER_CLUSTER;

/// log2 of the length of a run: 0 to 9, of which the last is a whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order(u32);

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

    /// All orders, the smallest first.
    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Order> {
        (0..=LARGEST).map(Order)
    }

    /// All orders but that of single slots, the smallest first.
    pub(crate) fn runs() -> impl DoubleEndedIterator<Item = Order> {
        (1..=LARGEST).map(Order)
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
        assert_eq!(Order::from_raw(u32::MAX).slots(), SLOTS_PER_CLUSTER);
        assert_eq!(Order::runs().count(), Order::COUNT - 1);
    }
}
