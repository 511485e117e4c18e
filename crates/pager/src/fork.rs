//! Forks: a child gets its own space with the same entries, each referenced once more.
//!
//! The kernel copies the page table while other threads go on, and tells of it only afterwards. Between FORK_BEGIN
//! (from the agent's hook in the forking thread) and its end the pager therefore holds the agent's slot: no page is
//! moved out and no mremap is carried out in between.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vswap_sys::eventfd::EventFd;
use vswap_sys::sock::Stream;
use vswap_sys::uffd::Userfaultfd;

use crate::core::Core;
use crate::fault::FaultServer;
use crate::lock::{Mutex, MutexGuard, Row};
use crate::reader;
use crate::server;
use crate::space::{Space, State};
use crate::threads;

/// How often an open window looks for faults that wait for memory; most forks are over before.
const WINDOW_PACE: Duration = Duration::from_millis(1);

/// The FORK event: make the child's space. It is served at once, before its agent has said hello, because the child
/// may touch swapped memory on its way there.
pub fn apply<'g>(
    core: &Arc<Core>,
    space: &'g Arc<Space>,
    state: MutexGuard<'g, State>,
    uffd: Userfaultfd,
) -> MutexGuard<'g, State> {
    let mut state = space.freeze(state);
    let child_layout = state.layout.fork(&mut |word| core.dup_word(word));
    let (Some(layout), Ok(stop)) = (child_layout, EventFd::new()) else {
        eprintln!(
            "vswap: no memory to follow a fork; stopping the run, because the child would read zeros"
        );
        std::process::abort();
    };
    let kin = Arc::clone(&space.kin);
    let child = Space::new(core.next_space_id(), uffd, stop, layout, kin);
    child.active.store(true, Ordering::Release);
    child
        .filtered
        .store(space.filtered.load(Ordering::Acquire), Ordering::Release);
    space.begin_sharing();
    child.begin_sharing();
    core.shares.begin(child.id, space);
    core.add_space(Arc::clone(&child));
    reader::start(core, &child);
    core.forks.expect(state.open_fork, child);
    space.thaw(&mut state);
    state
}

/// Children that exist since their FORK event and whose agents have not said hello, by the token of the fork.
#[derive(Debug)]
pub struct Forks {
    children: Mutex<HashMap<u64, Arc<Space>>>,
}

impl Default for Forks {
    fn default() -> Forks {
        Forks {
            children: Mutex::new(Row::Innermost, "the list of forks", HashMap::new()),
        }
    }
}

impl Forks {
    /// A child was made in the fork `token`. A fork that nobody announced (token 0) has a child without an agent:
    /// its faults are served, but nothing of it is moved out.
    fn expect(&self, token: u64, child: Arc<Space>) {
        if token != 0 {
            self.lock().insert(token, child);
        }
    }

    /// The child of fork `token`, once.
    pub fn take(&self, token: u64) -> Option<Arc<Space>> {
        self.lock().remove(&token)
    }

    /// A space has ended: if it was a child that never said hello, nobody waits for it any more.
    pub fn forget(&self, id: u64) {
        self.lock().retain(|_, child| child.id != id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Space>>> {
        self.children.lock()
    }
}

/// FORK_BEGIN: hold everything that must not happen during a fork until the connection says that it is over.
///
/// The forking thread takes locks on its way, those of malloc among them, and their holders may wait for a fault. So
/// faults are served whatever the limit says, also those that had to wait for memory before: the evictor cannot make
/// any, because it waits for the fork.
pub fn window(core: &Arc<Core>, space: Arc<Space>, token: u64, connection: Stream) {
    let core = Arc::clone(core);
    threads::spawn(&format!("fork-{}", space.id), move || {
        let Some(process) = space.process.get() else {
            return;
        };
        space.forks_open.fetch_add(1, Ordering::AcqRel);
        let slot = process.agent.slot();
        space.lock_thawed().open_fork = token;
        server::acknowledge(&connection);
        let mut server = FaultServer::new(&core, &space);
        server.serve_deferred(|_, _| true);
        // Whoever was serving them just now may have put some back.
        while !server::has_ended(&connection, WINDOW_PACE) {
            server.serve_deferred(|_, _| true);
        }
        space.lock_thawed().open_fork = 0;
        drop(slot);
        space.forks_open.fetch_sub(1, Ordering::AcqRel);
    });
}
