//! Which of a process's mappings are registered.
//!
//! Private anonymous mappings are registered whole, whatever their protection. The protection may change. And if a part
//! were registered, the kernel would have two mappings, which mremap does not move together. The main stack, the
//! agent's own memory, and shared or file mappings are never registered. The mappings are looked at again when the
//! process grows. A range is entered in the layout only if the kernel, asked after the call, says that it is registered
//! (rule P3).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::kernel::clock;
use crate::base::kernel::maps::{self, MapsError};
use crate::base::kernel::uffd::mode;
use crate::base::lock::MutexGuard;
use crate::base::page_run::{PAGE_BYTES, pages_of};
use crate::base::ranges::{self, RangeSet};
use crate::base::rules::{self, Rule};
use crate::events::layout_events;
use crate::fault::bring_in::bring_all_in;
use crate::fault::serving::Serving;
use crate::fault::{FaultServer, Outcome};
use crate::layout::words::{PageState, PageWord};
use crate::run::references::References;
use crate::space::agent::Slot;
use crate::space::fault::Fault;
use crate::space::process::Process;
use crate::space::wait::Wait;
use crate::space::{Space, State, marks, present};

/// Pause while somebody else carries a page that must come back.
const LET_GO_PACE: Duration = Duration::from_micros(100);

/// Mappings that are looked at with the lock held once. Few in tests, so that more can happen in between.
const BATCH_MAPPINGS: usize = if cfg!(test) { 4 } else { 1024 };

/// Most passes over the mappings. A mapping that changes during a pass may be registered in part, which cuts it in two.
/// The next pass makes it whole again. The passes end when one finds nothing new.
const PASSES_MAX: u32 = 8;

/// Register every eligible mapping that is not registered yet. The slot keeps mremap and fork away.
///
/// The list of mappings is old when it is used, because other threads unmap and map. So the kernel is asked to watch
/// only what the layout does not know. And the layout gets only what the kernel has registered afterwards. Where the
/// layout knows a mapping already, an UNMAP event tells of changes. Memory that is watched but unknown costs a fault,
/// no more.
pub fn rescan(references: &References, space: &Space, process: &Process, slot: &Slot<'_>) {
    let look = space.mappings_seen.begin(process.sizes());
    for _ in 0..PASSES_MAX {
        match pass(references, space, process, slot) {
            Some(true) => {}
            Some(false) => break,
            None => return,
        }
    }
    space.mappings_seen.end(&look);
}

/// Go over the mappings once. True if some were registered. None if the kernel cannot tell of them at this moment.
fn pass(
    references: &References,
    space: &Space,
    process: &Process,
    slot: &Slot<'_>,
) -> Option<bool> {
    let mut found_any = false;
    // The list is old anyway. Asking for it takes long where there are many mappings, so that is done without the lock.
    for mappings in Eligible::from(process, 0) {
        let mappings = mappings.ok()?;
        let mut state = space.lock_thawed();
        layout_events::decide(references, space, &mut state, slot);
        let is_new = |mapping: &Range<u64>| has_unknown_part(&state, process, mapping);
        let new: Vec<Range<u64>> = mappings.into_iter().filter(is_new).collect();
        for mapping in joined(new) {
            // A mapping is registered as a whole or not at all. Registering a part would split it, and the kernel may
            // never merge the halves again.
            layout_events::keep_registered(references, space, &mut state, mapping.clone())?;
            for part in unknown_parts(&state, process, &mapping) {
                found_any |= enter(references, space, &mut state, part);
            }
        }
    }
    Some(found_any)
}

/// Ranges in address order, those that touch made one. The kernel takes neighbours with one call.
fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// Register memory that a call of the agent has just made for a thread of the program, which still waits. The memory
/// has no past, whatever the layout says of its place. What lay there before is gone, also if its UNMAP event comes
/// later.
pub fn adopt(references: &References, space: &Space, range: Range<u64>, _slot: &Slot<'_>) {
    let mut state = space.lock_thawed();
    state.undecided.remove(range.clone());
    if rules::holds(Rule::FreshWords) {
        state.layout.renew(range.clone(), &mut references.puts());
    }
    enter(references, space, &mut state, range);
}

/// Have the kernel watch a range, and enter in the layout what it does watch. False if that is nothing.
fn enter(references: &References, space: &Space, state: &mut State, range: Range<u64>) -> bool {
    if !watch(space, &range) {
        return false;
    }
    // Rule P3: the call passes over holes, and other threads may fill these with memory that nobody watches. Such
    // memory would read as zeros once it was moved out.
    let entered = if is_fresh_registered(space, &range) {
        RangeSet::of(range)
    } else {
        let mut watched =
            layout_events::registered_of(space, std::iter::once(range)).unwrap_or_default();
        leave_files_alone(space, &mut watched);
        watched
    };
    for part in entered.iter() {
        state.layout.register(part, &mut references.puts());
    }
    entered != RangeSet::new()
}

