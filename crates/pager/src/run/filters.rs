//! Whether any process of a run has the seccomp filter.

use std::sync::atomic::{AtomicU64, Ordering};

/// The filters' listeners that are served.
#[derive(Debug, Default)]
pub struct Filters {
    listeners: AtomicU64,
}

impl Filters {
    /// A filter's listener is being served.
    pub fn add_listener(&self) {
        self.listeners.fetch_add(1, Ordering::AcqRel);
    }

    /// Has any process of the run a filter?
    pub fn has_listener(&self) -> bool {
        self.listeners.load(Ordering::Acquire) > 0
    }
}
