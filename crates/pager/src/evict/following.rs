//! How many evictors follow their kin at the same time.
//!
//! Each takes a window of frames to compare pages in. There are frames for a few. More evictors would share these out,
//! and move a few pages at a time at the cost of a window.

use std::time::{Duration, Instant};

use crate::base::kernel::clock;
use crate::base::work::Work;
use crate::evict::WINDOW_PAGES;

/// So many follow at the same time.
const FOLLOWERS: usize = 4;
/// Frames for them.
pub const FRAMES: usize = FOLLOWERS * WINDOW_PAGES;
/// When no turn has ended for so long, an evictor that waits for one goes on all the same. Those before it may have
/// been stopped in the middle.
const PATIENCE: Duration = Duration::from_millis(10);

/// Who follows.
#[derive(Debug)]
pub struct Following(Work<Busy>);

#[derive(Debug, Default)]
struct Busy {
    /// So many follow.
    count: usize,
    /// When a turn began or ended.
    moved: Option<Instant>,
}

/// An evictor that follows, until this is dropped.
#[derive(Debug)]
pub struct Follower<'a>(&'a Following);

impl Default for Following {
    fn default() -> Following {
        Following(Work::new("who follows kin"))
    }
}

impl Following {
    /// Wait for a turn, but not for ever.
    pub fn begin(&self) -> Follower<'_> {
        loop {
            let is_full = |busy: &Busy| busy.count >= FOLLOWERS;
            let mut busy = self.0.wait_timeout_while(PATIENCE, is_full);
            if !is_full(&busy) || !busy.moves() {
                busy.count += 1;
                busy.moved = Some(clock::now());
                return Follower(self);
            }
        }
    }
}

impl Busy {
    fn moves(&self) -> bool {
        let since = |at| clock::now().saturating_duration_since(at);
        self.moved.is_some_and(|at| since(at) < PATIENCE)
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        let mut busy = self.0.0.lock();
        busy.count -= 1;
        busy.moved = Some(clock::now());
        drop(busy);
        self.0.0.wake_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_turn_gets_one_in_the_end() {
        let following = Following::default();
        let followers: Vec<_> = (0..=FOLLOWERS).map(|_| following.begin()).collect();
        assert_eq!(following.0.lock().count, FOLLOWERS + 1);
        drop(followers);
        assert_eq!(following.0.lock().count, 0);
    }
}
