//! Calls of forked children that have no agent: nobody knows which space belongs to the thread that calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use vswap_sys::process::{image, task};
use vswap_sys::seccomp::Answer;

use crate::base::kernel::clock;
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

/// Is this a thread of a copy of a process whose agent was attached from outside? Nobody knows which space is its own.
/// A child that gets an agent stands still until then. A call of a copy that moves or discards memory could bring back
/// what it discards if it ran as it is.
///
/// The fork has returned when its event was read, and whoever has read it may still be about to make the copy's space.
/// So it is asked first whether anybody is, and then which spaces there are.
pub fn is_of_attached_copy(listening: &Listening, tid: u32) -> bool {
    let spaces = &listening.spaces;
    let may_come = |space: &Arc<Space>| space.has_no_hooks() && space.may_apply_fork();
    let has_ring = |pid: u32| !listening.leaving.is_free(pid) && image::has_ring_of_agent(pid);
    let may_be = spaces.all().iter().any(may_come) || spaces.all().iter().any(is_unknown);
    may_be && task::process_of(tid).is_some_and(has_ring)
}

/// Is this the space of such a copy, or of a child that has no agent yet?
fn is_unknown(space: &Arc<Space>) -> bool {
    let has_no_agent = space.process.get().is_none() && space.has_no_hooks();
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
    let is_copy = |space: &Space| space.is_attached_copy.load(Ordering::Acquire);
    for space in listening.spaces.all() {
        space.wait_for_fork();
    }
    for space in listening.spaces.all() {
        while is_unknown(&space) && !is_copy(&space) {
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
