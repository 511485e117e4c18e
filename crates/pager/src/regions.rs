//! Which of a process's mappings are registered.
//!
//! Whole private anonymous mappings are, whatever their protection: it may change, and a mapping of which a part is
//! registered is two mappings to the kernel, which mremap does not move together. Never the main stack, the agent's
//! own memory, or anything shared or file-backed. Looked at again when the process grows, and only while no layout
//! event is unread (rule P3), so that a mapping is never taken for the one that lay there before.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vswap_sys::maps::{self, Mapping, MapsError};
use vswap_sys::uffd::mode;

use crate::agent::Slot;
use crate::core::Core;
use crate::fault::{Fault, FaultServer, Outcome};
use crate::lock::MutexGuard;
use crate::rules::{self, Rule};
use crate::run::PAGE_BYTES;
use crate::space::{Process, Space, State};
use crate::words::PageState;

/// Pause while a page that must come back is carried by somebody else.
const LET_GO_PACE: Duration = Duration::from_micros(100);

/// Pause before fresh memory is tried to be registered again, and how long that goes on.
const ADOPT_PACE: Duration = Duration::from_micros(50);
const ADOPT_PATIENCE: Duration = Duration::from_millis(100);

/// Passes over the mappings until one finds nothing new: a mapping that changed under the scan may be registered in
/// part, which cuts it in two, and the next pass makes it whole again.
const PASSES_MAX: u32 = 8;

/// Register every eligible mapping that is not registered yet. Does nothing while a layout event is unread; the
/// governor asks again. The slot keeps mremap and fork out: a mapping that moves is never taken for a new one.
///
/// The kernel registers what it finds in a range and passes over holes, and unmapping what is not registered yet
/// raises no event. So a range that other threads changed after the first look may have a hole that they fill with
/// memory that nobody watches; moved out, it would read as zeros. A range is taken for registered only if, after the
/// call, it lies in one mapping and no event is unread: then whatever was registered there still is, and one mapping
/// is watched as a whole or not at all. Otherwise it is looked at again; being watched unknown costs a fault.
pub fn rescan(core: &Core, space: &Space, process: &Process, _slot: &Slot<'_>) {
    let mut text = Vec::new();
    for _ in 0..PASSES_MAX {
        let mut state = space.lock_thawed();
        if !all_is_read(space) {
            return;
        }
        state.layout.all_events_read();
        let Ok(mut fresh) = eligible(process, &mut text) else {
            return;
        };
        fresh.retain(|range| is_fresh(&state, process, range) && watch(space, range));
        if fresh.is_empty() {
            break;
        }
        let Ok(whole) = eligible(process, &mut text) else {
            return;
        };
        if !all_is_read(space) {
            return;
        }
        fresh.retain(|range| lies_in_one(range, &whole));
        for range in fresh {
            state.layout.register(range, &mut core.put_words());
        }
    }
    space
        .rescanned_at
        .store(process.anonymous_bytes(), Ordering::Relaxed);
}

/// Register memory that the agent has just mapped for a thread of the program, which still waits, at an address that
/// nobody else knows yet: so it is whole, and has no past. While a layout event is unread its range may be of what lay
/// there before, and registering has to wait; a program that never lets the events come to an end gets its mapping
/// registered at the next look at all of them.
pub fn adopt(core: &Core, space: &Space, range: Range<u64>, _slot: &Slot<'_>) {
    let since = Instant::now();
    while since.elapsed() < ADOPT_PATIENCE && !space.has_ended() {
        let mut state = space.lock_thawed();
        if all_is_read(space) {
            state.layout.foreign.remove(range.clone());
            if watch(space, &range) {
                state.layout.adopt(range, &mut core.put_words());
            }
            return;
        }
        drop(state);
        std::thread::sleep(ADOPT_PACE);
    }
    space.evictor.ask(|wanted| wanted.rescan = true);
}

/// No layout event is unread. Rule P3: else a mapping could be taken for the one that lay there before.
fn all_is_read(space: &Space) -> bool {
    !space.uffd.events_pending() || !rules::holds(Rule::LookInOrder)
}

/// The private anonymous mappings, in address order.
fn eligible(process: &Process, text: &mut Vec<u8>) -> Result<Vec<Range<u64>>, MapsError> {
    maps::read(process.pid, text)?;
    Ok(maps::parse(text)
        .filter_map(Result::ok)
        .filter(Mapping::private_anonymous)
        .map(|mapping| mapping.start / PAGE_BYTES..mapping.end / PAGE_BYTES)
        .collect())
}

