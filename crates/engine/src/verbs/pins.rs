//! Holding stored bytes in place while they are read, by a pin in the backing word.
//!
//! The compare-exchange that takes a pin also decides that the bytes are still this entry's. There are few pins, so no
//! thread waits for one while it holds another. If a slot is put meanwhile, its last reader frees it.

use super::charge::Uncharges;
use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::words::backing::Stored;
use crate::words::backing_word::{BackingWord, Pin};
use crate::words::entry::Entry;

impl Engine {
    /// Pins a slot's stored bytes for reading. Bytes in the pool become young.
    pub(crate) fn pin(&self, cluster: &Cluster, slot: usize) -> Pin {
        self.pin_if(cluster, slot, |_| true)
    }

    /// Pins what is behind `entry` if that is this physical slot.
    pub(crate) fn pin_behind(&self, physical: Entry, entry: Entry) -> Pin {
        let is_ours = |stored| stored == Stored::Physical(physical);
        self.locate(entry).map_or(Pin::Nothing, |(cluster, slot)| {
            self.pin_if(cluster, slot, is_ours)
        })
    }

    /// Like `pin`, but only for what is `wanted`. Anything else counts as nothing stored.
    fn pin_if(&self, cluster: &Cluster, slot: usize, wanted: impl Fn(Stored) -> bool) -> Pin {
        let word = cluster.backing(slot);
        word.map_or(Pin::Nothing, |word| word.pin(self.aging.youngest(), wanted))
    }

    /// Undoes `pin`. Frees the slot if its last reference was put meanwhile and we are its last reader.
    pub(crate) fn unpin(&self, entry: Entry, cluster: &Cluster, slot: usize) {
        if !cluster.backing(slot).is_some_and(BackingWord::unpin) {
            return;
        }
        let Some(mut cluster) = cluster.lock() else {
            return;
        };
        let group = cluster.state.groups.of(slot);
        let stored = cluster.clear_backing(slot);
        let own = self.release_slot(&mut cluster, entry);
        drop(cluster);
        let mut uncharges = Uncharges::new(&self.groups);
        self.lose_all(entry, group, stored, own, &mut uncharges);
    }

    /// As `unpin`.
    pub(crate) fn unpin_entry(&self, entry: Entry) {
        if let Some((cluster, slot)) = self.locate(entry) {
            self.unpin(entry, cluster, slot);
        }
    }

    /// Unpins a page of the pool whose bytes are damaged, and marks it. Whoever touches the page gets the error.
    pub(crate) fn leave_damaged(&self, entry: Entry) {
        self.leave_marked(entry, |word| word.mark_damaged());
    }

    /// Unpins a page of the pool that cannot be packed more densely, and marks it.
    pub(crate) fn leave_dense(&self, entry: Entry) {
        self.leave_marked(entry, |word| word.mark_dense());
    }

    fn leave_marked(&self, entry: Entry, mark: impl FnOnce(BackingWord<'_>)) {
        let Some((cluster, slot)) = self.locate(entry) else {
            return;
        };
        if let Some(word) = cluster.backing(slot) {
            mark(word);
        }
        self.unpin(entry, cluster, slot);
    }
}
