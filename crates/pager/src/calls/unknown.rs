//! Calls of forked children that have no agent: nobody knows which space belongs to the thread that calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use vswap_sys::abi::{self, advice};
use vswap_sys::process::{image, task};
use vswap_sys::seccomp::{Answer, Notification};

use crate::base::kernel::clock;
use crate::base::kernel::procmap::ProcMap;
use crate::base::ranges::RangeSet;
use crate::base::threads;
use crate::calls::confine;
use crate::events::fork;
use crate::events::layout_events;
use crate::events::listening::Listening;
use crate::run::references::References;
use crate::run::spaces::Spaces;
use crate::space::Space;
use crate::space::call::Call;

const MREMAP: i32 = abi::call::MREMAP.cast_signed();
const MADVISE: i32 = abi::call::MADVISE.cast_signed();
const IO_URING_SETUP: i32 = abi::call::IO_URING_SETUP.cast_signed();
const PROCESS_MADVISE: i32 = abi::call::PROCESS_MADVISE.cast_signed();
const MADV_FREE: u64 = advice::FREE as u64;

/// How long a forked child may be about to get its agent, and how often that is looked at. Whoever sees to it gives up
/// before.
const ADOPT_PATIENCE: Duration = Duration::from_secs(120);
const ADOPT_PACE: Duration = Duration::from_millis(1);

/// An answer that the kernel gives too, and better than wrong bytes.
const EAGAIN: i32 = 11;

/// How long a call that may grow memory waits until it is known what its process has unmapped, and how often that is
/// looked at. The call's own process has nothing to wait for, because an event of its own would have ended before.
const DECIDE_PATIENCE: Duration = Duration::from_millis(5);
const DECIDE_PACE: Duration = Duration::from_micros(200);

/// Is this a thread of a copy, a forked child without an agent, whose call would go wrong if it ran as it is? Nobody
/// knows which space is its own.
///
/// - mremap over more than one mapping fails where a userfaultfd watches one of them. Natively it succeeds if they are
///   one, and where all of them only move, holes included (Linux 6.17).
/// - Advice that raises no event, or none in time: what a guard page discards would come back, and a child of the copy
///   would find what is to be wiped. MADV_FREE may do so.
/// - A new io_uring could give advice of which nobody hears.
/// - Where the agent was attached from outside, all calls that move or discard. There nothing else tells of them.
///
/// A child that gets an agent makes no such call before that. The fork has returned when its event was read, and
/// whoever has read it may still be about to make the copy's space. So it is asked first whether anybody is, and then
/// which spaces there are.
pub fn is_of_copy(listening: &Listening, call: &Notification) -> bool {
    let has_ring = |pid: u32| !listening.leaving.is_free(pid) && image::has_ring_of_agent(pid);
    let goes_wrong = may_be_copy(&listening.spaces, |space| space.has_no_hooks())
        || (may_be_copy(&listening.spaces, |_| true) && goes_wrong_beside_hooks(call));
    goes_wrong && task::process_of(call.tid).is_some_and(has_ring)
}

/// Is there a copy among these spaces, or may one come soon?
fn may_be_copy(spaces: &Spaces, is_asked: impl Fn(&Arc<Space>) -> bool) -> bool {
    let may_come = |space: &Arc<Space>| is_asked(space) && space.may_apply_fork();
    let is_there = |space: &Arc<Space>| is_asked(space) && is_unknown(space);
    spaces.all().iter().any(may_come) || spaces.all().iter().any(is_there)
}

/// Would the call of a copy go wrong though its program has hooks?
fn goes_wrong_beside_hooks(call: &Notification) -> bool {
    match call.nr {
        MREMAP => !lies_in_one_mapping(call.tid, call.args[0], call.args[1]),
        MADVISE => call.args[2] != MADV_FREE,
        PROCESS_MADVISE => call.args[3] != MADV_FREE,
        _ => call.nr == IO_URING_SETUP,
    }
}

/// Do these bytes lie in one mapping as a whole? The program names them, so they may be anything. False also if nobody
/// can tell (before Linux 6.11): to let go is never wrong.
fn lies_in_one_mapping(tid: u32, start: u64, bytes: u64) -> bool {
    let mapping = ProcMap::open(tid).ok().and_then(|map| map.at(start));
    mapping.is_some_and(|mapping| bytes <= mapping.end.saturating_sub(start))
}

/// Is this the space of a copy, or of a child that has no agent yet?
fn is_unknown(space: &Arc<Space>) -> bool {
    let has_no_agent = space.process.get().is_none();
    has_no_agent && !space.let_go.load(Ordering::Acquire) && !space.uffd.is_gone()
}

/// Let go of all copies, and then run the call as it is. This has its own thread, because it brings back all that they
/// have out. Calls wait while there is no thread: a program should not fail for want of one of vswap's. The call fails
/// with EAGAIN if there is none for long, or if it does not turn out who is a copy.
pub fn after_copies(listening: &Arc<Listening>, call: Call) {
    let own = Arc::clone(listening);
    let (sender, sent) = mpsc::channel::<Call>();
    let has_thread = threads::spawn_within("copies", fork::THREAD_PATIENCE, move || {
        let Ok(call) = sent.recv() else { return };
        if let_copies_go(&own) {
            drop(call);
        } else {
            call.answer(Answer::Errno(EAGAIN));
        }
    });
    if has_thread {
        // The thread waits for it.
        drop(sender.send(call));
    } else {
        call.answer(Answer::Errno(EAGAIN));
    }
}

/// False if a child has been without an agent for long, and nobody has given up that it gets one.
fn let_copies_go(listening: &Listening) -> bool {
    let since = Instant::now();
    let is_bare = |space: &Space| space.is_bare.load(Ordering::Acquire);
    for space in listening.spaces.all() {
        space.wait_for_fork();
    }
    for space in listening.spaces.all() {
        while is_unknown(&space) && !is_bare(&space) {
            if since.elapsed() > ADOPT_PATIENCE {
                return false;
            }
            std::thread::sleep(ADOPT_PACE);
        }
        if is_unknown(&space) {
            confine::let_go_of_copy(&listening.serving, &space);
        }
    }
    true
}

/// A thread of such a child is about to grow memory by mremap, maybe into a place that it has just unmapped. The
/// grown memory becomes part of a mapping that is watched. So the kernel would afterwards call the place watched, and
/// the unmapping would pass for one that failed. Decide before the call what was unmapped.
///
/// Takes the lock of each space that has no agent, one at a time.
pub fn decide_before_growth(references: &References, spaces: &Spaces) {
    let since = clock::now();
    let spaces = spaces.all();
    let mut open: Vec<&Arc<Space>> = spaces
        .iter()
        .filter(|space| space.process.get().is_none())
        .collect();
    loop {
        open.retain(|space| !is_decided(references, space));
        if open.is_empty() || clock::now() - since > DECIDE_PATIENCE {
            return;
        }
        clock::sleep(DECIDE_PACE);
    }
}

/// Is nothing undecided in the space? The kernel does not tell while an event of the space is under way.
fn is_decided(references: &References, space: &Space) -> bool {
    let Some(mut state) = space.lock_soon(DECIDE_PACE) else {
        return false;
    };
    layout_events::try_decide(references, space, &mut state);
    state.undecided == RangeSet::new()
}
