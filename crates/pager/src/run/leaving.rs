//! That a run is about to end while its processes live on.
//!
//! Trapped calls are answered to the last: whoever is let go of may wait for one. The threads that take them in
//! (`calls/notify.rs`) end when no space is left. The listeners stay open: the guardian shares the pager's descriptors,
//! and answers when the pager is gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vswap_sys::eventfd::EventFd;

use crate::base::lock::{Mutex, Row};

/// Whether the run is left, and who still has to be waited for. The lock is innermost.
#[derive(Debug)]
pub struct Leaving {
    begun: AtomicBool,
    is_over: AtomicBool,
    /// Wakes those that take trapped calls in.
    over: EventFd,
    listening: AtomicU64,
    admissions: AtomicU64,
    let_go: Mutex<Vec<u32>>,
}

/// A thread that takes trapped calls in. It ends when this is dropped.
#[derive(Debug)]
pub struct TakesCalls<'a>(&'a Leaving);

impl Drop for TakesCalls<'_> {
    fn drop(&mut self) {
        self.0.listening.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A process is being taken in. Its space is among the run's before this is dropped, or never will be.
#[derive(Debug)]
pub struct Admission<'a>(&'a Leaving);

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.0.admissions.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Leaving {
    /// Nobody leaves yet.
    ///
    /// # Errors
    /// There is no descriptor (EMFILE, ENFILE).
    pub fn new() -> std::io::Result<Leaving> {
        Ok(Leaving {
            begun: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            over: EventFd::new()?,
            listening: AtomicU64::new(0),
            admissions: AtomicU64::new(0),
            let_go: Mutex::new(Row::Innermost, "processes let go of", Vec::new()),
        })
    }

    /// From now on no process is taken in. Some may be on their way in still.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
    }

    /// Take a process in, unless the run is being left.
    pub fn admit(&self) -> Option<Admission<'_>> {
        // Counted before the flag is read, and looked for after it is set: one of the two sees the other.
        self.admissions.fetch_add(1, Ordering::SeqCst);
        let admission = Admission(self);
        (!self.begun.load(Ordering::SeqCst)).then_some(admission)
    }

    /// Is a process on its way in? Once the run is being left, nobody is on the way in after this was false.
    pub fn is_admitting(&self) -> bool {
        self.admissions.load(Ordering::SeqCst) > 0
    }

    /// A process is let go of: its calls run as they are.
    pub fn has_let_go(&self, pid: u32) {
        self.let_go.lock().push(pid);
    }

    /// Has this process been let go of?
    pub fn is_free(&self, pid: u32) -> bool {
        self.let_go.lock().contains(&pid)
    }

    /// All processes are let go of: the threads that take trapped calls in are to end.
    pub fn end_calls(&self) {
        self.is_over.store(true, Ordering::Release);
        // The counter is not full.
        let _ = self.over.signal();
    }

    /// Readable when the threads are to end that take trapped calls in.
    pub fn over(&self) -> &EventFd {
        &self.over
    }

    /// Are the threads to end that take trapped calls in?
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_on_the_way_in_is_waited_for_and_nobody_follows() {
        let leaving = Leaving::new().unwrap();
        let on_the_way = leaving.admit().unwrap();
        leaving.begin();
        assert!(leaving.is_admitting());
        assert!(leaving.admit().is_none());
        drop(on_the_way);
        assert!(!leaving.is_admitting());
    }
}