/// Stop watching what is not an anonymous mapping. The list of mappings is old when it is used: another thread may have
/// mapped /dev/zero in place of memory. The kernel takes that for anonymous memory and watches it, but never puts a
/// page there (EFAULT). A thread that touches it would fault for ever, and what moved out could not come back.
fn leave_files_alone(space: &Space, watched: &mut RangeSet) {
    let Some(process) = space.process.get() else {
        return;
    };
    let ranges: Vec<Range<u64>> = watched.iter().collect();
    for range in ranges {
        let (start, end) = (range.start * PAGE_BYTES, range.end * PAGE_BYTES);
        let files = process.map.not_anonymous(start, end).unwrap_or_default();
        for file in files {
            watched.remove(file.start / PAGE_BYTES..file.end / PAGE_BYTES);
            // Fails only where nothing is watched any more.
            let _ = space.uffd.unregister(file.start, file.end - file.start);
        }
    }
}

/// Is all of a range that was registered just now in registered mappings? False if that is not certain.
///
/// `layout_events::registered_of` always knows, but the kernel prepares each mapping for pages that it is asked about
/// in this way. A mapping that was never touched would then not merge where it would merge natively. Lifting protection
/// where there is none prepares nothing, and fails at a mapping that is not registered, but it passes over holes. So
/// the mappings are looked at before and after. What other threads can map there meanwhile, without the slot, is file
/// memory.
fn is_fresh_registered(space: &Space, range: &Range<u64>) -> bool {
    let Some(process) = space.process.get() else {
        return false;
    };
    let (start, end) = (range.start * PAGE_BYTES, range.end * PAGE_BYTES);
    let is_whole = || {
        let mut at = start;
        while at < end {
            match process.map.at(at) {
                Some(mapping) if mapping.anonymous => at = mapping.end,
                _ => return false,
            }
        }
        true
    };
    is_whole()
        && process
            .staging
            .write_unprotect(start, end - start, true)
            .is_ok()
        && is_whole()
}

/// A forked child's agent has said hello, so its mappings can be asked for. What the child has not inherited
/// (MADV_DONTFORK) or has unmapped since is not registered there. It must not be moved out.
pub fn keep_inherited(references: &References, space: &Space) {
    let mut state = space.lock_thawed();
    // The child's agent has no commands yet and the child has no other thread. So nothing is about to be registered.
    let _ = layout_events::keep_registered(references, space, &mut state, 0..u64::MAX / PAGE_BYTES);
}

/// A child stands before its first instruction, with the layout that its parent had when it was forked, and nothing of
/// its memory is watched. Watch what its parent's was, and drop the words of what the child has in memory or does not
/// have at all. It has holes alone where pages of its parent were out. False if not all of it can be watched: the child
/// must not run then.
pub fn watch_copied(references: &References, space: &Space) -> bool {
    let Some(process) = space.process.get() else {
        return false;
    };
    let Ok(mappings) = Eligible::from(process, 0).collect::<Result<Vec<_>, _>>() else {
        return false;
    };
    let mut state = space.lock_thawed();
    for mapping in joined(mappings.concat()) {
        let known: Vec<Range<u64>> = state.layout.registered.overlaps(mapping.clone()).collect();
        let mut parts = known
            .iter()
            .filter_map(|known| ranges::shared(known, &mapping));
        if !parts.all(|part| watch(space, &part)) {
            return false;
        }
    }
    let everything = 0..u64::MAX / PAGE_BYTES;
    if layout_events::keep_registered(references, space, &mut state, everything).is_none() {
        return false;
    }
    let put = &mut references.puts();
    // A ring may have had memory wiped that is watched. All other such memory is not, and was not out.
    if space.marks.load(Ordering::Acquire) {
        let Ok(wiped) = read_wiped(process) else {
            return false;
        };
        for range in wiped {
            state.layout.discard(range, put);
        }
    }
    let watched: Vec<Range<u64>> = state.layout.registered.iter().collect();
    for range in watched {
        for page in present::present_parts(space, range).into_iter().flatten() {
            if state.layout.words.get(page).entry().is_some() {
                put(state.layout.words.set(page, PageWord::PLAIN));
            }
        }
    }
    marks::place_again(space, &mut state);
    true
}

/// The private anonymous mappings, as page numbers in address order, some at a time.
struct Eligible<'a> {
    process: &'a Process,
    /// Where to ask next. None at the end.
    at: Option<u64>,
}

