//! Marks: how the pager finds out that content was discarded without an event.
//!
//! The kernel sends an event for MADV_DONTNEED, but none for MADV_GUARD_INSTALL and MADV_WIPEONFORK. As system calls
//! both stop at the filter. An io_uring (IORING_OP_MADVISE) gets past the filter. So once a process makes a ring, each
//! of its pages that is out gets a marker in its page table entry. UFFDIO_WRITEPROTECT writes a marker where there is
//! no page. The agent does so right after it has moved pages out. If an unread event prevents that, the pager marks the
//! pages a little later.
//!
//! Whatever discards content also removes the marker. mprotect, mremap and fork keep it, but a child gets no marker for
//! memory that it does not inherit. So a page whose marker is gone when it is brought back holds zeros.
//!
//! A missing marker proves that only while no layout event is under way. mremap moves the marker to another place at
//! once, and the word follows when its event is read. So nothing is dropped before the kernel has said, after the look
//! at the markers, that no event is unread. With the space lock held nobody reads one in between.
//!
//! Other processes get no markers, because marking costs a system call for each run of pages that leaves.
//!
//! These functions are called with the space lock held, unless they say otherwise.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vswap_sys::process::task;

use crate::base::kernel::clock;
use crate::base::kernel::pagemap::{Query, category};
use crate::base::kernel::uffd::UffdError;
use crate::base::page_run::{PAGE_BYTES, runs_of};
use crate::layout::words::{PageState, PageWord};
use crate::space::process::Process;
use crate::space::{Space, State, present};

/// The pages with a marker: not present and not written to. A guard page counts as written to.
const MARKERS: Query = Query {
    all_of: category::SWAPPED,
    any_of: 0,
    none_of: category::WRITTEN,
    report: 0,
    pages_max: 0,
};

/// Pause when the kernel refuses markers because a layout event is unread, and how often to try again.
const PACE: Duration = Duration::from_micros(50);
const TRIES: u32 = 10_000;

/// The process has a ring or is about to make one. Mark its pages from now on, and those that are out before the
/// process goes on. The caller does not hold the lock.
pub fn begin(space: &Space) {
    if space.marks.swap(true, Ordering::AcqRel) {
        return;
    }
    for _ in 0..TRIES {
        if place_all(space, &mut space.lock_thawed()).is_empty() {
            return;
        }
        // Without the lock, because somebody has to read the event.
        clock::sleep(PACE);
    }
}

/// A child has come out of a fork without a userfaultfd, and so without its parent's markers. Mark its pages that are
/// out. No event is under way in it.
pub fn place_again(space: &Space, state: &mut State) {
    if space.marks.load(Ordering::Acquire) {
        forget(state, 0..u64::MAX / PAGE_BYTES);
        place_all(space, state);
    }
}

fn place_all(space: &Space, state: &mut State) -> Vec<u64> {
    let words = state.layout.words.iter(0..u64::MAX / PAGE_BYTES);
    let is_out = |(_, word): &(u64, PageWord)| matches!(word.state(), PageState::Swapped(_));
    let out: Vec<u64> = words.filter(is_out).map(|(page, _)| page).collect();
    place(space, state, &out)
}

/// Called before the space's memory moves out for the first time. The process may have made a ring before its calls
/// were trapped. The caller does not hold the lock.
pub fn look_for_rings(space: &Space, process: &Process) {
    if task::has_ring(process.pid) {
        begin(space);
    }
}

/// Mark those of `pages` (in address order) that are out. Returns the pages that an unread event has kept from that.
pub fn place(space: &Space, state: &mut State, pages: &[u64]) -> Vec<u64> {
    let mut refused = Vec::new();
    if !space.marks.load(Ordering::Acquire) {
        return refused;
    }
    let words = &mut state.layout.words;
    let unmarked = |page: &u64| {
        let word = words.get(*page);
        matches!(word.state(), PageState::Swapped(_)) && !word.is_marked()
    };
    let unmarked: Vec<u64> = pages.iter().copied().filter(unmarked).collect();
    for run in runs_of(unmarked.into_iter()) {
        let first = run.address() / PAGE_BYTES;
        let run_pages = first..first + run.pages;
        match space
            .uffd
            .write_protect(run.address(), run.pages * PAGE_BYTES)
        {
            Ok(()) => run_pages.for_each(|page| {
                words.set(page, words.get(page).with_mark(true));
            }),
            Err(UffdError::Again { .. }) => refused.extend(run_pages),
            // The mapping is gone, or the run crosses the end of one. Unmarked words are believed.
            Err(_) => {}
        }
    }
    refused
}

