//! Areas of different priority as tiers: which are crowded while there is room below them, and taking slots below.

use super::{Areas, Physical, up_to};
use crate::words::entry::{AreaId, Entry};
use crate::words::order::Order;
use crate::words::slot::Word;

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

    /// Like [`Areas::allocate`], but in areas of lower priority than this. The CPU does not stay with the area found
    /// here, because pages that leave memory go to the highest area.
    pub(crate) fn allocate_below(
        &self,
        priority: i16,
        cpu: usize,
        words: &[Word],
    ) -> Option<(Entry, usize)> {
        let order = Order::for_pages(words.len())?;
        let mut areas = self.order.lock();
        let below = areas.partition_point(|&id| self.priority_of(id) >= priority);
        let equals =
            areas[below..].chunk_by_mut(|&a, &b| self.priority_of(a) == self.priority_of(b));
        for equals in equals {
            for order in order.and_below() {
                let words = up_to(order, words);
                let mut in_turn = equals.iter();
                let first = in_turn.find_map(|&id| self.take_of(id, cpu, order, words, None));
                if let Some(first) = first {
                    equals.rotate_left(1);
                    return Some((first, words.len()));
                }
            }
        }
        None
    }
}

impl Physical {
    /// Whether less than one in `part` of its slots is free.
    pub(crate) fn is_crowded(&self, part: u64) -> bool {
        !self.is_closing() && self.free_slots() < self.usable() / part.max(1)
    }

    fn has_room(&self) -> bool {
        !self.is_closing() && !self.is_failing() && self.free_slots() > 0
    }
}
