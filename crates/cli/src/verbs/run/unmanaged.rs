//! Which processes of a run are not managed, and why.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// A process that vswap does not manage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unmanaged {
    pub pid: u32,
    pub name: String,
    pub why: String,
}

/// All of them. One thread adds to it, others report.
#[derive(Debug, Default)]
pub struct UnmanagedList(Mutex<Vec<Unmanaged>>);

impl UnmanagedList {
    pub fn add(&self, process: Unmanaged) {
        self.lock().push(process);
    }

    /// Those of this moment, and those that have ended.
    pub fn all(&self) -> Vec<Unmanaged> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Unmanaged>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
