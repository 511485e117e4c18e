//! Keeps the installation of the filter and the start of another program apart.
//!
//! exec ends all other threads, the agent's too. If that happens when the filter is installed and its listener is not
//! with the pager yet, the listener is gone and the filter stays: the new program's first trapped call fails with
//! ENOSYS. So the functions of libc that start another program wait while the filter is being installed, and the
//! agent's thread waits while one of them is under way. A bare execve is not seen.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::base::kernel::{self, futex_wait, futex_wake};

/// How often the agent looks whether a program is still being started, and the pause in between: a second in all. A
/// function that a signal handler has left by a jump never ends.
const TRIES: u32 = 10_000;
const PACE_NANOSECONDS: u64 = 100_000;

/// Who is under way. Each side says that it begins and then looks at the other, so both words are SeqCst.
#[derive(Debug)]
pub struct Replacing {
    execs: AtomicU32,
    /// Not 0 while the filter is installed. A futex.
    installing: AtomicU32,
}

impl Replacing {
    /// Nobody.
    pub const fn new() -> Self {
        Self {
            execs: AtomicU32::new(0),
            installing: AtomicU32::new(0),
        }
    }

    /// Starts another program, or fails to.
    pub fn exec<T>(&self, start: impl FnOnce() -> T) -> T {
        loop {
            self.execs.fetch_add(1, Ordering::SeqCst);
            if self.installing.load(Ordering::SeqCst) == 0 {
                break;
            }
            self.execs.fetch_sub(1, Ordering::SeqCst);
            futex_wait(&self.installing, 1);
        }
        let failed = start();
        self.execs.fetch_sub(1, Ordering::SeqCst);
        failed
    }

    /// Installs the filter and hands its listener over.
    pub fn install<T>(&self, install: impl FnOnce() -> T) -> T {
        let mut tries = TRIES;
        loop {
            self.installing.store(1, Ordering::SeqCst);
            if self.execs.load(Ordering::SeqCst) == 0 || tries == 0 {
                break;
            }
            self.end_install();
            kernel::nap(PACE_NANOSECONDS);
            tries = tries.saturating_sub(1);
        }
        let installed = install();
        self.end_install();
        installed
    }

    /// In a child: the threads that were under way are its parent's.
    pub fn forget(&self) {
        self.execs.store(0, Ordering::SeqCst);
        self.installing.store(0, Ordering::SeqCst);
    }

    fn end_install(&self) {
        self.installing.store(0, Ordering::SeqCst);
        futex_wake(&self.installing);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn the_two_never_overlap() {
        static REPLACING: Replacing = Replacing::new();
        static INSIDE: AtomicBool = AtomicBool::new(false);
        let alone = || {
            assert!(!INSIDE.swap(true, Ordering::SeqCst), "somebody is inside");
            INSIDE.store(false, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            scope.spawn(move || (0..2000).for_each(|_| REPLACING.exec(alone)));
            scope.spawn(move || (0..200).for_each(|_| REPLACING.install(alone)));
        });
        // What another thread has left under way is none of a child's.
        REPLACING.execs.store(3, Ordering::SeqCst);
        REPLACING.forget();
        assert_eq!(REPLACING.install(|| 7), 7);
    }
}
