//! Areas of different priority: which are crowded while there is room below them, and taking slots below. And which
//! tiers have room.

use super::{Areas, Payer, Physical};
use crate::base::storage::StorageExtent;
use crate::words::entry::{AreaId, Entry};
use crate::words::order::Order;
use crate::words::slot::Word;
use crate::words::tier::TierSet;

impl Areas {
    /// The areas with less than one in `part` of their slots free, while an area of lower priority has a free slot. The
    /// lowest comes first: moving its pages down makes room for those from above.
    pub(crate) fn crowded(&self, part: u64) -> Vec<&Physical> {
        let order = self.order.lock();
        let mut below_has_room = false;
        let mut crowded = Vec::new();
        for equals in order
            .chunk_by(|&a, &b| self.priority_of(a) == self.priority_of(b))
            .rev()
        {
            let equals = || equals.iter().filter_map(|&id| self.get(id));
            if below_has_room {
                crowded.extend(equals().filter(|area| area.is_crowded(part)));
            }
            below_has_room |= equals().any(Physical::has_room);
        }
        crowded
    }

    /// Whether there is an area of higher priority than this one's.
    pub(crate) fn is_lower(&self, id: AreaId) -> bool {
        let priority = self.priority_of(id);
        let order = self.order.lock();
        order
            .first()
            .is_some_and(|&first| self.priority_of(first) > priority)
    }

    /// The tiers that have a free slot; all if none has. A hint, and takes no lock.
    pub(crate) fn tiers_with_room(&self) -> TierSet {
        let tiers = tiers_of(self.all().map(|(_, physical)| physical));
        if tiers.is_empty() {
            TierSet::ALL
        } else {
            tiers
        }
    }

    /// The tiers that have a free slot in an area of lower priority than this.
    pub(crate) fn tiers_below(&self, priority: i16) -> TierSet {
        let order = self.order.lock();
        let below = order.partition_point(|&id| self.priority_of(id) >= priority);
        tiers_of(order[below..].iter().filter_map(|&id| self.get(id)))
    }

    /// Like [`Areas::allocate`], but in areas of lower priority than this. Among equals, areas from which a page costs
    /// much more to bring back are used when the others have no room. The CPU does not stay with the area found here,
    /// because pages that leave memory go to the highest area.
    pub(crate) fn allocate_below(
        &self,
        priority: i16,
        cpu: usize,
        words: &[Word],
        payer: &Payer<'_>,
    ) -> Option<(Entry, usize)> {
        let order = Order::for_pages(words.len())?;
        let mut areas = self.order.lock();
        let below = areas.partition_point(|&id| self.priority_of(id) >= priority);
        let equals =
            areas[below..].chunk_by_mut(|&a, &b| self.priority_of(a) == self.priority_of(b));
        for equals in equals {
            let cheap = self.move_dear_back(equals);
            let (cheap, dear) = equals.split_at_mut(cheap);
            for equals in [cheap, dear] {
                for order in order.and_below() {
                    let mut in_turn = equals.iter().enumerate();
                    let taken = in_turn.find_map(|(at, &id)| {
                        Some((at, self.take_of(id, cpu, order, words, payer)?))
                    });
                    if let Some((at, taken)) = taken {
                        equals[at..].rotate_left(1);
                        return Some(taken);
                    }
                }
            }
        }
        None
    }

    /// Puts the areas from which a page is dear to bring back behind the others, each part in its order. Returns how
    /// many are not dear.
    fn move_dear_back(&self, equals: &mut [AreaId]) -> usize {
        let costs = equals.iter().filter_map(|&id| self.get(id)?.cost.lone());
        let Some(least) = costs.min() else {
            return equals.len();
        };
        let is_dear = |id: AreaId| self.get(id).is_some_and(|area| area.cost.is_dear(least));
        let mut cheap = 0;
        for at in 0..equals.len() {
            if !is_dear(equals[at]) {
                equals[cheap..=at].rotate_right(1);
                cheap += 1;
            }
        }
        cheap
    }
}

fn tiers_of<'a>(areas: impl Iterator<Item = &'a Physical>) -> TierSet {
    let with_room = areas.filter(|area| area.has_room());
    with_room.fold(TierSet::default(), |tiers, area| tiers.with(area.tier()))
}

impl Physical {
    /// Whether less than one in `part` of its slots is free, or of its medium where slots do not tell.
    pub(crate) fn is_crowded(&self, part: u64) -> bool {
        let by_slots = || (self.free_slots(), self.usable());
        let of_medium = |extent: StorageExtent| (extent.free_bytes, extent.size_bytes);
        let (free, all) = self.extent().map_or_else(by_slots, of_medium);
        !self.is_closing() && free < all / part.max(1)
    }

    fn has_room(&self) -> bool {
        !self.is_closing() && !self.is_failing() && self.free_slots() > 0
    }
}
