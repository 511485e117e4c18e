//! The pager's mutexes. They are those of `std`, and in debug builds they know their row in ARCHITECTURE.md, Lock
//! order.
//!
//! With debug assertions a thread panics if it waits for a lock of the same row as one that it holds, or of a row
//! above. The panic names both locks, whether or not the wait would have ended. Without debug assertions there is
//! nothing but the mutex. Trying a lock against the order is allowed, because it waits for nobody. Poison is ignored
//! everywhere: a panic ends the process.
//!
//! A thread can wait for a mutex made `with_patience` for a bounded time, which `std` does not offer. Whoever releases
//! such a mutex wakes one of those waiters, on a separate word.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Condvar, PoisonError};
use std::time::{Duration, Instant};

use held::{Mark, Place};
use vswap_sys::futex;

/// A row of the table, outermost first. A thread never holds two locks of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// Which runs a store has, and their groups. Making and removing a group takes locks of the engine.
    Runs,
    /// The right to give commands to an agent.
    AgentSlot,
    /// A space's layout and waiting faults.
    Space,
    /// What kin have proposed to a space. The engine counts entries under it.
    Proposals,
    /// The readers of a run. The set of spaces that they listen to changes under it.
    Readers,
    /// The list of histograms. Each of them is read under it.
    Histograms,
    /// Everything under which no other lock is taken.
    Innermost,
}

/// A mutex of the pager.
#[derive(Debug)]
pub struct Mutex<T> {
    mark: Mark,
    line: Option<Line>,
    inner: std::sync::Mutex<T>,
}

/// Those that wait for a bounded time.
#[derive(Debug)]
struct Line {
    waiting: AtomicU32,
    /// Changes each time that one of them shall try.
    turn: AtomicU32,
}

/// Dropped after the lock was released: lets one of those that wait for a bounded time try.
#[derive(Debug)]
struct CallNext<'a>(Option<&'a Line>);

/// A held mutex.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    // The fields are dropped in this order.
    guard: std::sync::MutexGuard<'a, T>,
    _place: Place,
    _next: CallNext<'a>,
    #[cfg(test)]
    turn: simulated::Turn<'a, T>,
}

impl Drop for CallNext<'_> {
    fn drop(&mut self) {
        let Some(line) = self.0 else { return };
        // Pairs with the fence in `lock_for`: either we see the waiter, or the waiter sees that the lock is free.
        fence(Ordering::SeqCst);
        if line.waiting.load(Ordering::Relaxed) > 0 {
            line.turn.fetch_add(1, Ordering::Relaxed);
            // The word is in our own memory, so this cannot fail.
            let _ = futex::wake(&line.turn, 1);
        }
    }
}

impl<T> Mutex<T> {
    /// A mutex. Messages about a wrong order call it `name`.
    pub const fn new(row: Row, name: &'static str, value: T) -> Mutex<T> {
        Mutex {
            mark: Mark::new(row, name),
            line: None,
            inner: std::sync::Mutex::new(value),
        }
    }

    /// The same, for a mutex that is taken with `lock_for`.
    pub const fn with_patience(row: Row, name: &'static str, value: T) -> Mutex<T> {
        Mutex {
            line: Some(Line {
                waiting: AtomicU32::new(0),
                turn: AtomicU32::new(0),
            }),
            mark: Mark::new(row, name),
            inner: std::sync::Mutex::new(value),
        }
    }

    /// Wait for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.mark.must_come_next();
        #[cfg(test)]
        if let Some(guard) = self.lock_simulated() {
            return self.held(guard);
        }
        self.held(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn held<'a>(&'a self, guard: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            guard,
            _place: Place::take(&self.mark),
            _next: CallNext(self.line.as_ref()),
            #[cfg(test)]
            turn: simulated::Turn(self),
        }
    }

    /// Wait for the lock, but at most for `patience`. If the holder releases it by waiting for a signal, this is
    /// noticed only when the time is over.
    pub fn lock_for(&self, patience: Duration) -> Option<MutexGuard<'_, T>> {
        self.mark.must_come_next();
        let Some(line) = &self.line else {
            return self.try_lock();
        };
        #[cfg(test)]
        if crate::simulator::actors::is_one() {
            return self.lock_simulated_for();
        }
        let end = Instant::now() + patience;
        line.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = loop {
            let seen = line.turn.load(Ordering::Relaxed);
            // Pairs with the fence of whoever releases the lock.
            fence(Ordering::SeqCst);
            let guard = self.try_lock();
            let left = end.saturating_duration_since(Instant::now());
            if guard.is_some() || left.is_zero() {
                break guard;
            }
            // Woken, timed out or changed: try again in each case.
            let _ = futex::wait(&line.turn, seen, Some(left));
        };
        line.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock().ok().map(|guard| self.held(guard))
    }
}

