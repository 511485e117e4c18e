//! Whether the evictor bridges pages just now (`protect.rs`), for those who pin pages.
//!
//! Whoever pins a page first marks it and then looks here. The evictor first says here that it begins, and then looks
//! at the marks. So one of the two sees the other.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often it has begun and ended. Odd while a bridge is under way.
#[derive(Debug, Default)]
pub struct Bridges(AtomicU64);

impl Bridges {
    /// Pages are about to be bridged. Only the evictor calls this, and looks at their words afterwards.
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// All pages are again as their words say.
    pub fn end(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until the bridge that is under way is over, if there is one: for some microseconds.
    pub fn wait(&self) {
        let seen = self.0.load(Ordering::SeqCst);
        while seen % 2 == 1 && self.0.load(Ordering::SeqCst) == seen {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn whoever_pins_waits_for_one_bridge_and_for_no_other() {
        let bridges = Bridges::default();
        bridges.wait();
        bridges.begin();
        std::thread::scope(|scope| {
            let pins = scope.spawn(|| bridges.wait());
            std::thread::sleep(Duration::from_millis(20));
            assert!(!pins.is_finished());
            bridges.end();
            bridges.begin();
            pins.join().expect("it goes on");
        });
        bridges.end();
        bridges.wait();
    }
}
