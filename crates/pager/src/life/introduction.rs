//! Processes that say hello: what they sent is checked, and they get a space, or the one that waits for them.
//!
//! A program is not believed. What a descriptor is, who has connected and whose child it is, the kernel says. Numbers
//! are bounded before they are used (`policy/hello.rs`).

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use vswap_sys::memory::{MemoryError, RingMap};
use vswap_sys::process;
use vswap_sys::process::memory_file::MemoryFile;
use vswap_sys::process::procfs::{self, Statm};
use vswap_sys::ring::{ACK, ATTACHED, Hello, NOT_MINE, NOTHING_INHERITED, hello};
use vswap_sys::sock::{Descriptors, SockError, Stream, Wait};

use crate::base::kernel::pagemap::{Pagemap, PagemapError};
use crate::base::kernel::process::PidFd;
use crate::base::kernel::procmap::ProcMap;
use crate::base::kernel::uffd::{Userfaultfd, feature};
use crate::base::threads;
use crate::events::{fork, regions};
use crate::life::lifecycle;
use crate::life::run::Run;
use crate::policy::hello::own_pages;
use crate::space::Space;
use crate::space::agent::Agent;
use crate::space::leader::Leader;
use crate::space::process::{EntryPoint, Process};
use crate::space::proofs::Proofs;

/// Descriptors kept for forks and filters when a new program asks to be managed. A fork that is not followed would have
/// to wait, but a program can do without vswap.
const RESERVE: usize = 32;
/// Spaces of one process at a time. A process that runs one program after the other has two for a moment: the memory
/// before lives on until the kernel is done with it.
const SPACES_OF_ONE_MAX: usize = 8;