impl Eligible<'_> {
    /// Those from the one that holds page `first` on.
    fn from(process: &Process, first: u64) -> Eligible<'_> {
        let at = Some(first * PAGE_BYTES);
        Eligible { process, at }
    }
}

impl Iterator for Eligible<'_> {
    type Item = Result<Vec<Range<u64>>, MapsError>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at.take()?;
        let found = match self.process.map.private_anonymous(at, BATCH_MAPPINGS) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        // More than asked for are all there are.
        let is_last = found.len() != BATCH_MAPPINGS;
        self.at = found.last().map(|last| last.end).filter(|_| !is_last);
        let pages = |mapping: Range<u64>| mapping.start / PAGE_BYTES..mapping.end / PAGE_BYTES;
        Some(Ok(found.into_iter().map(pages).collect()))
    }
}

/// Has a mapping parts that are neither registered, nor the agent's, nor foreign?
fn has_unknown_part(state: &State, process: &Process, mapping: &Range<u64>) -> bool {
    let known = state.layout.registered.range_of(mapping.start);
    known.is_none_or(|known| known.end < mapping.end)
        && !unknown_parts(state, process, mapping).is_empty()
}

/// The parts of a mapping that are neither registered, nor the agent's, nor foreign.
fn unknown_parts(state: &State, process: &Process, mapping: &Range<u64>) -> Vec<Range<u64>> {
    let mut unknown = RangeSet::new();
    unknown.insert(mapping.clone());
    let layout = &state.layout;
    for known in layout.registered.overlaps(mapping.clone()) {
        unknown.remove(known);
    }
    for foreign in layout.foreign.overlaps(mapping.clone()) {
        unknown.remove(foreign);
    }
    unknown.remove(process.agent.own_pages.range());
    unknown.iter().collect()
}

/// Have the kernel report faults of a range. False if another userfaultfd watches it, if such a mapping cannot be
/// watched, or if it is gone. Such memory is left alone.
fn watch(space: &Space, range: &Range<u64>) -> bool {
    let (start, bytes) = (
        range.start * PAGE_BYTES,
        (range.end - range.start) * PAGE_BYTES,
    );
    // SAFETY: the range is another process's memory, and the readers of this space answer its faults. `register` is
    // unsafe because a range in this process could lie under references.
    let done = unsafe { space.uffd.register(start, bytes, mode::MISSING | mode::WP) };
    done.is_ok()
}

/// Called before a space's first scan: memory that a fork must not hand down is left alone. Later advice is trapped,
/// and waits for the slot.
pub fn exclude_wiped_on_fork(space: &Space, process: &Process) {
    let slot = process.agent.slot();
    leave_wiped_alone(space, process, &(0..u64::MAX), &slot);
}

/// Leave alone what a child finds empty within `range`. What is watched stays watched: an io_uring has given the
/// advice, and nobody was told.
pub fn leave_wiped_alone(space: &Space, process: &Process, range: &Range<u64>, _slot: &Slot<'_>) {
    let wiped = wiped_on_fork(process, range);
    let mut state = space.lock();
    for part in wiped {
        state.layout.leave_alone(part);
    }
}

/// MADV_KEEPONFORK was called for `range` and may have failed half-way. Manage again what a child does not find empty
/// any more. What the program watches with its own userfaultfd stays foreign, because the kernel does not let two watch
/// the same memory.
pub fn take_back_kept(
    references: &References,
    space: &Space,
    process: &Process,
    range: &Range<u64>,
    slot: &Slot<'_>,
) {
    let alone = space.lock().layout.foreign.remove(range.clone());
    if alone.is_empty() {
        return;
    }
    leave_wiped_alone(space, process, range, slot);
    if !space.is_active() {
        return;
    }
    for mappings in Eligible::from(process, range.start) {
        let Ok(mappings) = mappings else { return };
        let mut state = space.lock_thawed();
        for mapping in &mappings {
            for part in unknown_parts(&state, process, mapping) {
                if let Some(part) = ranges::shared(&part, range) {
                    enter(references, space, &mut state, part);
                }
            }
        }
        if mappings.last().is_none_or(|last| last.end >= range.end) {
            return;
        }
    }
}

/// What a child finds empty within `range`. Reads all of smaps. Nothing for a process that is gone.
pub fn wiped_on_fork(process: &Process, range: &Range<u64>) -> Vec<Range<u64>> {
    let wiped = read_wiped(process).unwrap_or_default();
    let within = wiped
        .iter()
        .filter_map(|wiped| ranges::shared(wiped, range));
    within.collect()
}

