//! Fullness groups: the spans of a class that have room, sorted by how full they are.
//!
//! The lists are linked through the spans themselves. Full spans are on no list. The caller holds the class lock.

use super::span::{Span, SpanId, SpanTable};

/// Number of groups of spans with room. 16 groups tell spans of up to 16 objects apart exactly, and those spans hold
/// most payloads. One bit per group fits a u16.
const GROUPS: u8 = 16;

/// Group number of a span without room.
const FULL: u8 = GROUPS;

/// The lists of one class.
#[derive(Debug, Default)]
pub(super) struct FullnessLists {
    heads: [Option<SpanId>; GROUPS as usize],
    /// One bit per group: its list is not empty.
    occupied: u16,
}

fn group_of(live: u16, objects: u16) -> u8 {
    let group = u32::from(live) * u32::from(GROUPS) / u32::from(objects);
    u8::try_from(group).unwrap_or(FULL)
}

impl FullnessLists {
    /// The first span of the fullest group with room.
    pub(super) fn fullest(&self) -> Option<SpanId> {
        self.head(15_u32.checked_sub(self.occupied.leading_zeros())?)
    }

    /// The fullest span with room other than `except`.
    pub(super) fn fullest_but(&self, except: SpanId, spans: &SpanTable) -> Option<SpanId> {
        self.heads.iter().rev().flatten().find_map(|&head| {
            if head == except {
                spans.get(head)?.next()
            } else {
                Some(head)
            }
        })
    }

    /// The first span of the emptiest group.
    pub(super) fn emptiest(&self) -> Option<SpanId> {
        self.head(self.occupied.trailing_zeros())
    }

    fn head(&self, group: u32) -> Option<SpanId> {
        self.heads.get(group as usize).copied().flatten()
    }

    /// The spans on the lists, each with the number of its list and the span before it. At most `most` + 1 spans of one
    /// list.
    pub(super) fn walk(
        &self,
        spans: &SpanTable,
        most: usize,
    ) -> impl Iterator<Item = (SpanId, u8, Option<SpanId>)> {
        (0..GROUPS).zip(self.heads).flat_map(move |(group, head)| {
            let first = head.map(|head| (head, group, None));
            let list = std::iter::successors(first, move |&(id, ..)| {
                Some((spans.get(id)?.next()?, group, Some(id)))
            });
            list.take(most + 1)
        })
    }

    /// The list that a span belongs on.
    pub(super) fn group_of(span: &Span, objects: u16) -> u8 {
        group_of(span.live(), objects)
    }

    /// Puts a new span, which is on no list, on the right list.
    pub(super) fn insert(&mut self, id: SpanId, span: &Span, spans: &SpanTable, objects: u16) {
        let group = group_of(span.live(), objects);
        span.set_group(group);
        self.link(id, span, spans, group);
    }

    /// Takes a span off its list.
    pub(super) fn remove(&mut self, id: SpanId, span: &Span, spans: &SpanTable) {
        self.unlink(id, span, spans, span.group());
    }

    /// Moves a span to the right list after its number of live objects has changed.
    pub(super) fn update(&mut self, id: SpanId, span: &Span, spans: &SpanTable, objects: u16) {
        let (old, new) = (span.group(), group_of(span.live(), objects));
        if old != new {
            self.unlink(id, span, spans, old);
            span.set_group(new);
            self.link(id, span, spans, new);
        }
    }

    fn link(&mut self, id: SpanId, span: &Span, spans: &SpanTable, group: u8) {
        let Some(head) = self.heads.get_mut(usize::from(group)) else {
            return;
        };
        span.set_prev(None);
        span.set_next(*head);
        if let Some(next) = head.and_then(|next| spans.get(next)) {
            next.set_prev(Some(id));
        }
        *head = Some(id);
        self.occupied |= 1 << group;
    }

    fn unlink(&mut self, id: SpanId, span: &Span, spans: &SpanTable, group: u8) {
        let Some(head) = self.heads.get_mut(usize::from(group)) else {
            return;
        };
        if let Some(next) = span.next().and_then(|next| spans.get(next)) {
            next.set_prev(span.prev());
        }
        if let Some(prev) = span.prev().and_then(|prev| spans.get(prev)) {
            prev.set_next(span.next());
        } else {
            debug_assert_eq!(*head, Some(id), "a span without predecessor heads its list");
            *head = span.next();
        }
        if head.is_none() {
            self.occupied &= !(1 << group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_rise_with_fullness_and_only_full_spans_have_none() {
        for objects in [1, 2, 9, 15, 16, 23, 128, 256_u16] {
            assert_eq!(group_of(0, objects), 0);
            assert_eq!(group_of(objects, objects), FULL);
            for live in 0..objects {
                assert!(group_of(live, objects) < FULL);
                assert!(group_of(live, objects) <= group_of(live + 1, objects));
            }
        }
    }
}
