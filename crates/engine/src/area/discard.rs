//! Emptied clusters whose storage is still to forget them, and which are not given out before.
//!
//! An emptied cluster waits on a list of its own. Whoever discards takes it off (and no list has it then, so nobody
//! gives slots of it out), talks to the storage without a lock, and makes it a free one. A closed area starts no
//! discard, and says while one is under way: the storage must not be taken away, or given to somebody else, under it.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Area;
use super::placement::place_of;
use crate::cluster::{Cluster, ClusterGuard, Place};
use crate::words::order::Order;

impl Area {
    /// From now on emptied clusters wait for a discard, or no longer do.
    pub(crate) fn set_discards(&self, discards: bool) {
        self.discards.store(discards, Ordering::Relaxed);
    }

    pub(crate) fn discards(&self) -> bool {
        self.discards.load(Ordering::Relaxed)
    }

    /// Where a cluster belongs that is nobody's current one.
    pub(crate) fn place_for(&self, cluster: &ClusterGuard<'_>) -> Place {
        match place_of(cluster) {
            Place::Free if self.discards() => Place::Discard,
            place => place,
        }
    }

    /// Takes the cluster that has waited longest, and says which slots are to be discarded. `end_discard` must follow.
    pub(crate) fn begin_discard(&self) -> Option<(u32, Range<u64>)> {
        let mut lists = self.lists.lock();
        if lists.is_closed {
            return None;
        }
        let id = lists.head(Place::Discard, Order::SLOT);
        let record = self.directory.linked(id)?;
        // Against the lock order. Only who looks up an entry that was freed could hold it, and not for long.
        let _cluster = record.try_lock()?;
        lists.remove(&self.directory, Place::Discard, record);
        record.set_place(Place::Discarding);
        lists.discarding += 1;
        Some((id, self.slots_of(id)))
    }

    /// The cluster is a free one again.
    pub(crate) fn end_discard(&self, id: u32) {
        if let Some(mut cluster) = self.directory.get(id).and_then(Cluster::lock) {
            self.relocate(&mut cluster, id, Place::Free);
        }
        self.lists.lock().discarding -= 1;
    }

    /// Whether somebody is between `begin_discard` and `end_discard`.
    pub(crate) fn is_discarding(&self) -> bool {
        self.lists.lock().discarding > 0
    }
}
