//! Figures of a large engine, without going through all of it each time.
//!
//! Whoever holds a limit wants figures hundreds of times a second, from a thread that must not run for long.
//! [`Engine::stats`] takes the lock of each cluster, which is some 10 ms where a TiB is swapped out. A recount goes
//! through a bounded number of clusters, begins where the last one stopped, and remembers the sums of the others. Up to
//! 4 GiB of pages without areas, and 2 GiB with one, it sees all of them each time, and its figures are those of
//! `stats`. Beyond that a figure is as old as it takes to go around once. Clusters that are used for the first time
//! come first, because an engine grows by them.
//!
//! Counters that are kept would be exact. But each cluster counts for itself, under its own lock, so that CPUs share
//! nothing when they take and free slots. A common counter would be what they all write to.

use crate::area::{Area, AreaStats};
use crate::engine::Engine;
use crate::stats::Stats;
use crate::words::geometry::FEW_CLUSTERS;

/// Clusters with a common sum: what one leaf of the directory holds.
const CHUNK: usize = if FEW_CLUSTERS { 2 } else { 256 };
/// Chunks that one call goes through: some 40 us.
const CHUNKS_AT_ONCE: usize = 8;

/// What is remembered between two recounts. It belongs to one engine.
#[derive(Debug, Default)]
pub struct Recount {
    /// Of the virtual area, and of each physical one by its number.
    areas: Vec<Remembered>,
}

/// The sums of one area.
#[derive(Debug, Default)]
struct Remembered {
    /// Of each chunk.
    chunks: Vec<AreaStats>,
    /// Of all chunks.
    sum: AreaStats,
    /// The chunk that comes next.
    next: usize,
}

impl Remembered {
    /// Goes through at most `most` chunks of the area, and returns the figures of all.
    fn go_on(&mut self, area: &Area, most: usize) -> AreaStats {
        let end = area.end();
        let count = end.div_ceil(CHUNK);
        // The area was cleared, and its numbers begin again.
        while self.chunks.len() > count {
            self.set(self.chunks.len() - 1, AreaStats::default());
            self.chunks.pop();
        }
        // The last chunk grows, and behind it there may be new ones.
        let growing = self.chunks.len().saturating_sub(1)..count;
        let grown = growing.len().min(most);
        for chunk in growing.take(grown) {
            self.look(area, chunk, end);
        }
        let others = self.chunks.len().saturating_sub(1);
        for _ in 0..others.min(most - grown) {
            self.look(area, self.next % others, end);
            self.next = self.next % others + 1;
        }
        self.sum.and(&area.own_stats())
    }

    fn look(&mut self, area: &Area, chunk: usize, end: usize) {
        let first = chunk * CHUNK;
        let figures = area.stats_of(first..end.min(first + CHUNK));
        if chunk == self.chunks.len() {
            self.chunks.push(AreaStats::default());
        }
        self.set(chunk, figures);
    }

    fn set(&mut self, chunk: usize, figures: AreaStats) {
        let before = std::mem::replace(&mut self.chunks[chunk], figures);
        self.sum = self.sum.and(&figures).without(&before);
    }
}

impl Engine {
    /// Figures like those of [`Engine::stats`], of which those of clusters may be older. Takes the lock of at most 2048
    /// clusters, each for a moment: or of 256 of each area, if there are more than seven. Takes each class lock
    /// of the pool as well. `recount` is of this engine alone.
    #[must_use]
    pub fn recount(&self, recount: &mut Recount) -> Stats {
        let count = self.ever_areas().count();
        recount.areas.resize_with(count, Remembered::default);
        let most = (CHUNKS_AT_ONCE / count).max(1);
        let mut each = self
            .ever_areas()
            .zip(&mut recount.areas)
            .map(|(area, remembered)| remembered.go_on(area, most));
        let slots = each.next().unwrap_or_default();
        let physical = each.fold(AreaStats::default(), |sum, one| sum.and(&one));
        self.figures(&slots, &physical)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::area::testing::{free, used};
    use crate::base::pages::HeapPages;
    use crate::words::entry::Entry;
    use crate::words::geometry::SLOTS_PER_CLUSTER;
    use crate::words::order::Order;

    const SLOTS: usize = CHUNK * SLOTS_PER_CLUSTER;

    fn area() -> Area {
        Area::virtual_area(1, Arc::new(HeapPages::default())).expect("memory")
    }

    fn take(area: &Area, slots: usize) -> Vec<Entry> {
        let one = || {
            area.allocate(0, Order::SLOT, &[used()], None)
                .expect("room")
        };
        (0..slots).map(|_| one()).collect()
    }

    #[test]
    fn a_small_area_is_seen_whole_each_time() {
        let (area, mut recount) = (area(), Remembered::default());
        assert_eq!(recount.go_on(&area, 3), area.stats());
        let mut taken = Vec::new();
        for round in 0..6 {
            taken.extend(take(&area, SLOTS / 2));
            assert_eq!(recount.go_on(&area, 3), area.stats(), "round {round}");
            assert_eq!(area.stats().slots_used, taken.len() as u64);
        }
        while !taken.is_empty() {
            // Of all chunks at once.
            for at in (0..taken.len()).step_by(3).rev() {
                free(&area, taken.swap_remove(at));
            }
            assert_eq!(recount.go_on(&area, 3), area.stats(), "{}", taken.len());
        }
    }

    #[test]
    fn a_large_area_is_gone_around_and_grows_at_once() {
        let (area, mut recount) = (area(), Remembered::default());
        let mut taken = Vec::new();
        for _ in 0..5 {
            taken.extend(take(&area, SLOTS));
            assert_eq!(recount.go_on(&area, 2), area.stats(), "growth comes first");
        }
        for entry in taken.drain(..2 * SLOTS) {
            free(&area, entry);
        }
        let late = recount.go_on(&area, 2).slots_used;
        assert!(late > area.stats().slots_used, "one of two chunks was seen");
        let rounds = (1..10).find(|_| recount.go_on(&area, 2) == area.stats());
        assert!(rounds.is_some_and(|rounds| rounds <= 4), "{rounds:?}");
        for entry in taken {
            free(&area, entry);
        }
        area.close();
        area.clear();
        assert_eq!(recount.go_on(&area, 2), area.stats());
        assert_eq!((recount.chunks.len(), recount.sum.slots_used), (0, 0));
    }
}
