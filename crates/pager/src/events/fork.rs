//! Forks: a child gets its own space with the same entries, each counted once more.
//!
//! The kernel copies the page table while other threads go on, and tells of the fork only afterwards. So between
//! FORK_BEGIN (sent by the agent's hook in the forking thread) and the end of the fork nobody gets the agent's slot to
//! move pages: no page moves out and no mremap is carried out. Memory may be mapped. The C library takes the locks of
//! malloc on its way to the fork, and the holder of such a lock may be about to map memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vswap_sys::process::could_have_descriptors;

use crate::base::kernel::uffd::{UffdError, Userfaultfd};
use crate::base::lock::MutexGuard;
use crate::base::page_run::PAGE_BYTES;
use crate::base::ranges::RangeSet;
use crate::base::{kernel, threads};
use crate::events::layout_events;
use crate::events::listening::Listening;
use crate::fault::{FaultServer, lost};
use crate::layout::Layout;
use crate::layout::words::{PageState, PageWord};
use crate::run::limit::Limit;
use crate::run::references::References;
use crate::space::{Space, State, marks};

/// What one fork takes: its userfaultfd, the descriptors of its child, and those to inspect the child, also for a
/// moment.
const DESCRIPTORS: usize = 11;
/// What other threads of vswap hold for a moment: who measures memory, walks /proc or answers a command.
const DESCRIPTORS_OF_OTHERS: usize = 8;
/// What a child takes of a fork's descriptors when it says hello: those to inspect it, and one for a moment.
const DESCRIPTORS_OF_CHILD: usize = 6;
/// How often an open fork looks for faults that wait for memory. Most forks are over before the first look.
const WINDOW_PACE: Duration = Duration::from_millis(1);
/// How long a fork waits for room at the most.
const ROOM_PATIENCE: Duration = Duration::from_millis(500);
/// How long a fork, and then its child, waits for a thread, and a child for descriptors. Not for ever: the forking
/// thread may be the one that would reap the ended children, and those take the place of threads.
pub const THREAD_PATIENCE: Duration = Duration::from_secs(2);
/// How often a waiting fork or child checks whether there are descriptors for it.
const DESCRIPTOR_PACE: Duration = Duration::from_millis(10);

/// The FORK event: make the child's space. The space is served at once, before the child's agent has said hello,
/// because the child may touch swapped memory on its way there.
pub fn apply<'g>(
    listening: &Listening,
    space: &'g Arc<Space>,
    state: MutexGuard<'g, State>,
    uffd: Userfaultfd,
) -> MutexGuard<'g, State> {
    let mut state = space.freeze(state);
    let references = &listening.serving.references;
    if !space.filtered.load(Ordering::Acquire) {
        // No fork stops here, so this was not done before the fork. It is too late to be sure, see there. What nobody
        // can tell now is believed.
        let _ = marks::drop_all_discarded(space, &mut state, &mut references.puts());
    }
    let layout = copy_layout(references, &state);
    let child = new_child(listening, space, layout, uffd);
    // Where hooks are missing, an announced fork is followed by another way (`calls::forks`).
    let is_bare = state.open_fork == 0;
    child.is_bare.store(is_bare, Ordering::Release);
    space.begin_sharing();
    begin(listening, space, &child);
    listening.forks.expect(state.open_fork, child);
    space.thaw(&mut state);
    state
}

/// What a child of a frozen space has of its layout, each entry counted once more.
pub fn copy_layout(references: &References, state: &State) -> Layout {
    let mut layout = state.layout.fork(&mut references.dups());
    // A kept page that is not in memory, and nobody knows yet why. Nobody knows either what the child should read.
    // The parent's word is asked: the child's has no entry where there was no memory to count one.
    for lost in &state.unexplained.pages {
        let is_kept = matches!(
            state.layout.words.get(lost.page).state(),
            PageState::Kept(_)
        );
        if is_kept && state.layout.carries(lost.ticket, lost.page) {
            references.put(layout.words.set(lost.page, PageWord::PLAIN));
            layout.lost.insert(lost.page..lost.page + 1);
        }
    }
    layout
}

/// Pages whose content could not be handed down to a child. It must not read zeros there, so whoever touches such a
/// page gets SIGBUS. Nobody serves the child yet, so none of these pages can have come.
fn poison_lost(listening: &Listening, child: &Space, lost: &RangeSet) {
    const WHY: &str = "it could not be handed down by a fork";
    let stats = &listening.serving.stats;
    for page in lost.iter().flatten() {
        let at = page * PAGE_BYTES;
        // A marker would be taken for a page.
        let _ = child.uffd.write_unprotect(at, PAGE_BYTES, true);
        match child.uffd.poison(at, PAGE_BYTES, true) {
            Ok(()) => lost::page_lost(stats, child, page, &WHY),
            // It has the page after all, or neither the page nor the child is there any more.
            Err(UffdError::Exists { .. } | UffdError::NoEntry { .. } | UffdError::Gone) => {}
            Err(error) => {
                tracing::error!(
                    "a child's page {WHY}, and cannot be marked: {error}; stopping, because it would read zeros"
                );
                kernel::abort();
            }
        }
    }
}

