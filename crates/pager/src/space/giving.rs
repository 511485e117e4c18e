//! Giving pages to a process, by several threads at the same time.
//!
//! The call that brings pages takes from 1 us for one page to 60 us for a window of first touches. Were the space lock
//! held meanwhile, the faults of one process would be served one after another, on however many processors they were
//! raised. So the lock is released during the call, and the state counts who is giving. Whoever takes the space lock
//! waits until nobody gives. Only those do not wait who come to give pages or to write the words of pages that they
//! have claimed (`lock_shared`).
//!
//! Rule P3 holds by this: a message is read by somebody who has excluded the givers. So no event can be read, and no
//! claim be taken away, between the look at a claim and the word that says that the page is there. An event that begins
//! meanwhile makes the kernel refuse the page.
//!
//! It is the kernel's mmap_lock, taken for reading to fill a page table entry and for writing to change a mapping.

use std::ops::{Deref, DerefMut};

use crate::base::lock::MutexGuard;
use crate::base::rules::{self, Rule};
use crate::space::{Space, State};

/// The space lock, beside threads that give pages. Its holder may look at words, claim pages, and give pages that are
/// claimed or missing. For anything else it has to exclude those threads.
#[derive(Debug)]
pub struct SharedGuard<'a>(MutexGuard<'a, State>);

impl Space {
    /// Take the space lock without waiting for those who give pages.
    pub fn lock_shared(&self) -> SharedGuard<'_> {
        SharedGuard(self.state.lock())
    }

    /// Make a call that gives pages to the process, without the lock. The pages are claimed by the caller, or the call
    /// leaves alone what others have brought meanwhile.
    pub fn give<'a, R>(
        &'a self,
        state: SharedGuard<'a>,
        call: impl FnOnce() -> R,
    ) -> (SharedGuard<'a>, R) {
        let SharedGuard(mut state) = state;
        state.giving += 1;
        drop(state);
        let result = call();
        let mut state = self.state.lock();
        state.giving -= 1;
        if state.giving == 0 && state.excluding > 0 {
            self.settled.notify_all();
        }
        (SharedGuard(state), result)
    }

    /// Wait until nobody gives pages. The lock may be released meanwhile.
    pub fn exclude<'a>(&'a self, state: impl Into<SharedGuard<'a>>) -> MutexGuard<'a, State> {
        let SharedGuard(mut state) = state.into();
        while state.is_shared() {
            state.excluding += 1;
            state = state.wait(&self.settled);
            state.excluding -= 1;
        }
        state
    }
}

impl State {
    /// Does anybody give pages just now?
    pub(super) fn is_shared(&self) -> bool {
        self.giving > 0 && rules::holds(Rule::GiveInOrder)
    }
}

impl<'a> From<MutexGuard<'a, State>> for SharedGuard<'a> {
    fn from(state: MutexGuard<'a, State>) -> Self {
        Self(state)
    }
}

impl Deref for SharedGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for SharedGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc;
    use std::time::Duration;

    use crate::simulator::bare_space;

    #[test]
    fn two_give_at_once_and_who_excludes_waits_for_both() {
        let space = bare_space(7);
        let both = Barrier::new(2);
        let (given, gave) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (space, both, given) = (&space, &both, given.clone());
                scope.spawn(move || {
                    // Each gives until the other does.
                    let (state, ()) = space.give(space.lock_shared(), || {
                        both.wait();
                        std::thread::sleep(Duration::from_millis(20));
                        given.send(()).expect("somebody counts");
                    });
                    drop(state);
                });
            }
            // Both give by now, or will.
            while space.lock_shared().giving < 2 && gave.try_recv().is_err() {
                std::thread::yield_now();
            }
            let excluding = space.exclude(space.lock_shared());
            assert_eq!(excluding.giving, 0);
        });
    }
}
