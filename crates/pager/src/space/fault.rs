//! A fault: what a thread of the program waits for.

use std::time::Instant;

/// A fault, as read from the userfaultfd.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Number of the page.
    pub page: u64,
    /// The access is a write.
    pub write: bool,
    /// The page is there but write-protected.
    pub protected: bool,
    /// Served whatever the limit says: eviction may be waiting for it.
    pub urgent: bool,
    /// No fault yet: pages that a stream will touch next, which nobody waits for.
    pub ahead: bool,
    /// When it was read.
    pub since: Instant,
}