impl<T> MutexGuard<'_, T> {
    /// Release the lock, wait for `signal`, and take the lock again.
    pub fn wait(mut self, signal: &Condvar) -> Self {
        #[cfg(test)]
        if crate::simulator::actors::is_one() {
            return self.wait_simulated();
        }
        self.guard = signal
            .wait(self.guard)
            .unwrap_or_else(PoisonError::into_inner);
        self
    }

    /// The same while `condition` is true, but at most for `timeout`.
    pub fn wait_timeout_while(
        mut self,
        signal: &Condvar,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> Self {
        #[cfg(test)]
        if crate::simulator::actors::is_one() {
            return self.wait_simulated_while(timeout, condition);
        }
        let (guard, _) = signal
            .wait_timeout_while(self.guard, timeout, condition)
            .unwrap_or_else(PoisonError::into_inner);
        self.guard = guard;
        self
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

/// The locks that the calling thread holds.
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

    /// One of the locks that the thread holds.
    #[derive(Debug)]
    pub struct Place(Mark);

    impl Mark {
        pub const fn new(row: Row, name: &'static str) -> Mark {
            Mark(row, name)
        }

        #[cfg(test)]
        pub const fn row(&self) -> Row {
            self.0
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

/// Records nothing, except what the simulator asks for.
#[cfg(not(debug_assertions))]
mod held {
    use super::Row;

    #[cfg(not(test))]
    #[derive(Debug)]
    pub struct Mark;
    #[cfg(test)]
    #[derive(Debug)]
    pub struct Mark(Row);

    #[derive(Debug)]
    pub struct Place;

    impl Mark {
        #[cfg(not(test))]
        pub const fn new(_: Row, _: &'static str) -> Mark {
            Mark
        }

        #[cfg(test)]
        pub const fn new(row: Row, _: &'static str) -> Mark {
            Mark(row)
        }

        #[cfg(test)]
        pub const fn row(&self) -> Row {
            self.0
        }

        pub const fn must_come_next(&self) {}
    }

    impl Place {
        pub const fn take(_: &Mark) -> Place {
            Place
        }
    }
}

/// Locks of the simulator's threads: whoever waits for one lets others run.
#[cfg(test)]
mod simulated {
    use std::time::Duration;

    use super::{Mutex, MutexGuard, Row};
    use crate::base::kernel::clock;
    use crate::simulator::actors;

    /// How long a thread that waits for a signal sleeps before it checks again. Nobody wakes it.
    const LOOK_EVERY: Duration = Duration::from_micros(10);
    /// How often a thread tries a lock that it waits for with a bound.
    const LOOKS: u32 = 4;

    /// Drops after the mutex's guard, and then tells waiters that the lock is free.
    #[derive(Debug)]
    pub struct Turn<'a, T>(pub(super) &'a Mutex<T>);

    impl<T> Drop for Turn<'_, T> {
        fn drop(&mut self) {
            actors::unlocked(std::ptr::from_ref(self.0).addr());
        }
    }

    impl<T> Mutex<T> {
        /// The guard, or None if the thread is not simulated.
        pub(super) fn lock_simulated(&self) -> Option<std::sync::MutexGuard<'_, T>> {
            if !actors::is_one() {
                return None;
            }
            if matches!(self.mark.row(), Row::AgentSlot | Row::Space) {
                actors::pass();
            }
            loop {
                if let Ok(guard) = self.inner.try_lock() {
                    return Some(guard);
                }
                actors::wait_for_lock(std::ptr::from_ref(self).addr());
            }
        }

        pub(super) fn lock_simulated_for(&self) -> Option<MutexGuard<'_, T>> {
            for _ in 0..LOOKS {
                if let Some(guard) = self.try_lock() {
                    return Some(guard);
                }
                clock::sleep(LOOK_EVERY);
            }
            None
        }
    }

    impl<'a, T> MutexGuard<'a, T> {
        pub(super) fn wait_simulated(self) -> Self {
            let mutex: &'a Mutex<T> = self.turn.0;
            drop(self);
            clock::sleep(LOOK_EVERY);
            mutex.lock()
        }

        pub(super) fn wait_simulated_while(
            mut self,
            timeout: Duration,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> Self {
            let end = clock::now() + timeout;
            while condition(&mut self) && clock::now() < end {
                self = self.wait_simulated();
            }
            self
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
        // In whatever order they were released, nothing is held now.
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
    fn a_bounded_wait_ends_with_the_lock_or_with_its_time() {
        let space = Mutex::with_patience(Row::Space, "a space", 0);
        let long = Duration::from_secs(60);
        for round in 0..200 {
            let held = space.lock();
            std::thread::scope(|scope| {
                let waiters = [(); 3].map(|()| {
                    scope.spawn(|| {
                        space
                            .lock_for(long)
                            .map(|mut number| *number += 1)
                            .is_some()
                    })
                });
                let late = scope.spawn(|| space.lock_for(Duration::from_millis(1)).is_some());
                assert!(!late.join().unwrap(), "the lock is held");
                drop(held);
                assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
            });
            assert_eq!(*space.lock(), (round + 1) * 3);
        }
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
