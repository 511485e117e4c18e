//! Closing an area: from then on no slot of it is given out.
//!
//! A slot is taken only from a cluster that is some CPU's current one, under the cluster's lock, and a cluster becomes
//! current only under the lists' lock. So the area is marked as closed under the lists' lock, which ends the second,
//! and then each cluster is locked once and put away if it is current, which ends the first. Whoever took a slot before
//! has it; nobody takes one after.

use super::Area;
use crate::cluster::{Cluster, Place};
use crate::words::entry::Entry;
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::slot::Word;

impl Area {
    /// Gives out no slot any longer. Slots can be freed.
    pub(crate) fn close(&self) {
        self.lists.lock().is_closed = true;
        for (id, record) in self.clusters() {
            let Some(mut cluster) = record.lock() else {
                continue;
            };
            if matches!(cluster.place(), Place::Current | Place::Stolen) {
                let place = self.place_for(&cluster);
                self.relocate(&mut cluster, id, place);
            }
        }
    }

    /// Gives out slots again.
    pub(crate) fn reopen(&self) {
        self.lists.lock().is_closed = false;
    }

    /// The slots of a cluster that are in use, and their words.
    pub(crate) fn used_in(&self, id: u32, record: &Cluster) -> Vec<(Entry, Word)> {
        let Some(cluster) = record.lock() else {
            return Vec::new();
        };
        if cluster.state.used == 0 {
            return Vec::new();
        }
        (0..SLOTS_PER_CLUSTER)
            .map(|slot| (Entry::of(self.id, id, slot), cluster.word(slot)))
            .filter(|&(_, word)| word != Word::NULL && word != Word::BAD)
            .collect()
    }
}
