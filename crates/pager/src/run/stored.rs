//! Says that writers have stored pages, to a thread that works on what is stored. The lock is innermost.

use std::time::Duration;

use crate::base::work::Work;

/// Whether pages were stored since somebody looked.
#[derive(Debug)]
pub struct Stored(Work<bool>);

impl Default for Stored {
    fn default() -> Stored {
        Stored(Work::new("whether pages were stored"))
    }
}

impl Stored {
    /// Pages were stored, or would be if there were room. Writers say so with each batch, thousands of times a second,
    /// and a thread that pauses would wake each time. So it is woken once for all that it has not looked at.
    pub fn note(&self) {
        if !std::mem::replace(&mut *self.0.lock(), true) {
            self.0.wake_one();
        }
    }

    /// Wait until pages are stored. False at the end.
    pub fn wait(&self) -> bool {
        *self.0.wait_while(|stored| !stored) = false;
        !self.0.has_ended()
    }

    /// Wait for so long, whatever is stored. False at the end.
    pub fn pause(&self, pause: Duration) -> bool {
        drop(self.0.wait_timeout_while(pause, |_| true));
        !self.0.has_ended()
    }

    /// End the thread.
    pub fn stop(&self) {
        self.0.end();
    }
}
