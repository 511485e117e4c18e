//! The main thread of a process. It may end before the process does. `last_thread` then looks after the process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a process may live on after its main thread before somebody looks after it. Nearly all processes end within
/// this time.
const END_PATIENCE: Duration = Duration::from_millis(20);

/// The main thread of a process.
#[derive(Debug, Default)]
pub struct Leader {
    /// When somebody noticed its end.
    ended: OnceLock<Instant>,
    /// Somebody looks after the process.
    is_followed: AtomicBool,
}

impl Leader {
    /// Notice that the thread has ended.
    pub fn notice(&self) {
        self.ended.get_or_init(Instant::now);
    }

    /// Has the thread ended a while ago, with nobody looking after the process yet?
    pub fn is_to_be_followed(&self) -> bool {
        let ended = self.ended.get();
        ended.is_some_and(|ended| ended.elapsed() > END_PATIENCE)
            && !self.is_followed.load(Ordering::Relaxed)
    }

    /// Has somebody noticed that the thread has ended?
    pub fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Begin to look after the process. False if somebody does already.
    pub fn begin_following(&self) -> bool {
        !self.is_followed.swap(true, Ordering::Relaxed)
    }

    /// Nobody looks after the process after all.
    pub fn stop_following(&self) {
        self.is_followed.store(false, Ordering::Relaxed);
    }
}
