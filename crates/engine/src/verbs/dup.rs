//! Adding references: the entries of a fork are its parent's, each counted once more.
//!
//! A fork adds one for each page of the parent that is out, while the parent stands still. Pages that left together
//! mostly have their slots in one cluster, so its lock is taken once for a row of them.

use crate::cluster::{ClusterGuard, DupError};
use crate::engine::Engine;
use crate::words::entry::{AreaId, Entry};

/// Adds many references. Holds the lock of one cluster at a time, until an entry of another one comes or it is dropped:
/// do nothing else with the engine meanwhile.
#[derive(Debug)]
pub struct Dups<'a> {
    engine: &'a Engine,
    /// Area and number of the locked cluster.
    held: Option<((AreaId, u32), ClusterGuard<'a>)>,
}

impl Engine {
    /// Adds a reference, for a fork that shares the entry. Counts above 14 take room in the cluster's extend table.
    ///
    /// # Errors
    /// [`DupError`]; the count is as before.
    pub fn dup(&self, entry: Entry) -> Result<(), DupError> {
        self.dups().dup(entry)
    }

    /// Adds many references, one after the other.
    #[must_use]
    pub fn dups(&self) -> Dups<'_> {
        Dups {
            engine: self,
            held: None,
        }
    }
}

impl Dups<'_> {
    /// Like [`Engine::dup`].
    ///
    /// # Errors
    /// [`DupError`]; the count is as before.
    pub fn dup(&mut self, entry: Entry) -> Result<(), DupError> {
        let (number, slot) = entry.position();
        let wanted = (entry.area(), number);
        if self.held.as_ref().is_none_or(|(held, _)| *held != wanted) {
            // First, because nobody waits for a cluster while he has one.
            self.held = None;
            let (cluster, _) = self.engine.lock(entry).ok_or(DupError::Gone)?;
            self.held = Some((wanted, cluster));
        }
        let (_, cluster) = self.held.as_mut().ok_or(DupError::Gone)?;
        cluster.dup(slot)
    }
}
