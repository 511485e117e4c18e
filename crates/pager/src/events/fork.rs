//! Forks: a child gets its own space with the same entries, each referenced once more.
//!
//! The kernel copies the page table while other threads go on, and tells of it only afterwards. Between FORK_BEGIN
//! (from the agent's hook in the forking thread) and its end nobody therefore gets the agent's slot to move pages:
//! none is moved out and no mremap is carried out in between. Memory may be mapped: the C library takes the locks of
//! malloc on its way to the fork, and whoever holds one may be about to map more.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::base::kernel::uffd::Userfaultfd;
use vswap_sys::process;
use vswap_sys::sock::Stream;

use crate::base::kernel;
use crate::base::lock::{Mutex, MutexGuard, Row};
use crate::base::threads;
use crate::events::layout_events;
use crate::fault::FaultServer;
use crate::life::server;
use crate::run::core::Core;
use crate::space::marks;
use crate::space::{Space, State};

/// How often an open window looks for faults that wait for memory; most forks are over before.
const WINDOW_PACE: Duration = Duration::from_millis(1);
/// A fork waits until one part in this many of the limit is free, but not for longer than so long.
const ROOM_PART: u64 = 64;
const ROOM_PATIENCE: Duration = Duration::from_millis(500);
/// How often a fork looks whether there are descriptors for it.
const DESCRIPTOR_PACE: Duration = Duration::from_millis(10);

/// The FORK event: make the child's space. It is served at once, before its agent has said hello, because the child
/// may touch swapped memory on its way there.
pub fn apply<'g>(
    core: &Arc<Core>,
    space: &'g Arc<Space>,
    state: MutexGuard<'g, State>,
    uffd: Userfaultfd,
) -> MutexGuard<'g, State> {
    let mut state = space.freeze(state);
    marks::drop_all_discarded(space, &mut state, &mut |word| core.put_word(word));
    let child_layout = state.layout.fork(&mut |word| core.dup_word(word));
    let Some(layout) = child_layout else {
        eprintln!(
            "vswap: no memory to follow a fork; stopping the run, because the child would read zeros"
        );
        kernel::abort();
    };
    let kin = Arc::clone(&space.kin);
    let child = Space::new(core.next_space_id(), uffd, layout, kin);
    child.mailbox.active.store(true, Ordering::Release);
    child
        .filtered
        .store(space.filtered.load(Ordering::Acquire), Ordering::Release);
    child
        .marks
        .store(space.marks.load(Ordering::Acquire), Ordering::Release);
    space.begin_sharing();
    child.begin_sharing();
    core.shares.begin(child.id, space);
    core.add_space(Arc::clone(&child));
    core.watch.begin_forked(&child);
    core.forks.expect(state.open_fork, child);
    space.thaw(&mut state);
    state
}

/// Announced forks whose children have not said hello, by the token of the fork.
#[derive(Debug)]
pub struct Forks {
    announced: Mutex<HashMap<u64, Announced>>,
}

/// An announced fork.
#[derive(Debug)]
struct Announced {
    parent: Arc<Space>,
    /// All children that were born between FORK_BEGIN and its end. A bare clone in another thread raises the same event
    /// as the fork that was announced, so any of them may be its child.
    children: Vec<Arc<Space>>,
    is_open: bool,
}

impl Default for Forks {
    fn default() -> Forks {
        Forks {
            announced: Mutex::new(Row::Innermost, "the list of forks", HashMap::new()),
        }
    }
}

impl Forks {
    /// FORK_BEGIN, if there `is_room` for one fork more than there are under way. A fork is under way until its child
    /// has its agent.
    fn try_open(&self, token: u64, parent: &Arc<Space>, is_room: impl Fn(usize) -> bool) -> bool {
        let mut forks = self.lock();
        let may_begin = is_room(forks.len() + 1);
        if may_begin && token != 0 {
            let announced = Announced {
                parent: Arc::clone(parent),
                children: Vec::new(),
                is_open: true,
            };
            forks.insert(token, announced);
        }
        may_begin
    }

    /// The end of the fork. Its child may say hello later.
    fn close(&self, token: u64) {
        let mut forks = self.lock();
        if let Some(fork) = forks.get_mut(&token) {
            fork.is_open = false;
        }
        forks.retain(|_, fork| fork.is_awaited());
    }

