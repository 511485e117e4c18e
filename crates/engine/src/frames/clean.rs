//! The queue of clean frames: pages that were read ahead, whose bytes lie in their area as well.
//!
//! Its lock is innermost.

use std::collections::VecDeque;

use crate::base::lock_order;
use crate::base::sync::Lock;
use crate::words::entry::Entry;

/// Of all frames, one part in this many may hold pages that were read ahead: the others are for pages on their way out.
pub(crate) const FRAMES_PART: usize = 4;

/// Pages that were read ahead, oldest first. A hint: some of them may have lost their frame, or be other pages by now.
#[derive(Debug)]
pub(crate) struct CleanFrames {
    queue: Lock<VecDeque<Entry>, { lock_order::CLEAN_FRAMES }>,
    /// How many pages there may be.
    pub(crate) most: usize,
}

impl CleanFrames {
    pub(crate) fn new(frames: usize) -> CleanFrames {
        CleanFrames {
            queue: Lock::new(VecDeque::new()),
            most: frames / FRAMES_PART,
        }
    }

    /// Adds a page, and returns the one that is too many now.
    pub(crate) fn push(&self, entry: Entry) -> Option<Entry> {
        let mut queue = self.queue.lock();
        queue.push_back(entry);
        if queue.len() > self.most {
            queue.pop_front()
        } else {
            None
        }
    }

    /// Takes the oldest page out.
    pub(crate) fn oldest(&self) -> Option<Entry> {
        self.queue.lock().pop_front()
    }
}
