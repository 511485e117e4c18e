//! Telling the storage of areas which slots hold nothing any more, so that a thin device, a file system or flash memory
//! can reuse the room.
//!
//! No lock is held meanwhile, because a discard may take as long as a write.

use std::ops::Range;

use super::Areas;
use super::new_area::NewArea;
use super::payer::Payer;
use super::physical::Physical;
use crate::base::storage::StorageError;
use crate::words::entry::Entry;
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::order::Order;
use crate::words::slot::Word;

impl Areas {
    /// Discards at most `budget` emptied clusters. Returns how many are free now.
    pub(crate) fn discard(&self, budget: usize) -> usize {
        let mut done = 0;
        for (_, physical) in self.all() {
            while done < budget && physical.discard_cluster() {
                done += 1;
            }
        }
        done
    }

    /// Allocates after discarding. Used when only clusters that wait for a discard are left.
    #[cold]
    pub(super) fn allocate_discarded(
        &self,
        cpu: usize,
        order: Order,
        words: &[Word],
        payer: &Payer<'_>,
    ) -> Option<(Entry, usize)> {
        // Other threads may take what we have freed before we do. The loop ends because fewer clusters wait each time.
        while self.discard(1) > 0 {
            let taken = self.take_in_turn(cpu, order, words, payer);
            if taken.is_some() {
                return taken;
            }
        }
        None
    }
}

impl Physical {
    /// Discards the clusters that have become empty, at most as many as the area has.
    pub(crate) fn discard_emptied(&self) {
        let clusters = self.usable().div_ceil(SLOTS_PER_CLUSTER as u64);
        (0..clusters).find(|_| !self.discard_cluster());
    }

    /// Discards one emptied cluster; false if none waits. A cluster that could not be discarded is free all the same.
    fn discard_cluster(&self) -> bool {
        let Some((cluster, slots)) = self.area.begin_discard() else {
            return false;
        };
        if self.area.discards() {
            let pages = slots.end - slots.start;
            let storage = self.storage();
            let discarded = storage.and_then(|storage| storage.discard(slots));
            self.count_discard(discarded.map(|()| pages));
        }
        self.area.end_discard(cluster);
        true
    }
}

/// Discards all usable slots. Returns how many there are.
pub(super) fn discard_whole(new: &NewArea) -> Result<u64, StorageError> {
    let mut pages = 0;
    for slots in usable(new) {
        pages += slots.end - slots.start;
        new.storage.discard(slots)?;
    }
    Ok(pages)
}

/// The ranges between the bad slots, which are sorted.
fn usable(new: &NewArea) -> impl Iterator<Item = Range<u64>> + '_ {
    let starts = [0].into_iter().chain(new.bad.iter().map(|bad| bad + 1));
    let ends = new.bad.iter().copied().chain([new.slots]);
    let ranges = starts.zip(ends).map(|(start, end)| start..end);
    ranges.filter(|slots| !slots.is_empty())
}
