//! Whether any process of a run has the seccomp filter.

use std::sync::atomic::{AtomicU64, Ordering};

/// The listeners of filters that are being served.
#[derive(Debug, Default)]
pub struct Filters {
    listeners: AtomicU64,
}

impl Filters {
    /// A filter's listener is being served.
    pub fn add_listener(&self) {
        self.listeners.fetch_add(1, Ordering::AcqRel);
    }

    /// Does any process of the run have a filter?
    pub fn has_listener(&self) -> bool {
        self.listeners.load(Ordering::Acquire) > 0
    }
}
