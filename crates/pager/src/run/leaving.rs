//! That a run is about to end while its processes live on.
//!
//! The threads that take trapped calls in (`calls/notify.rs`) then answer what they have and end. The listeners stay
//! open: the guardian shares the pager's descriptors, and answers when the pager is gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether the run is left, and who still has to be waited for. Takes no lock.
#[derive(Debug, Default)]
pub struct Leaving {
    begun: AtomicBool,
    listening: AtomicU64,
}

/// A thread that takes trapped calls in. It ends when this is dropped.
#[derive(Debug)]
pub struct TakesCalls<'a>(&'a Leaving);

impl Drop for TakesCalls<'_> {
    fn drop(&mut self) {
        self.0.listening.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Leaving {
    /// From now on no process is taken in.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// Is the run being left?
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// A thread begins to take trapped calls in.
    pub fn takes_calls(&self) -> TakesCalls<'_> {
        self.listening.fetch_add(1, Ordering::AcqRel);
        TakesCalls(self)
    }

    /// Does some thread still take trapped calls in?
    pub fn are_calls_taken(&self) -> bool {
        self.listening.load(Ordering::Acquire) > 0
    }
}
