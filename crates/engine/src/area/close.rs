//! Closing an area: from then on no slot of it is given out.
//!
//! A slot is taken only from some CPU's current cluster, under the cluster's lock. A cluster becomes current only under
//! the lists' lock. So closing marks the area under the lists' lock: no cluster becomes current after that. Then it
//! locks each cluster once and puts it away if it is current: no slot is taken after that. Whoever took a slot before
//! keeps it.

use super::Area;
use crate::cluster::{Cluster, Place};
use crate::words::entry::Entry;
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::slot::Word;

impl Area {
    /// Stops giving out slots. Slots can still be freed.
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

    /// The used slots of a cluster, and their words.
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
