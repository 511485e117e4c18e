//! Waiting until something has changed, without a lock. For any number of threads, and for signal handlers.
//!
//! Who waits counts itself, looks again, and sleeps. Who changes something looks whether anybody is counted. All of
//! that is sequentially consistent, so one of the two sees the other.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use vswap_sys::futex;

/// Something that happens again and again.
#[derive(Debug, Default)]
pub struct Event {
    /// Changes when it happens.
    sequence: AtomicU32,
    sleepers: AtomicU32,
}

impl Event {
    /// Sleeps until the next [`Event::happened`], unless `is_over`. May return early.
    pub fn wait_unless(&self, timeout: Option<Duration>, is_over: impl FnOnce() -> bool) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let sequence = self.sequence.load(Ordering::SeqCst);
        if !is_over() {
            // An error would say that the word cannot be read. Then to return early is all that is left.
            let _ = futex::wait(&self.sequence, sequence, timeout);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes all who wait. The caller has made the change before, by a sequentially consistent operation.
    pub fn happened(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.sequence.fetch_add(1, Ordering::SeqCst);
            let _ = futex::wake(&self.sequence, u32::MAX >> 1);
        }
    }
}
