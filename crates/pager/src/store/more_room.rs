//! The wish for more room: pages will soon have nowhere to go.
//!
//! Whoever sees that (the governor of a run) wishes; whoever has areas to give waits for it. The pager knows of no
//! directories, and goes on whether somebody waits or not. The lock is innermost.

use std::sync::Condvar;

use crate::base::lock::{Mutex, Row};

/// Whether somebody wishes for an area.
#[derive(Debug)]
pub struct MoreRoom {
    wanted: Mutex<bool>,
    changed: Condvar,
}

impl Default for MoreRoom {
    fn default() -> MoreRoom {
        MoreRoom {
            wanted: Mutex::new(Row::Innermost, "the wish for an area", false),
            changed: Condvar::new(),
        }
    }
}

impl MoreRoom {
    /// Wish for an area.
    pub fn want(&self) {
        *self.wanted.lock() = true;
        self.changed.notify_one();
    }

    /// Wait for a wish, and take it.
    pub fn wait(&self) {
        let mut wanted = self.wanted.lock();
        while !*wanted {
            wanted = wanted.wait(&self.changed);
        }
        *wanted = false;
    }
}
