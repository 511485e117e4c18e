//! A fault: what a thread of the program waits for.

use std::time::Instant;

use crate::space::wait::Wait;

/// A fault as the userfaultfd reported it.
#[derive(Debug, Clone)]
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
    /// That a thread of the program waits for it.
    #[expect(
        dead_code,
        reason = "that it is there, and that it goes, is what counts"
    )]
    pub wait: Wait,
}

impl Fault {
    /// Would whoever serves the one have served the other?
    pub fn is_like(&self, other: &Fault) -> bool {
        let shape = |fault: &Fault| (fault.page, fault.write, fault.protected, fault.urgent);
        shape(self) == shape(other)
    }
}
