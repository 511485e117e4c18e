//! The queue of clean frames: pages that were read ahead, whose bytes are also in their area.
//!
//! Its lock is innermost.

use std::collections::VecDeque;

use crate::base::lock_order;
use crate::base::sync::Lock;
use crate::words::entry::Entry;

/// One in this many frames may hold pages that were read ahead. The others are for pages on their way out.
pub(crate) const FRAMES_PART: usize = 4;

/// Pages that were read ahead, oldest first. A hint: an entry may have lost its frame, or name another page by now.
#[derive(Debug)]
pub(crate) struct CleanFrames {
    queue: Lock<VecDeque<Entry>, { lock_order::CLEAN_FRAMES }>,
    /// The most pages that the queue may hold.
    pub(crate) most: usize,
}

impl CleanFrames {
    pub(crate) fn new(frames: usize) -> CleanFrames {
        CleanFrames {
            queue: Lock::new(VecDeque::new()),
            most: frames / FRAMES_PART,
        }
    }

    /// Adds a page. Returns the oldest page if the queue now holds too many.
    pub(crate) fn push(&self, entry: Entry) -> Option<Entry> {
        let mut queue = self.queue.lock();
        queue.push_back(entry);
        if queue.len() > self.most {
            queue.pop_front()
        } else {
            None
        }
    }

    /// Removes the oldest page.
    pub(crate) fn oldest(&self) -> Option<Entry> {
        self.queue.lock().pop_front()
    }
}
