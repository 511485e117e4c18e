//! Layout events: what `munmap`, `mremap` and `madvise` have done to a space, as the userfaultfd tells it.
//!
//! Called with the space lock held, for one event after the other. An event is only a hint of what happened. The kernel
//! sends UNMAP also for a call that failed and unmapped nothing, because it collects the events before it knows (a
//! sealed mapping in the range, no memory, a limit); and when UNMAP is read, memory that was mapped afterwards may
//! already lie there. So an UNMAP takes away only what the kernel, asked now, has no registered mapping for. Nothing
//! can be registered there in between without the layout knowing of it: fresh mappings and moved ones are entered in
//! the layout before anybody may touch them (`regions::adopt`, REMAP), which drops the words of what lay there before.
//!
//! Asking has a side effect: the kernel prepares the mapping for pages, after which it does not merge it with
//! neighbours any more. So it takes the agent's slot, without which no fresh mapping is about to be registered. While
//! somebody else has the slot the range stays undecided. Its words are still true if the call failed; if it did not,
//! the kernel refuses every page that vswap would put there, and moving pages out needs the slot and decides first. A
//! fork holds the slot: the child gets the words of what its parent unmaps meanwhile, which it may have copied before,
//! and loses those of what it has not when its agent says hello (`regions::keep_inherited`).

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
            state.undecided.insert(pages(start, end));
            try_decide(references, space, state);
        }
        Message::Remove { start, end } => {
            let range = pages(start, end);
            let mut present = present::present_pages(space, range.clone());
            // What is out may have a marker there.
            let words = &state.layout.words;
            present.retain(|page| !matches!(words.get(*page).state(), PageState::Swapped(_)));
            state.layout.remove(range, present.into_iter(), put);
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

/// Decide what is undecided, if nobody else has the slot. A space whose agent has not said hello has none, and can only
/// ask through the userfaultfd that carries the events, which does not answer while one is under way.
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

/// Of what the layout takes for registered in a range, keep what is. None when the kernel cannot tell at this moment.
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

/// What is left of a range without some parts of it.
fn without(range: Range<u64>, parts: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut left = RangeSet::new();
    left.insert(range);
    parts.for_each(|part| drop(left.remove(part)));
    left.iter().collect()
}

/// Which parts of `ranges` lie in registered mappings now. None when the kernel cannot tell at this moment.
///
/// Exact also while other threads split and merge mappings: nothing is taken for unregistered by an answer about more
/// than one page, which a split makes "no", but by answers about single pages.
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
                // One mapping, also while it was asked about.
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

/// The mapped parts of a range, one for each mapping. None for a space without an agent, whose process is not known.
fn mapped_parts(space: &Space, range: &Range<u64>) -> Option<Vec<Range<u64>>> {
    let map = &space.process.get()?.map;
    let parts = map.mapped(range.start * PAGE_BYTES, range.end * PAGE_BYTES);
    let pages = |part: Range<u64>| part.start / PAGE_BYTES..part.end / PAGE_BYTES;
    Some(parts.ok()?.into_iter().map(pages).collect())
}
