//! Which pages of an area have been left alone for longest.
//!
//! A hand goes round the slots in use. Whose page was read since it last came by (`Cluster::mark_read`) loses the mark
//! and stays; the others are given out. Clusters are filled one after the other and taken into use again in the order
//! in which they became empty, so what the hand meets first has been there for longest: this is the clock algorithm.

use super::Area;
use crate::cluster::{Cluster, Place};
use crate::words::entry::Entry;
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::slot::Word;

/// How often the hand may come round: for what is left of a lap, for marks, and for what has none any longer.
const LAPS_MAX: usize = 3;

/// Where the hand is: at this slot.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClockHand(u64);

impl Area {
    /// Up to `most` slots in use that are next to go, of one cluster, and their words; none if there are none but in
    /// clusters that are just being filled. No lock is held afterwards: words are hints.
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

    /// The same of one cluster, from a slot on. Takes marks away on the way.
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
    /// Cluster and slot that it is at, of the area or just behind its end.
    fn position(self) -> (u32, usize) {
        let slots = SLOTS_PER_CLUSTER as u64;
        let cluster = u32::try_from(self.0 / slots).unwrap_or(u32::MAX);
        (cluster, usize::try_from(self.0 % slots).unwrap_or(0))
    }
}
