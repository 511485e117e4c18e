//! Which pages of an area have been left alone for longest.
//!
//! A hand goes round the slots in use. If a page was read since the hand last came by (`Cluster::mark_read`), it loses
//! the mark and stays. The hand gives out the others. Clusters are filled one after the other and reused in the order
//! in which they became empty. So the hand first meets the pages that have been there for longest: this is the clock
//! algorithm.

use super::Area;
use crate::cluster::{Cluster, Place};
use crate::words::entry::Entry;
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::slot::Word;

/// How many laps the hand may make: one for the rest of the current lap, one to clear marks, one to find pages without
/// marks.
const LAPS_MAX: usize = 3;

/// The slot at which the hand is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClockHand(u64);

impl Area {
    /// Returns up to `most` used slots of one cluster that are next to go, and their words. None if all such slots are
    /// in clusters that are being filled. No lock is held afterwards, so the words are hints.
    pub(crate) fn cold_slots(&self, hand: &mut ClockHand, most: usize) -> Vec<(Entry, Word)> {
        for _ in 0..LAPS_MAX {
            let (first, slot) = hand.position();
            for (id, cluster) in self.clusters_from(first) {
                let from = if id == first { slot } else { 0 };
                let cold = self.cold_in(id, cluster, from, most);
                if let Some((last, _)) = cold.last() {
                    *hand = ClockHand(last.offset() + 1);
                    return cold;
                }
            }
            *hand = ClockHand(0);
        }
        Vec::new()
    }

    /// Like `cold_slots` for one cluster, from slot `from` on. Clears marks on the way.
    fn cold_in(&self, id: u32, record: &Cluster, from: usize, most: usize) -> Vec<(Entry, Word)> {
        let Some(cluster) = record.lock() else {
            return Vec::new();
        };
        if !matches!(cluster.place(), Place::Full | Place::Frag | Place::Nonfull) {
            return Vec::new();
        }
        (from..SLOTS_PER_CLUSTER)
            .map(|slot| (slot, cluster.word(slot)))
            .filter(|(_, word)| word.owner().is_some())
            .filter(|(slot, _)| !cluster.take_read_mark(*slot))
            .map(|(slot, word)| (Entry::of(self.id, id, slot), word))
            .take(most)
            .collect()
    }
}

impl ClockHand {
    /// Cluster and slot of the hand: in the area or just behind its end.
    fn position(self) -> (u32, usize) {
        let slots = SLOTS_PER_CLUSTER as u64;
        let cluster = u32::try_from(self.0 / slots).unwrap_or(u32::MAX);
        (cluster, usize::try_from(self.0 % slots).unwrap_or(0))
    }
}