/// The space of a forked child, which nobody knows yet.
pub fn new_child(
    listening: &Listening,
    parent: &Space,
    mut layout: Layout,
    uffd: Userfaultfd,
) -> Arc<Space> {
    let kin = Arc::clone(&parent.kin);
    let lost = std::mem::take(&mut layout.lost);
    let child = Space::new(listening.spaces.next_id(), uffd, layout, kin);
    poison_lost(listening, &child, &lost);
    child.mailbox.active.store(true, Ordering::Release);
    child
        .filtered
        .store(parent.filtered.load(Ordering::Acquire), Ordering::Release);
    child
        .marks
        .store(parent.marks.load(Ordering::Acquire), Ordering::Release);
    child
        .is_of_attached
        .store(parent.has_no_hooks(), Ordering::Release);
    child.begin_sharing();
    child
}

/// From now on the child counts, and its faults are served.
pub fn begin(listening: &Listening, parent: &Space, child: &Arc<Space>) {
    listening.shares.begin(child.id, parent);
    listening.spaces.add(Arc::clone(child));
    listening.serving.limit.look_now();
    listening.watch.begin_forked(child);
}

/// A thread that is about to fork.
pub trait Caller {
    /// Are there descriptors for so many forks at once?
    fn is_room(&self, forks: usize) -> bool;
    /// Tell it that it may fork now.
    fn acknowledge(&self);
    /// Has it forked or gone, or does it within `patience`?
    fn has_ended(&self, patience: Duration) -> bool;
}

/// After a fork parent and child copy the pages that they write to, and no fault asks for that memory. So while memory
/// is short a fork waits for room, as a fault does. It does not wait for ever, because a process may fork to become
/// smaller.
fn wait_for_room(limit: &Limit, caller: &impl Caller) {
    let room = limit.bounds.fork_room_bytes();
    let is_short = || limit.is_short() && !limit.has_room(room);
    if !is_short() {
        return;
    }
    // Otherwise the evictor hears of it with the next sample, up to 50 ms later.
    limit.look_now();
    let since = Instant::now();
    while is_short() && since.elapsed() < ROOM_PATIENCE && !caller.has_ended(WINDOW_PACE) {}
}

/// Are there descriptors for so many forks under way?
pub fn has_descriptors(forks: usize) -> bool {
    could_have_descriptors(forks * DESCRIPTORS + DESCRIPTORS_OF_OTHERS)
}

/// Open a fork when there is room for what it takes. The thread that is about to fork waits here. False if it has ended
/// before.
pub fn open(listening: &Listening, space: &Arc<Space>, token: u64, caller: &impl Caller) -> bool {
    wait_for_room(&listening.serving.limit, caller);
    let is_room = |forks| caller.is_room(forks);
    while !listening.forks.try_open(token, space, is_room) {
        listening.watch.say_no_descriptor(listening.serving.quiet);
        if caller.has_ended(DESCRIPTOR_PACE) {
            return false;
        }
    }
    true
}

/// Wait until there are descriptors to inspect a child that has said hello. They were kept for it, but other threads
/// may hold them for a moment. A child whose answer does not come stops itself, so it waits for a while: it stands
/// still anyway.
pub fn wait_to_inspect(child: &impl Caller) {
    let since = Instant::now();
    while !could_have_descriptors(DESCRIPTORS_OF_CHILD)
        && since.elapsed() < THREAD_PATIENCE
        && !child.has_ended(DESCRIPTOR_PACE)
    {}
}

/// FORK_BEGIN: hold the window open on a thread of its own. If there is none to be had, the connection closes and the
/// child is killed, which its parent sees.
pub fn window(
    listening: &Arc<Listening>,
    space: Arc<Space>,
    token: u64,
    caller: impl Caller + Send + 'static,
) {
    let listening = Arc::clone(listening);
    threads::spawn_within(&format!("fork-{}", space.id), THREAD_PATIENCE, move || {
        hold_window(&listening, &space, token, &caller);
    });
}

/// Keep back what must not happen during a fork, from before it until the caller says that it is over.
///
/// The forking thread takes locks on its way, those of malloc among them, and their holders may wait for a fault. So
/// faults are served whatever the limit says, also those that already waited for memory. The evictor cannot free memory
/// meanwhile, because it waits for the fork.
pub fn hold_window(
    listening: &Arc<Listening>,
    space: &Arc<Space>,
    token: u64,
    caller: &impl Caller,
) {
    let Some(forking) = space.process.get() else {
        return;
    };
    if !open(listening, space, token, caller) {
        return;
    }
    space.forks_open.fetch_add(1, Ordering::AcqRel);
    let open = forking.agent.begin_fork();
    space.lock_thawed().open_fork = token;
    caller.acknowledge();
    let mut server = FaultServer::new(&listening.serving, space);
    server.serve_deferred(|_, _| true);
    // A thread that was serving deferred faults just now may have put some back.
    while !caller.has_ended(WINDOW_PACE) {
        server.serve_deferred(|_, _| true);
    }
    space.lock_thawed().open_fork = 0;
    listening.forks.close(token);
    drop(open);
    let references = &listening.serving.references;
    layout_events::try_decide(references, space, &mut space.lock_thawed());
    space.forks_open.fetch_sub(1, Ordering::AcqRel);
}