fn read_wiped(process: &Process) -> Result<Vec<Range<u64>>, MapsError> {
    let wiped = process.by_a_thread(|tid| maps::flagged(tid, &["wf"]))?;
    let pages = |mapping: Range<u64>| mapping.start / PAGE_BYTES..mapping.end / PAGE_BYTES;
    Ok(wiped.into_iter().map(pages).collect())
}

/// Vswap may not manage [start, start + bytes) any more. Bring back what is out, and stop watching. Waits until that is
/// done, or until the process ends.
pub fn let_go(serving: &Serving, space: &Arc<Space>, start: u64, bytes: u64) {
    let range = pages_of(start, bytes);
    let_go_of(serving, space, range, None);
}

/// The same, for a caller that has the slot.
pub fn let_go_with(serving: &Serving, space: &Arc<Space>, range: Range<u64>, slot: &Slot<'_>) {
    let_go_of(serving, space, range, Some(slot));
}

/// The same for all memory that there is and will be, for a caller that has the slot.
pub fn let_go_of_all(serving: &Serving, space: &Arc<Space>, slot: &Slot<'_>) {
    let_go_with(serving, space, 0..u64::MAX.div_ceil(PAGE_BYTES), slot);
}

/// The same for a forked child that has no agent. Nobody has asked yet what it has not inherited (MADV_DONTFORK), which
/// cannot be brought back.
pub fn let_go_of_copy(serving: &Serving, space: &Arc<Space>) {
    let everything = 0..u64::MAX.div_ceil(PAGE_BYTES);
    let keep = || {
        let state = &mut space.lock_thawed();
        layout_events::keep_registered(&serving.references, space, state, everything.clone())
    };
    while !space.has_ended() && keep().is_none() {
        clock::sleep(LET_GO_PACE);
    }
    let_go_of(serving, space, everything, None);
}

fn let_go_of(serving: &Serving, space: &Arc<Space>, range: Range<u64>, slot: Option<&Slot<'_>>) {
    let mut server = FaultServer::new(serving, space);
    space.lock().layout.foreign.insert(range.clone());
    bring_all_in(&mut server, space, range.clone());
    // What is left: kept pages, and those that were being carried. Whatever was in order is looked at once more.
    let mut from = range.start;
    while !space.has_ended() {
        let mut state = space.lock_thawed();
        if let Some(slot) = slot {
            layout_events::decide(&serving.references, space, &mut state, slot);
        }
        let mut words = state.layout.words.iter(from..range.end);
        let out = words.find(|(_, word)| word.entry().is_some() || word.is_claimed());
        drop(words);
        let Some((page, word)) = out else {
            if from > range.start {
                from = range.start;
                continue;
            }
            if release(serving.quiet, space, state, range.clone()) {
                return;
            }
            clock::sleep(LET_GO_PACE);
            continue;
        };
        from = page;
        if word.is_claimed() {
            drop(state);
            clock::sleep(LET_GO_PACE);
            continue;
        }
        let protected = matches!(word.state(), PageState::Kept(_));
        let fault = Fault {
            page,
            write: true,
            protected,
            urgent: true,
            ahead: false,
            since: clock::now(),
            wait: Wait::nobody(),
        };
        let (state, outcome) = server.serve(state, &fault);
        let is_as_before = state.layout.words.get(page) == word;
        server.release(state);
        if is_as_before {
            match slot {
                Some(slot) => forget_unregistered(&serving.references, space, page, slot),
                None => {
                    if let Some(process) = space.process.get() {
                        forget_unregistered(
                            &serving.references,
                            space,
                            page,
                            &process.agent.slot(),
                        );
                    }
                }
            }
        }
        if outcome == Outcome::Again || is_as_before {
            clock::sleep(LET_GO_PACE);
        }
    }
}

/// A page could not be brought back. If nobody watches it any more, its word belongs to a mapping that is gone.
pub fn forget_unregistered(references: &References, space: &Space, page: u64, slot: &Slot<'_>) {
    let mut state = space.lock_thawed();
    layout_events::decide(references, space, &mut state, slot);
    let left = layout_events::registered_of(space, std::iter::once(page..page + 1));
    if left == Some(RangeSet::new()) {
        state.layout.unmap(page..page + 1, &mut references.puts());
    }
}

/// No page of the range is out or under way: unregister it. False if a layout event prevents that.
fn release(
    quiet: bool,
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
            // The program's own call then fails with EBUSY, which is the truth.
            if !quiet {
                tracing::warn!(
                    "cannot stop watching memory that the program watches itself: {error}"
                );
            }
            continue;
        }
        state.layout.registered.remove(part);
    }
    true
}
