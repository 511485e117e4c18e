//! Emptied clusters that must be discarded in their storage before they are given out again.
//!
//! An emptied cluster waits on a list of its own. Whoever discards takes the cluster off the list. It is then on no
//! list, so nobody takes slots from it. The storage is called without a lock, and then the cluster becomes a free one.
//! A closed area starts no discard. It also says whether one is under way, because the storage must not be taken away
//! or given to somebody else meanwhile.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Area;
use super::placement::place_of;
use crate::cluster::{Cluster, ClusterGuard, Extent, Place};
use crate::words::order::Order;

impl Area {
    /// Sets whether emptied clusters wait for a discard from now on.
    pub(crate) fn set_discards(&self, discards: bool) {
        self.discards.store(discards, Ordering::Relaxed);
    }

    pub(crate) fn discards(&self) -> bool {
        self.discards.load(Ordering::Relaxed)
    }

    /// The place where a cluster belongs that is nobody's current one.
    pub(crate) fn place_for(&self, cluster: &ClusterGuard<'_>) -> Place {
        match place_of(cluster) {
            Place::Free if self.discards() => Place::Discard,
            place => place,
        }
    }

    /// Takes the cluster that has waited longest. Returns it and the slots to discard. `end_discard` must follow.
    pub(crate) fn begin_discard(&self) -> Option<(u32, Range<u64>)> {
        let mut lists = self.lists.lock();
        if lists.is_closed {
            return None;
        }
        let id = lists.head(Place::Discard, Order::SLOT);
        let record = self.directory.linked(id)?;
        // This is against the lock order, so we only try the lock. Only somebody who looks up a freed entry could hold
        // it, and not for long.
        let _cluster = record.try_lock()?;
        lists.remove(&self.directory, Place::Discard, record);
        record.set_place(Place::Discarding);
        lists.discarding += 1;
        Some((id, Extent::slots_of(id)))
    }

    /// Makes the cluster a free one again.
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
