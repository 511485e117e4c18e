//! The wish for more room: pages will soon have nowhere to go.
//!
//! Whoever sees that (the governor of a run) wishes; whoever has areas to give waits for it. The pager knows of no
//! directories, and goes on whether somebody waits or not. The lock is innermost.

use crate::base::work::Work;

/// Whether somebody wishes for an area.
#[derive(Debug)]
pub struct MoreRoom(Work<bool>);

impl Default for MoreRoom {
    fn default() -> MoreRoom {
        MoreRoom(Work::new("the wish for an area"))
    }
}

impl MoreRoom {
    /// Wish for an area.
    pub fn want(&self) {
        *self.0.lock() = true;
        self.0.wake_one();
    }

    /// Wait for a wish, and take it.
    pub fn wait(&self) {
        *self.0.wait_while(|wanted| !wanted) = false;
    }
}
