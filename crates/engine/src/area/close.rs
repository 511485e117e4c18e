//! Closing an area: from then on no slot of it is given out. And opening it again, as it was or with other slots.
//!
//! A slot is taken only from some CPU's current cluster, under the cluster's lock. A cluster becomes current only under
//! the lists' lock. So closing marks the area under the lists' lock: no cluster becomes current after that. Then it
//! locks each cluster once and puts it away if it is current: no slot is taken after that. Whoever took a slot before
//! keeps it.
//!
//! Threads reach an area's clusters without a lock, so the records stay where they are when the area loses its storage.
//! The next area with the same number begins with them. Whoever looks at a slot of the former one finds it free, or
//! finds a word that does not name what he came for.

use super::Area;
use crate::base::sync::Ordering;
use crate::cluster::{Cluster, Extent, Lists, Place};
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

    /// Forgets the clusters of a closed area, whose slots are all free or bad. Their records stay for
    /// [`Area::begin_again`].
    pub(crate) fn clear(&self) {
        for (id, record) in self.clusters() {
            let Some(mut cluster) = record.lock() else {
                continue;
            };
            if cluster.place() != Place::Free {
                cluster.forget_bad();
                self.relocate(&mut cluster, id, Place::Free);
            }
        }
        let mut lists = self.lists.lock();
        *lists = Lists::new(Extent::default());
        lists.is_closed = true;
    }

    /// Opens a cleared area with other slots. `cpus` of the CPUs have clusters of their own.
    pub(crate) fn begin_again(&self, extent: Extent, cpus: usize) {
        self.cpus
            .store(cpus.clamp(1, self.currents.len()), Ordering::Relaxed);
        self.is_mapped.store(false, Ordering::Relaxed);
        *self.lists.lock() = Lists::new(extent);
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
