//! Layout events: what `munmap`, `mremap` and `madvise` did to a space, as the userfaultfd tells it.
//!
//! Called with the space lock held, for one event after the other.
//!
//! An event is only a hint. The kernel also sends UNMAP for a call that failed and unmapped nothing. It collects the
//! events before it knows the outcome (a sealed mapping in the range, no memory, a limit). And when UNMAP is read, new
//! memory may already lie there. So UNMAP takes away only what the kernel, asked now, has no registered mapping for.
//! Nothing can be registered there in between without the layout knowing. Fresh and moved mappings are entered in the
//! layout before anybody may touch them (`regions::adopt`, REMAP), and that drops the words of what lay there before.
//!
//! Asking has a side effect: the kernel prepares the mapping for pages, and afterwards does not merge it with its
//! neighbours any more. So whoever asks takes the agent's slot. With the slot held no fresh mapping is about to be
//! registered. While somebody else has the slot the range stays *undecided*. If the call failed, its words are still
//! true. If the call succeeded, the kernel refuses every page that vswap would put there. Moving pages out needs the
//! slot, and decides first.
//!
//! A fork holds the slot. The child gets the words of what its parent unmaps meanwhile, because the child may have
//! copied that memory before. When the child's agent says hello, the words of what the child does not have are dropped
//! (`regions::keep_inherited`).

use std::ops::Range;

use crate::base::kernel::uffd::{Message, Registered};
use crate::base::page_run::PAGE_BYTES;
use crate::base::ranges::RangeSet;
use crate::base::rules::{self, Rule};
use crate::layout::words::PageState;
use crate::run::references::References;
use crate::space::agent::Slot;
use crate::space::{Space, State, present};

/// Apply a layout event other than a fork.
pub fn apply(references: &References, space: &Space, state: &mut State, event: &Message) {
    let pages = |start: u64, end: u64| start / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
    let put = &mut references.puts();
    match *event {
        Message::Unmap { start, end } => {
            space.mappings_seen.note_unmapped();
            state.undecided.insert(pages(start, end));
            try_decide(references, space, state);
        }
        Message::Remove { start, end } => {
            let range = pages(start, end);
            let present = present_of(space, state, &range);
            state.layout.remove(range, present.iter(), put);
        }
        Message::Remap { from, to, bytes } => {
            let moved = bytes.div_ceil(PAGE_BYTES);
            let (from, to) = (from / PAGE_BYTES, to / PAGE_BYTES);
            state.layout.remap(from, to, moved, put);
            state.undecided.remove(to..to + moved);
        }
        Message::Fault { .. } | Message::Fork { .. } | Message::Unknown { .. } => {}
    }
}

/// The parts of a range that are in memory at this moment.
fn present_of(space: &Space, state: &State, range: &Range<u64>) -> RangeSet {
    let mut present = RangeSet::new();
    for part in present::present_parts(space, range.clone()) {
        present.insert(part.clone());
        // A page that is out may have a marker there, which looks present.
        let words = state.layout.words.iter(part);
        for (page, _) in words.filter(|(_, word)| matches!(word.state(), PageState::Swapped(_))) {
            present.remove(page..page + 1);
        }
    }
    present
}

/// Decide what is undecided, if nobody else has the slot. A space whose agent has not said hello has no slot. It can
/// only ask through the userfaultfd that carries the events, which does not answer while an event is under way.
pub fn try_decide(references: &References, space: &Space, state: &mut State) {
    if state.undecided == RangeSet::new() {
        return;
    }
    match space.process.get() {
        None => decide_all(references, space, state),
        Some(process) => {
            if let Some(slot) = process.agent.try_slot() {
                decide(references, space, state, &slot);
            }
        }
    }
}

/// Take out of the layout what UNMAP events have named and the kernel has no registered mapping for.
pub fn decide(references: &References, space: &Space, state: &mut State, _slot: &Slot<'_>) {
    decide_all(references, space, state);
}

fn decide_all(references: &References, space: &Space, state: &mut State) {
    let named: Vec<Range<u64>> = state.undecided.iter().collect();
    for range in named {
        if !rules::holds(Rule::AskAfterUnmap) {
            state.layout.unmap(range.clone(), &mut references.puts());
        }
        // Rule P9.
        if keep_registered(references, space, state, range.clone()).is_none() {
            return;
        }
        for part in without(
            range.clone(),
            state.layout.registered.overlaps(range.clone()),
        ) {
            state.layout.unmap(part, &mut references.puts());
        }
        state.undecided.remove(range);
    }
}

/// Keep in the layout, of a range, only what is still registered. None if the kernel cannot tell at this moment.
pub fn keep_registered(
    references: &References,
    space: &Space,
    state: &mut State,
    range: Range<u64>,
) -> Option<()> {
    let known: Vec<Range<u64>> = state.layout.registered.overlaps(range).collect();
    let left = registered_of(space, known.iter().cloned())?;
    for known in known {
        for part in without(known.clone(), left.overlaps(known.clone())) {
            state.layout.unmap(part, &mut references.puts());
        }
    }
    Some(())
}

/// A range without some parts of it.
fn without(range: Range<u64>, parts: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut left = RangeSet::new();
    left.insert(range);
    parts.for_each(|part| drop(left.remove(part)));
    left.iter().collect()
}

/// Which parts of `ranges` lie in registered mappings now? None if the kernel cannot tell at this moment.
///
/// This is exact also while other threads split and merge mappings. A "no" about more than one page may only mean that
/// a mapping was split, so it does not count. Only "no" about single pages does.
pub fn registered_of(space: &Space, ranges: impl Iterator<Item = Range<u64>>) -> Option<RangeSet> {
    let mut found = RangeSet::new();
    let mut open: Vec<Range<u64>> = ranges.filter(|range| !range.is_empty()).collect();
    while let Some(range) = open.pop() {
        let (first, last) = (range.start..range.start + 1, range.end - 1..range.end);
        match is_registered(space, &range) {
            Registered::Unknown => return None,
            Registered::Yes => found.insert(range),
            Registered::No if range == first => {}
            Registered::No => match mapped_parts(space, &range) {
                // One mapping, also while the question was asked.
                Some(parts)
                    if parts == [range.clone()]
                        && is_registered(space, &first) == Registered::No
                        && is_registered(space, &last) == Registered::No => {}
                Some(parts) if parts != [range.clone()] => open.extend(parts),
                _ => {
                    let middle = range.start + (range.end - range.start) / 2;
                    open.extend([range.start..middle, middle..range.end]);
                }
            },
        }
    }
    Some(found)
}

fn is_registered(space: &Space, pages: &Range<u64>) -> Registered {
    let bytes = (pages.end - pages.start) * PAGE_BYTES;
    space.is_registered(pages.start * PAGE_BYTES, bytes)
}

/// The mapped parts of a range, one for each mapping. None for a space without an agent, because its process is not
/// known.
fn mapped_parts(space: &Space, range: &Range<u64>) -> Option<Vec<Range<u64>>> {
    let map = &space.process.get()?.map;
    let parts = map.mapped(range.start * PAGE_BYTES, range.end * PAGE_BYTES);
    let pages = |part: Range<u64>| part.start / PAGE_BYTES..part.end / PAGE_BYTES;
    Some(parts.ok()?.into_iter().map(pages).collect())
}