/// Neither registered, nor the agent's, nor left alone on purpose.
fn is_fresh(state: &State, process: &Process, range: &Range<u64>) -> bool {
    let own = process.agent.own_pages.range();
    let known = state.layout.registered.covered(range.clone());
    let foreign = state
        .layout
        .foreign
        .overlaps(range.clone())
        .next()
        .is_some();
    let own = range.start < own.end && own.start < range.end;
    known < range.end - range.start && !foreign && !own
}

/// Have the kernel report faults of a range. False for someone else's userfaultfd, a kind of mapping that cannot be
/// watched, or one that has gone: left alone.
fn watch(space: &Space, range: &Range<u64>) -> bool {
    let (start, bytes) = (
        range.start * PAGE_BYTES,
        (range.end - range.start) * PAGE_BYTES,
    );
    // SAFETY: the range is another process's memory, whose faults the readers of this space answer.
    let done = unsafe { space.uffd.register(start, bytes, mode::MISSING | mode::WP) };
    done.is_ok()
}

/// Is `range` a part of one of `mappings`, which are in address order?
fn lies_in_one(range: &Range<u64>, mappings: &[Range<u64>]) -> bool {
    let behind = mappings.partition_point(|mapping| mapping.start <= range.start);
    let around = behind.checked_sub(1).and_then(|index| mappings.get(index));
    around.is_some_and(|mapping| range.end <= mapping.end)
}

/// Before a space's first scan: what a fork must not hand down is left alone. Later ones are trapped.
pub fn exclude_wiped_on_fork(space: &Space, process: &Process) {
    let mut text = Vec::new();
    // A process that has gone needs no exclusions.
    let flags = maps::read_smaps(process.pid, &mut text).and_then(|()| maps::parse_vm_flags(&text));
    let wiped = flags
        .unwrap_or_default()
        .into_iter()
        .filter(|flags| flags.wipe_on_fork);
    let mut state = space.lock();
    for flags in wiped {
        state
            .layout
            .foreign
            .insert(flags.start / PAGE_BYTES..flags.end / PAGE_BYTES);
    }
}

/// Vswap may not look after [start, start + bytes) any more: bring back what is out, and stop watching. Waits
/// until that is done; gives up when the process ends.
pub fn let_go(core: &Core, space: &Arc<Space>, start: u64, bytes: u64) {
    let range = start / PAGE_BYTES..start.saturating_add(bytes).div_ceil(PAGE_BYTES);
    let mut server = FaultServer::new(core, space);
    space.lock().layout.foreign.insert(range.clone());
    while !space.has_ended() {
        let state = space.lock_thawed();
        let mut words = state.layout.words.iter(range.clone());
        let out = words.find(|(_, word)| word.entry().is_some() || word.is_claimed());
        drop(words);
        let Some((page, word)) = out else {
            if release(core, space, state, range.clone()) {
                return;
            }
            std::thread::sleep(LET_GO_PACE);
            continue;
        };
        if word.is_claimed() {
            drop(state);
            std::thread::sleep(LET_GO_PACE);
            continue;
        }
        let protected = matches!(word.state(), PageState::Kept(_));
        let fault = Fault {
            page,
            write: true,
            protected,
            urgent: true,
            ahead: false,
            since: Instant::now(),
        };
        let (state, outcome) = server.serve(state, &fault);
        server.release(state);
        if outcome == Outcome::Again {
            std::thread::sleep(LET_GO_PACE);
        }
    }
}

/// Nothing of the range is out or under way: unregister it. False when a layout event is in the way.
fn release(
    core: &Core,
    space: &Space,
    mut state: MutexGuard<'_, State>,
    range: Range<u64>,
) -> bool {
    if space.uffd.events_pending() {
        return false;
    }
    let parts: Vec<Range<u64>> = state.layout.registered.overlaps(range.clone()).collect();
    for part in parts {
        let bytes = (part.end - part.start) * PAGE_BYTES;
        if let Err(error) = space.uffd.unregister(part.start * PAGE_BYTES, bytes) {
            // The program's own call then says EBUSY, which is the truth.
            if !core.config.quiet {
                eprintln!(
                    "vswap: cannot stop watching memory that the program watches itself: {error}"
                );
            }
            continue;
        }
        state.layout.registered.remove(part);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::lies_in_one;

    #[test]
    fn a_range_counts_as_whole_only_inside_one_mapping() {
        let mappings = [10..20, 20..30, 40..50];
        for whole in [10..20, 12..15, 20..30, 49..50] {
            assert!(lies_in_one(&whole, &mappings), "{whole:?}");
        }
        // Two neighbours, a hole in the middle, at an end, or all of it.
        for not in [15..25, 25..45, 9..12, 28..31, 30..40, 50..51, 0..1] {
            assert!(!lies_in_one(&not, &mappings), "{not:?}");
        }
        assert!(!lies_in_one(&(1..2), &[]));
    }
}
