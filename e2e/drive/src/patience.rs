//! Waiting for something that should come, on a machine that may stand still.
//!
//! Kernels before the mend "get rid of busy-waiting in shrink_dcache_tree()" can let two threads spin that look into
//! `/proc` of a process which ends, for as long as who they wait for gets no processor. That is probably why, on two
//! processors, nothing else ran for a minute: neither vswap, nor its programs, nor who watched them
//! (docs/reliability.md). That is no hang of vswap. So time in which the watcher itself got no processor does not
//! count.

use std::time::{Duration, Instant};

/// What counts of the time since the look before: one that comes later came late.
const LOOK_MOST: Duration = Duration::from_millis(200);
/// However late the looks come, patience ends after so many times as long: what keeps a machine from running for so
/// long is a mistake too.
const TIMES_MOST: u32 = 10;

/// How long to wait, for one that looks every few milliseconds.
#[derive(Clone, Debug)]
pub struct Patience {
    whole: Duration,
    begun: Instant,
    left: Duration,
    looked: Instant,
}

impl Patience {
    /// So much patience from now on.
    #[must_use]
    pub fn new(whole: Duration) -> Patience {
        let now = Instant::now();
        Patience {
            whole,
            begun: now,
            left: whole,
            looked: now,
        }
    }

    /// As much patience as in the beginning, because something has come.
    pub fn renew(&mut self) {
        *self = Patience::new(self.whole);
    }

    /// Is it over? To be asked after each look.
    pub fn is_over(&mut self) -> bool {
        self.is_over_at(Instant::now())
    }

    fn is_over_at(&mut self, now: Instant) -> bool {
        let passed = now.duration_since(self.looked).min(LOOK_MOST);
        self.looked = now;
        self.left = self.left.saturating_sub(passed);
        self.left.is_zero() || now.duration_since(self.begun) >= self.whole * TIMES_MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_counts_while_the_looks_come_in_time() {
        let mut patience = Patience::new(SECOND);
        let at = |ms| patience.begun + Duration::from_millis(ms);
        let looks = [100, 200, 300, 400, 500, 600, 700, 800, 900, 999, 1000].map(at);
        let over: Vec<bool> = looks.map(|look| patience.is_over_at(look)).into();
        assert_eq!(over.iter().position(|is_over| *is_over), Some(10));
    }

    #[test]
    fn a_machine_that_stands_still_uses_up_little() {
        let mut patience = Patience::new(SECOND);
        let begun = patience.begun;
        assert!(!patience.is_over_at(begun + 5 * SECOND));
        assert!(!patience.is_over_at(begun + 9 * SECOND));
        assert!(patience.is_over_at(begun + 10 * SECOND), "but not for ever");
        patience.renew();
        assert!(!patience.is_over());
    }
}