/// Why a connection was turned away.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    #[error("the connection failed: {0}")]
    Socket(#[from] SockError),
    #[error("not a vswap agent of this version")]
    Protocol,
    #[error("process {0} belongs to another user")]
    Foreign(u32),
    #[error("process {0} has an agent already")]
    Second(u32),
    #[error("process {0} has more open connections than threads")]
    TooMany(u32),
    #[error("a descriptor is missing, or is not what it should be")]
    Descriptors,
    #[error("no ring: {0}")]
    Ring(#[from] MemoryError),
    #[error("process {0} is not the one that sent it")]
    Stranger(u32),
    #[error("no userfaultfd (errno {0})")]
    NoUserfaultfd(i32),
    #[error("/dev/userfaultfd, which its process needs, cannot be opened: {0} (see vswap doctor)")]
    NoDevice(std::io::Error),
    #[error("fork events are not permitted")]
    NoForkEvents,
    #[error("it says that it comes of a fork that is not under way")]
    NoFork,
    #[error("memory of process {0} cannot be watched")]
    Unwatched(u32),
    #[error("process {0} cannot be looked into")]
    Process(u32),
    #[error("the process has ended")]
    Gone,
    #[error("the main thread of process {0} has ended")]
    Ended(u32),
    #[error("vswap may have no more descriptors (see `ulimit -Hn`); nor may those that follow")]
    Scarce,
    #[error("vswap leaves this run")]
    Leaving,
    #[error("no descriptor left: {0}")]
    Io(#[from] std::io::Error),
}

/// A process says hello whose memory nobody watches yet.
pub fn begin(
    run: &Arc<Run>,
    hello: &Hello,
    mut descriptors: Descriptors,
    connection: Stream,
    pid: u32,
) -> Result<Arc<Space>, HelloError> {
    let admission = run.listening.leaving.admit();
    let _admission = admission.ok_or(HelloError::Leaving)?;
    if !process::could_have_descriptors(RESERVE) {
        return Err(HelloError::Scarce);
    }
    if run.listening.spaces.count_of_process(pid) >= SPACES_OF_ONE_MAX {
        return Err(HelloError::TooMany(pid));
    }
    if has_agent(run, pid) {
        return Err(HelloError::Second(pid));
    }
    let uffd = take_main(hello, &mut descriptors)?;
    let process = open_process(hello, &mut descriptors, 1, connection, pid)?;
    let parent = (hello.kind == hello::FORKED)
        .then(|| parent_of(run, pid))
        .flatten();
    let kin = parent.as_ref().map(|parent| Arc::clone(&parent.kin));
    let is_followed = process.is_followed();
    let space = lifecycle::begin(&run.listening, uffd, process, kin.unwrap_or_default())?;
    if is_followed {
        let (run, space) = (Arc::clone(run), Arc::clone(&space));
        // In a thread, because its agent may be stopped.
        threads::spawn_late(&format!("follow-{pid}"), move || {
            lifecycle::follow(&run, &space);
        });
    }
    if let Some(parent) = parent {
        parent.begin_sharing();
        space.begin_sharing();
        run.listening.shares.begin(space.id, &parent);
    }
    Ok(space)
}

/// A forked child says hello. Its space exists since the FORK event, and now gets its agent. This has its own thread,
/// because it waits for the child.
pub fn join(
    run: &Arc<Run>,
    hello: &Hello,
    mut descriptors: Descriptors,
    connection: Stream,
    pid: u32,
) -> Result<Option<Arc<Space>>, HelloError> {
    // The fork has returned only after its event was read. Whoever read it may still be applying it.
    if let Some(parent) = run.listening.forks.parent(hello.fork) {
        // This waits for the pager only, not for the process, which may be stopped.
        parent.wait_for_fork();
    }
    let Some(child) = find_child(run, hello.fork, &connection)? else {
        connection.send(&NOTHING_INHERITED, &[], Wait::No)?;
        return Ok(None);
    };
    let process = open_process(hello, &mut descriptors, 0, connection, pid)?;
    run.listening.forks.found(hello.fork, &child);
    if child.filtered.load(Ordering::Acquire) {
        run.filters.note(pid);
    }
    // Before the answer, because then the child may fork.
    process.agent.announce_active();
    run.listening.spaces.introduce(&child, process);
    tracing::debug!(space = child.id, pid, "a forked child has said hello");
    // Also before the answer: until then the child maps nothing in the places of what it has not inherited.
    regions::keep_inherited(&run.serving.references, &child);
    if let Some(process) = child.process.get() {
        process.agent.acknowledge();
    }
    // Only now can anybody measure how much the child shares.
    child.share_has_changed();
    lifecycle::start_evictor(run, &child);
    Ok(Some(child))
}

/// A child says hello whose fork was followed: its memory is as the fork has left it, with holes. It stands still until
/// it has the answer. This has its own thread, because looking at its memory may take long.
pub fn join_copied(
    run: &Arc<Run>,
    hello: &Hello,
    mut descriptors: Descriptors,
    connection: Stream,
    pid: u32,
) -> Result<Option<Arc<Space>>, HelloError> {
    let uffd = take_main(hello, &mut descriptors)?;
    let process = open_process(hello, &mut descriptors, 1, connection, pid)?;
    let listening = &run.listening;
    let parent = listening
        .forks
        .parent(hello.fork)
        .ok_or(HelloError::NoFork)?;
    let mut copy = listening
        .forks
        .take_copy(hello.fork)
        .ok_or(HelloError::NoFork)?;
    if copy.lost.iter().next().is_some() {
        // Nothing is registered yet, so nothing can be poisoned. But this child stands still, and does not run.
        copy.clear(&mut run.serving.references.puts());
        return Err(HelloError::Unwatched(pid));
    }
    let child = fork::new_child(listening, &parent, copy, uffd);
    run.filters.note(pid);
    // Before the answer, because then the child may fork.
    process.agent.announce_active();
    listening.spaces.introduce(&child, process);
    if !regions::watch_copied(&run.serving.references, &child) {
        child
            .lock()
            .layout
            .clear(&mut run.serving.references.puts());
        child.mailbox.ended.store(true, Ordering::Release);
        child.mailbox.put_proposals(&run.serving.engine, |_| true);
        if let Some(process) = child.process.get() {
            process.agent.set_gone();
            process.agent.owe_nothing();
        }
        return Err(HelloError::Unwatched(pid));
    }
    fork::begin(listening, &parent, &child);
    tracing::debug!(space = child.id, pid, "a forked child has said hello");
    if let Some(process) = child.process.get() {
        process.agent.acknowledge();
    }
    child.share_has_changed();
    lifecycle::start_evictor(run, &child);
    Ok(Some(child))
}

/// Which child born during the fork `token` is at the other end of the connection? Its agent tells by the candidates'
/// userfaultfds: one works on the agent's own memory, the others on that of other processes.
fn find_child(
    run: &Run,
    token: u64,
    connection: &Stream,
) -> Result<Option<Arc<Space>>, HelloError> {
    for child in run.listening.forks.candidates(token) {
        connection.send(&ACK, &[child.uffd.as_fd()], Wait::Yes)?;
        match connection.recv::<u8>(Wait::Yes)?.0 {
            ACK => return Ok(Some(child)),
            NOT_MINE => {}
            _ => return Err(HelloError::Protocol),
        }
    }
    Ok(None)
}

/// Does the memory of the process have an agent? Its loader brings one that nobody waited for any more, when one had
/// been attached from outside. Each of two would take the other one's memory for the program's.
fn has_agent(run: &Run, pid: u32) -> bool {
    let known = run.listening.spaces.of_process(pid);
    // Another program has other memory.
    let has_its_ring = |space: &Arc<Space>| {
        let process = space.process.get();
        let map = ProcMap::open(pid);
        process.is_some_and(|process| map.is_ok_and(|map| process.agent.has_ring_in(&map)))
    };
    known.is_some_and(|space| !space.is_hung_up() && has_its_ring(&space))
}

/// Take the userfaultfd of the process's memory, which comes first.
fn take_main(hello: &Hello, descriptors: &mut Descriptors) -> Result<Userfaultfd, HelloError> {
    if hello.uffd_errno != 0 {
        return Err(HelloError::NoUserfaultfd(hello.uffd_errno));
    }
    take_userfaultfd(descriptors, 0)
}

/// Take a descriptor of the message that has to be a userfaultfd.
fn take_userfaultfd(
    descriptors: &mut Descriptors,
    index: usize,
) -> Result<Userfaultfd, HelloError> {
    let descriptor = descriptors.take(index).ok_or(HelloError::Descriptors)?;
    let uffd = Userfaultfd::received(descriptor).filter(Userfaultfd::is_ready);
    uffd.ok_or(HelloError::Descriptors)
}

/// Take a descriptor of the message that has to be a ring.
fn take_ring(descriptors: &mut Descriptors, index: usize) -> Result<RingMap, HelloError> {
    let descriptor = descriptors.take(index).ok_or(HelloError::Descriptors)?;
    Ok(RingMap::open(descriptor.as_fd())?)
}

/// The space of the process that has forked this one. The kernel is asked, not the agent: kin see which of their pages
/// are equal. A child whose parent has ended already has no kin.
fn parent_of(run: &Run, pid: u32) -> Option<Arc<Space>> {
    let parent = procfs::stat(pid).ok()?.parent;
    run.listening.spaces.of_process(parent)
}

/// Take the userfaultfd of staging and the ring, which are number `at` and the next of the message, and open all that
/// is needed to ask about a process. It is opened by a number, which may be another process's by now, or the process
/// may run another program. So in the end the process has to be the one that has connected, and has to have the ring in
/// its memory.
fn open_process(
    hello: &Hello,
    descriptors: &mut Descriptors,
    at: usize,
    connection: Stream,
    pid: u32,
) -> Result<Process, HelloError> {
    let staging = take_userfaultfd(descriptors, at)?;
    let ring = take_ring(descriptors, at + 1)?;
    ring.heard.store(1, Ordering::SeqCst);
    let own_pages = own_pages(hello).ok_or(HelloError::Protocol)?;
    let pidfd = PidFd::from_fd(connection.peer_pidfd().map_err(|_| HelloError::Gone)?);
    let agent = Agent::new(ring, connection, hello, own_pages);
    let is_found_by_agent = is_known_as_it_says(pid, hello);
    let any_tid = if is_found_by_agent {
        hello.agent_tid.cast_unsigned()
    } else {
        pid
    };
    let ended = || HelloError::Ended(pid);
    let pagemap = Pagemap::open(pid).map_err(|error| match error {
        PagemapError::Gone => ended(),
        _ => HelloError::Process(pid),
    })?;
    let statm = Statm::open(pid).map_err(|_| HelloError::Gone)?;
    let memory = MemoryFile::open(any_tid).map_err(|error| match error.kind() {
        ErrorKind::NotFound => ended(),
        _ => HelloError::Process(pid),
    })?;
    let map = ProcMap::open(any_tid).map_err(|_| ended())?;
    let process = Process {
        pid,
        pidfd,
        agent,
        pagemap,
        statm,
        map,
        memory,
        staging,
        leader: Leader::default(),
        late_statm: OnceLock::new(),
        entry: EntryPoint {
            address: hello.entry,
            stack_end: hello.entry_stack,
        },
        is_attached: hello.flags & ATTACHED != 0,
        has_fork_events: hello.uffd_features & feature::EVENT_FORK != 0,
        is_found_by_agent,
        agent_elsewhere: AtomicU64::new(0),
        proofs: Proofs::default(),
    };
    if !process.is_alive() {
        return Err(HelloError::Gone);
    }
    // The mappings were opened last. They are those of the memory that the process had then.
    let is_own = process.agent.has_ring_in(&process.map);
    is_own.then_some(process).ok_or(HelloError::Stranger(pid))
}

/// Does the agent's thread have the id here that it has told? It does outside of pid namespaces.
fn is_known_as_it_says(pid: u32, hello: &Hello) -> bool {
    let agent = hello.agent_tid.cast_unsigned();
    procfs::innermost_tid(pid, agent).is_ok_and(|tid| tid == agent)
}