    /// A child was made during the fork `token`. A fork that nobody announced (token 0) has a child without an agent:
    /// its faults are served, but nothing of it is moved out.
    fn expect(&self, token: u64, child: Arc<Space>) {
        if let Some(fork) = self.lock().get_mut(&token) {
            fork.children.push(child);
        }
    }

    /// Who announced the fork `token`.
    pub fn parent(&self, token: u64) -> Option<Arc<Space>> {
        let forks = self.lock();
        forks.get(&token).map(|fork| Arc::clone(&fork.parent))
    }

    /// Who may be the child of the fork `token`.
    pub fn candidates(&self, token: u64) -> Vec<Arc<Space>> {
        let forks = self.lock();
        forks
            .get(&token)
            .map_or_else(Vec::new, |fork| fork.children.clone())
    }

    /// The child of the fork `token` has its agent. The others have no agents.
    pub fn found(&self, token: u64) {
        self.lock().remove(&token);
    }

    /// A space has ended: if it was a child that never said hello, nobody waits for it any more.
    pub fn forget(&self, id: u64) {
        let mut forks = self.lock();
        for fork in forks.values_mut() {
            fork.children.retain(|child| child.id != id);
        }
        forks.retain(|_, fork| fork.is_awaited());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Announced>> {
        self.announced.lock()
    }
}

impl Announced {
    fn is_awaited(&self) -> bool {
        self.is_open || !self.children.is_empty()
    }
}

/// A thread that is about to fork, at the other end of its connection.
pub trait Caller: Send + 'static {
    /// Are there descriptors for so many forks at once?
    fn is_room(&self, forks: usize) -> bool;
    /// It may fork now.
    fn acknowledge(&self);
    /// Has it forked, or gone, or does it within `patience`?
    fn has_ended(&self, patience: Duration) -> bool;
}

impl Caller for Stream {
    fn is_room(&self, forks: usize) -> bool {
        process::could_have_descriptors(forks * server::DESCRIPTORS_A_FORK)
    }

    fn acknowledge(&self) {
        server::acknowledge(self);
    }

    fn has_ended(&self, patience: Duration) -> bool {
        server::has_ended(self, patience)
    }
}

/// Parent and child copy what they write to, and no fault asks for these pages. So while memory is short a fork waits
/// for room as a fault does; not for ever, because a process may fork to become smaller.
fn wait_for_room(core: &Core, caller: &impl Caller) {
    let room = core.config.limit_bytes / ROOM_PART;
    let since = Instant::now();
    while core.is_short()
        && !core.governor.has_room(room)
        && since.elapsed() < ROOM_PATIENCE
        && !caller.has_ended(WINDOW_PACE)
    {}
}

/// FORK_BEGIN: hold everything that must not happen during a fork until the connection says that it is over.
///
/// The forking thread takes locks on its way, those of malloc among them, and their holders may wait for a fault. So
/// faults are served whatever the limit says, also those that had to wait for memory before: the evictor cannot make
/// any, because it waits for the fork.
pub fn window(core: &Arc<Core>, space: Arc<Space>, token: u64, caller: impl Caller) {
    let core = Arc::clone(core);
    threads::spawn_late(&format!("fork-{}", space.id), move || {
        let Some(forking) = space.process.get() else {
            return;
        };
        // The thread that is about to fork waits for what its fork takes.
        wait_for_room(&core, &caller);
        let is_room = |forks| caller.is_room(forks);
        while !core.forks.try_open(token, &space, is_room) {
            core.watch.say_no_descriptor(&core);
            if caller.has_ended(DESCRIPTOR_PACE) {
                return;
            }
        }
        space.forks_open.fetch_add(1, Ordering::AcqRel);
        let open = forking.agent.begin_fork();
        space.lock_thawed().open_fork = token;
        caller.acknowledge();
        let mut server = FaultServer::new(&core, &space);
        server.serve_deferred(|_, _| true);
        // Whoever was serving them just now may have put some back.
        while !caller.has_ended(WINDOW_PACE) {
            server.serve_deferred(|_, _| true);
        }
        space.lock_thawed().open_fork = 0;
        core.forks.close(token);
        drop(open);
        layout_events::try_decide(&core, &space, &mut space.lock_thawed());
        space.forks_open.fetch_sub(1, Ordering::AcqRel);
    });
}
