//! Which processes of a run are not managed, and why.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// A process that vswap does not manage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unmanaged {
    pub pid: u32,
    pub name: String,
    pub why: String,
}

/// So many are remembered, the last ones.
const REMEMBERED: usize = 1024;

/// Those that were met last. One thread adds to it, others report.
#[derive(Debug, Default)]
pub struct UnmanagedList(Mutex<VecDeque<Unmanaged>>);

impl UnmanagedList {
    pub fn add(&self, process: Unmanaged) {
        let mut known = self.lock();
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back(process);
    }

    /// Those of this moment, and those that have ended.
    pub fn all(&self) -> Vec<Unmanaged> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Unmanaged>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
