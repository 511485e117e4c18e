//! A fault: what a thread of the program waits for.

use std::time::Instant;

/// A fault as the userfaultfd reported it.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Number of the page.
    pub page: u64,
    /// The access is a write.
    pub write: bool,
    /// The page is there but write-protected.
    pub protected: bool,
    /// Served whatever the limit says, because eviction may wait for it.
    pub urgent: bool,
    /// Not a fault yet: a page that a stream will touch next. Nobody waits for it.
    pub ahead: bool,
    /// When it was read.
    pub since: Instant,
}