/// Are all missing pages of a range markers? False for guard pages (also those that replaced a marker), for poison, and
/// for pages that the kernel migrates or swaps itself. False also if the kernel cannot be asked.
pub fn are_all(space: &Space, state: &State, range: Range<u64>) -> bool {
    let not_there = Query {
        all_of: category::SWAPPED,
        ..Query::default()
    };
    let Some(found) = present::pages_of(space, range.clone(), &not_there) else {
        return false;
    };
    let is_marked = |page: &u64| state.layout.words.get(*page).is_marked();
    found.is_empty()
        || found.iter().all(is_marked)
            && present::pages_of(space, range, &MARKERS).is_some_and(|markers| markers == found)
}

/// The kernel has moved all page table entries of a range to the agent's place, and the markers with them.
pub fn forget(state: &mut State, range: Range<u64>) {
    let words = &mut state.layout.words;
    let marked: Vec<(u64, PageWord)> = words
        .iter(range)
        .filter(|(_, word)| word.is_marked())
        .collect();
    for (page, word) in marked {
        words.set(page, word.with_mark(false));
    }
}

/// A process is about to fork. Drop discarded words, once no layout event is under way. The caller does not hold the
/// lock.
pub fn drop_before_fork(space: &Space, put: &mut dyn FnMut(PageWord)) {
    for _ in 0..TRIES {
        if drop_all_discarded(space, &mut space.lock_thawed(), put) {
            return;
        }
        // Without the lock, because somebody has to read the event.
        clock::sleep(PACE);
    }
}

/// Drop discarded words before a child gets a copy of them. The child has no agent at first, so nobody could ask which
/// of its markers are gone. This must come before the fork: as soon as its event is read the parent goes on, and what
/// it then unmaps or discards has lost its markers too, but the child still has it. False if a layout event is under
/// way: then words whose markers are gone may be left.
pub fn drop_all_discarded(space: &Space, state: &mut State, put: &mut dyn FnMut(PageWord)) -> bool {
    if !space.marks.load(Ordering::Acquire) {
        return true;
    }
    let registered: Vec<Range<u64>> = state.layout.registered.iter().collect();
    registered
        .into_iter()
        .all(|range| drop_discarded(space, state, range, put).is_some())
}

/// Drop the words of those of `pages` that have lost their marker or have become guards, marked or not. They hold zeros
/// or guard their place. Returns how many pages, from the first on, still hold what their words say. None if nobody can
/// tell yet, because a layout event is under way. Nothing is dropped then.
pub fn drop_discarded(
    space: &Space,
    state: &mut State,
    pages: Range<u64>,
    put: &mut dyn FnMut(PageWord),
) -> Option<u64> {
    let all = pages.end - pages.start;
    if !space.marks.load(Ordering::Acquire) {
        return Some(all);
    }
    let gone = discarded(space, state, pages.clone());
    let Some(first) = gone.first() else {
        return Some(all);
    };
    if space.uffd.events_pending() {
        return None;
    }
    for page in &gone {
        put(state.layout.words.set(*page, PageWord::PLAIN));
    }
    Some(first - pages.start)
}

/// Those of `pages` whose content was discarded, in address order. If the kernel cannot be asked, the words are
/// believed.
fn discarded(space: &Space, state: &State, pages: Range<u64>) -> Vec<u64> {
    let words = &state.layout.words;
    let (mut marked, mut unmarked) = (Vec::new(), Vec::new());
    for (page, word) in words.iter(pages.clone()) {
        match word.state() {
            _ if word.is_marked() => marked.push(page),
            PageState::Swapped(_) => unmarked.push(page),
            _ => {}
        }
    }
    let mut gone = Vec::new();
    if !marked.is_empty() {
        let there = present::pages_of(space, pages.clone(), &MARKERS);
        let is_gone = |page: &u64| {
            there
                .as_ref()
                .is_some_and(|there| there.binary_search(page).is_err())
        };
        gone.extend(marked.into_iter().filter(is_gone));
    }
    // A page that left while an event was unread has no marker yet.
    if !unmarked.is_empty() {
        let guards = present::guard_pages(space, pages).unwrap_or_default();
        gone.extend(
            unmarked
                .into_iter()
                .filter(|page| guards.binary_search(page).is_ok()),
        );
        gone.sort_unstable();
    }
    gone
}
