//! The order in which a thread takes the engine's locks, outermost first. Debug builds check it.
//!
//! With debug assertions a thread panics if it waits for a lock while it holds one of the same or a lower row. The
//! panic names both locks, and comes whether or not the wait would have ended. A thread may try a lock against the
//! order, because that does not wait. The pool's locks have no row: they are taken with none of these held. Release
//! builds do not check. Nor do the model checkers, which find deadlocks themselves.

/// Which groups there are.
pub(crate) const GROUPS: u8 = 0;
/// The hand of writing back, and that of packing again. Nobody takes both.
pub(crate) const AGING: u8 = 1;
/// Which area is used next.
pub(crate) const AREAS: u8 = 2;
/// The hand of demotion; each area has one.
pub(crate) const DEMOTION: u8 = 3;
/// A cluster: its slots.
pub(crate) const CLUSTER: u8 = 4;
/// The queue of clean frames.
pub(crate) const CLEAN_FRAMES: u8 = 5;
/// Which storage an area has.
pub(crate) const STORAGE: u8 = 6;
/// An area's lists of clusters.
pub(crate) const LISTS: u8 = 7;
/// Why an area could not take a page.
pub(crate) const LAST_ERROR: u8 = 8;

#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
mod held {
    use std::cell::RefCell;

    const NAMES: [&str; super::LAST_ERROR as usize + 1] = [
        "the tree of groups",
        "a hand of writing back or packing again",
        "the order of areas",
        "a hand of demotion",
        "a cluster",
        "the queue of clean frames",
        "the storage of an area",
        "the lists of an area",
        "the last error of an area",
    ];

    thread_local! {
        static HELD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    fn name(row: u8) -> &'static str {
        NAMES.get(usize::from(row)).copied().unwrap_or("a lock")
    }

    /// A lock that the thread holds.
    #[derive(Debug)]
    pub(crate) struct Held(u8);

    impl Held {
        pub(crate) fn take(row: u8) -> Held {
            HELD.with_borrow_mut(|held| held.push(row));
            Held(row)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                if let Some(at) = held.iter().rposition(|row| *row == self.0) {
                    held.swap_remove(at);
                }
            });
        }
    }

    /// Checks that the calling thread may wait for a lock of `row`.
    pub(crate) fn must_come_next(row: u8) {
        let inner = HELD.with_borrow(|held| held.iter().copied().find(|held| *held >= row));
        if let Some(inner) = inner {
            let (row, inner) = (name(row), name(inner));
            panic!("{row} is waited for while {inner} is held, against the lock order");
        }
    }

    /// Checks that the calling thread may wait for `what`, which has no row.
    pub(crate) fn must_hold_nothing(what: &str) {
        let held = HELD.with_borrow(|held| held.first().copied());
        if let Some(held) = held {
            let held = name(held);
            panic!("{what} is waited for while {held} is held, against the lock order");
        }
    }
}

#[cfg(not(all(debug_assertions, not(any(loom, shuttle)))))]
mod held {
    /// Release builds and model checkers record nothing.
    #[derive(Debug)]
    pub(crate) struct Held;

    impl Held {
        #[inline]
        pub(crate) const fn take(_row: u8) -> Held {
            Held
        }
    }

    #[inline]
    pub(crate) const fn must_come_next(_row: u8) {}

    #[inline]
    pub(crate) const fn must_hold_nothing(_what: &str) {}
}

pub(crate) use held::{Held, must_come_next, must_hold_nothing};

#[cfg(all(test, debug_assertions, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::base::sync::Lock;

    type Cluster = Lock<u32, CLUSTER>;
    type Lists = Lock<u32, LISTS>;

    #[test]
    fn the_order_is_allowed_again_and_again_and_trying_against_it_is() {
        let (cluster, lists): (Cluster, Lists) = (Lock::new(1), Lock::new(2));
        for _ in 0..2 {
            let held = cluster.lock();
            assert_eq!(*held + *lists.lock(), 3);
        }
        let held = lists.lock();
        let tried = cluster.try_lock();
        assert!(tried.is_some());
        // The locks may be released in any order. Afterwards nothing is held.
        drop(held);
        drop(tried);
        must_hold_nothing("the pool");
        assert_eq!(*cluster.lock(), 1);
    }

    #[test]
    #[should_panic(expected = "a cluster is waited for while the lists of an area is held")]
    fn an_outer_lock_under_an_inner_one_is_named() {
        let (cluster, lists): (Cluster, Lists) = (Lock::new(1), Lock::new(2));
        let _held = lists.lock();
        drop(cluster.lock());
    }

    #[test]
    #[should_panic(expected = "a cluster is waited for while a cluster is held")]
    fn two_locks_of_a_row_are_refused() {
        let (cluster, other): (Cluster, Cluster) = (Lock::new(1), Lock::new(2));
        let _held = cluster.lock();
        drop(other.lock());
    }

    #[test]
    #[should_panic(expected = "the pool is waited for while a cluster is held")]
    fn the_pool_under_a_lock_is_named() {
        let cluster: Cluster = Lock::new(1);
        let _held = cluster.lock();
        must_hold_nothing("the pool");
    }
}
