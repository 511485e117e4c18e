//! The main thread of a process, which may end before the process does. Who looks after it then is in `last_thread`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a process may take from the end of its main thread to its own end, as nearly all do, before somebody looks
/// after it.
const END_PATIENCE: Duration = Duration::from_millis(20);

/// The main thread of a process.
#[derive(Debug, Default)]
pub struct Leader {
    /// When its end was noticed.
    ended: OnceLock<Instant>,
    /// Somebody looks after the process.
    is_followed: AtomicBool,
}

impl Leader {
    /// Notice its end.
    pub fn notice(&self) {
        self.ended.get_or_init(Instant::now);
    }

    /// Has it ended a while ago, and does nobody look after the process yet?
    pub fn is_to_be_followed(&self) -> bool {
        let ended = self.ended.get();
        ended.is_some_and(|ended| ended.elapsed() > END_PATIENCE)
            && !self.is_followed.load(Ordering::Relaxed)
    }

    /// Has its end been noticed?
    pub fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Begin to look after the process. False if somebody does so already.
    pub fn begin_following(&self) -> bool {
        !self.is_followed.swap(true, Ordering::Relaxed)
    }

    /// Nobody looks after the process after all.
    pub fn stop_following(&self) {
        self.is_followed.store(false, Ordering::Relaxed);
    }
}
