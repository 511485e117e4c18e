//! The pager's mutexes: those of `std`, which in debug builds know their row in ARCHITECTURE.md, Lock order.
//!
//! With debug assertions a thread that waits for a lock of its own row or of a row above one that it holds panics and
//! names both, whether or not the wait would have ended. Without them there is nothing but the mutex. To try is
//! allowed against the order, as it waits for nobody. Poison is ignored everywhere: a panic ends the process.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, PoisonError};
use std::time::Duration;

use held::{Mark, Place};

/// A row of the table, outermost first. Locks of one row are never held together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// Which runs a store has, and their groups; making and removing a group takes locks of the engine.
    Runs,
    /// The right to give commands to an agent.
    AgentSlot,
    /// A space's layout and waiting faults.
    Space,
    /// What kin have proposed to a space; entries are counted under it, by the engine.
    Proposals,
    /// The list of histograms; each of them is read under it.
    Histograms,
    /// Everything under which no other lock is taken.
    Innermost,
}

/// A mutex of the pager.
#[derive(Debug)]
pub struct Mutex<T> {
    mark: Mark,
    inner: std::sync::Mutex<T>,
}

/// A held mutex.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    guard: std::sync::MutexGuard<'a, T>,
    place: Place,
}

impl<T> Mutex<T> {
    /// A mutex that is called `name` when it is taken out of order.
    pub const fn new(row: Row, name: &'static str, value: T) -> Mutex<T> {
        Mutex {
            mark: Mark::new(row, name),
            inner: std::sync::Mutex::new(value),
        }
    }

    /// Wait for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.mark.must_come_next();
        MutexGuard {
            guard: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
            place: Place::take(&self.mark),
        }
    }

    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.inner.try_lock().ok()?;
        let place = Place::take(&self.mark);
        Some(MutexGuard { guard, place })
    }
}

impl<T> MutexGuard<'_, T> {
    /// Release the lock, wait for `signal`, and take the lock again.
    pub fn wait(self, signal: &Condvar) -> Self {
        let MutexGuard { guard, place } = self;
        let guard = signal.wait(guard).unwrap_or_else(PoisonError::into_inner);
        MutexGuard { guard, place }
    }

    /// The same as long as `condition` is true, for `timeout` at most.
    pub fn wait_timeout_while(
        self,
        signal: &Condvar,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> Self {
        let MutexGuard { guard, place } = self;
        let (guard, _) = signal
            .wait_timeout_while(guard, timeout, condition)
            .unwrap_or_else(PoisonError::into_inner);
        MutexGuard { guard, place }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// What the calling thread holds.
#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    use super::Row;

    thread_local! {
        static HELD: RefCell<Vec<Mark>> = const { RefCell::new(Vec::new()) };
    }

    /// Row and name of a lock.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Mark(Row, &'static str);

    /// A lock among those that its thread holds.
    #[derive(Debug)]
    pub struct Place(Mark);

    impl Mark {
        pub const fn new(row: Row, name: &'static str) -> Mark {
            Mark(row, name)
        }

        pub fn must_come_next(self) {
            let inner = HELD.with_borrow(|held| held.iter().find(|lock| lock.0 >= self.0).copied());
            if let Some(inner) = inner {
                panic!(
                    "{} is waited for while {} is held, against ARCHITECTURE.md, Lock order",
                    self.1, inner.1
                );
            }
        }
    }

    impl Place {
        pub fn take(mark: &Mark) -> Place {
            HELD.with_borrow_mut(|held| held.push(*mark));
            Place(*mark)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                if let Some(index) = held.iter().rposition(|lock| *lock == self.0) {
                    held.remove(index);
                }
            });
        }
    }
}

/// Nothing is kept.
#[cfg(not(debug_assertions))]
mod held {
    use super::Row;

    #[derive(Debug)]
    pub struct Mark;

    #[derive(Debug)]
    pub struct Place;

    impl Mark {
        pub const fn new(_: Row, _: &'static str) -> Mark {
            Mark
        }

        pub const fn must_come_next(&self) {}
    }

    impl Place {
        pub const fn take(_: &Mark) -> Place {
            Place
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    fn slot_and_space() -> (Mutex<u32>, Mutex<u32>) {
        let slot = Mutex::new(Row::AgentSlot, "an agent's slot", 1);
        (slot, Mutex::new(Row::Space, "a space", 2))
    }

    #[test]
    fn the_order_of_the_table_is_allowed_again_and_again() {
        let (slot, space) = slot_and_space();
        for _ in 0..2 {
            let held = slot.lock();
            drop(space.lock());
            assert_eq!(*held + *space.lock(), 3);
        }
        let held = space.lock();
        let (first, tried) = (slot.try_lock(), slot.try_lock());
        assert!(first.is_some() && tried.is_none());
        drop((held, first));
        // Whatever order they were given back in, nothing is held now.
        assert_eq!(*slot.lock(), 1);
    }

    #[test]
    fn a_wait_gives_the_lock_back_and_takes_it_again() {
        let (_, space) = slot_and_space();
        let (held, signal) = (space.lock(), Condvar::new());
        let held = held.wait_timeout_while(&signal, Duration::ZERO, |_| true);
        assert!(space.try_lock().is_none());
        drop(held);
        drop(space.lock());
    }

    #[test]
    #[should_panic(expected = "an agent's slot is waited for while a space is held")]
    fn an_outer_lock_under_an_inner_one_is_named() {
        let (slot, space) = slot_and_space();
        let _held = space.lock();
        drop(slot.lock());
    }

    #[test]
    #[should_panic(expected = "another space is waited for while a space is held")]
    fn two_locks_of_a_row_are_refused() {
        let (_, space) = slot_and_space();
        let another = Mutex::new(Row::Space, "another space", 3);
        let _held = space.lock();
        drop(another.lock());
    }
}
