//! The socket on which agents say hello, and the thread that listens to them.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use vswap_sys::eventfd::{EventFd, PollFd, PollFlags, poll};
use vswap_sys::memory::RingMap;
use vswap_sys::process::procfs::{self, Statm};
use vswap_sys::ring::{
    ACK, ATTACHED, Hello, LEFT_ALONE, NOT_MINE, NOTHING_INHERITED, TURNED_AWAY, hello,
};
use vswap_sys::sock::{Descriptors, Listener, SockError, Stream, Wait};
use vswap_sys::{process, uffd};

use crate::base::kernel::pagemap::{Pagemap, PagemapError};
use crate::base::kernel::procmap::ProcMap;
use crate::base::kernel::uffd::{Userfaultfd, feature};
use crate::base::threads;
use crate::events::{fork, regions};
use crate::life::run::Run;
use crate::life::{last_thread, lifecycle};
use crate::policy::hello::{Greeting, own_pages};
use crate::space::Space;
use crate::space::agent::Agent;
use crate::space::leader::Leader;
use crate::space::process::{EntryPoint, Process};

/// Name of the socket in the run directory.
pub const SOCKET_NAME: &str = "agents.sock";
/// How long the server sleeps at most. It is woken for everything that matters.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// Descriptors kept for forks and filters when a new program asks to be managed. A fork that is not followed would have
/// to wait, but a program can do without vswap.
const RESERVE: usize = 32;
/// Pause before taking a connection for which there was no descriptor.
const ACCEPT_PACE: Duration = Duration::from_millis(10);

/// The user was told that there are no descriptors.
static SCARCITY_SAID: AtomicBool = AtomicBool::new(false);

/// Longest chain of parents to follow. A longer chain is not a family of the run.
const ANCESTORS_MAX: usize = 1024;

/// Why a connection was turned away.
#[derive(Debug, thiserror::Error)]
enum HelloError {
    #[error("the connection failed: {0}")]
    Socket(#[from] SockError),
    #[error("not a vswap agent of this version")]
    Protocol,
    #[error("process {0} belongs to another user")]
    Foreign(u32),
    #[error("a descriptor is missing")]
    Descriptors,
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

/// Where agents call: at a path, and at an abstract name for processes whose root or user has changed.
#[derive(Debug)]
pub struct Listeners {
    at_path: Listener,
    by_name: Listener,
}

impl Listeners {
    /// Bind both.
    ///
    /// # Errors
    /// What the socket calls said.
    pub fn bind(dir: &Path) -> Result<Listeners, SockError> {
        let path = dir.join(SOCKET_NAME);
        let by_name = Listener::bind_abstract(&path)?;
        Ok(Listeners {
            at_path: Listener::bind(&path, 0o666)?,
            by_name,
        })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        self.at_path.path()
    }
}

/// Listen until `stop` is signalled. `joined` is signalled when a forked child has its agent.
fn listen(run: &Arc<Run>, listeners: &Listeners, joined: &Arc<EventFd>, stop: &EventFd) {
    // Connections without a hello yet. An agent says hello right after it connects, unless its process is stopped in
    // between.
    let mut silent: Vec<Stream> = Vec::new();
    loop {
        let alive = run.listening.spaces.all();
        let agents: Vec<&Arc<Space>> = alive.iter().filter(|space| has_agent(space)).collect();
        let mut fds = vec![
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(&listeners.at_path, PollFlags::IN),
            PollFd::new(&listeners.by_name, PollFlags::IN),
            PollFd::new(joined.as_ref(), PollFlags::IN),
        ];
        // Only the end of a connection matters, and poll reports that unasked.
        let processes = agents.iter().filter_map(|space| space.process.get());
        fds.extend(processes.map(|process| {
            PollFd::from_borrowed_fd(process.agent.socket().as_fd(), PollFlags::empty())
        }));
        let behind_agents = fds.len();
        fds.extend(silent.iter().map(|s| PollFd::new(s, PollFlags::IN)));
        // A signal counts as a message: look again.
        let ready = poll(&mut fds, Some(POLL_TIMEOUT));
        if fds[0].revents().contains(PollFlags::IN) {
            return;
        }
        if fds[3].revents().contains(PollFlags::IN) {
            // After an error the eventfd stays signalled, and the next turn clears it.
            let _ = joined.clear();
        }
        for (fd, space) in fds[4..behind_agents].iter().zip(&agents) {
            if fd.revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                lifecycle::hang_up(space);
            }
        }
        if ready == Ok(0) {
            agents.iter().for_each(|space| last_thread::look(space));
        }
        let called = [fds[1].revents(), fds[2].revents()].map(|r| r.contains(PollFlags::IN));
        let speak: Vec<bool> = fds[behind_agents..]
            .iter()
            .map(|fd| !fd.revents().is_empty())
            .collect();
        let mut speak = speak.into_iter();
        let speaking: Vec<Stream> = silent
            .extract_if(.., |_| speak.next().unwrap_or(false))
            .collect();
        silent.extend(accept(run, listeners, called));
        for connection in speaking {
            greet(run, joined, connection);
        }
    }
}

fn has_agent(space: &Space) -> bool {
    space.process.get().is_some() && !space.is_hung_up()
}

/// Take a connection from each listener that was called.
fn accept(run: &Run, listeners: &Listeners, called: [bool; 2]) -> Vec<Stream> {
    let both = [&listeners.at_path, &listeners.by_name];
    let mut accepted = Vec::new();
    for (listener, _) in both.into_iter().zip(called).filter(|(_, called)| *called) {
        match listener.accept() {
            Ok(connection) if may_speak(run, &connection) => accepted.push(connection),
            Ok(_) => {}
            // The connection waits where it is, and would end the next sleep at once.
            Err(_) => std::thread::sleep(ACCEPT_PACE),
        }
    }
    accepted
}

/// Does the caller belong to vswap's user, or to the run? Others are turned away before anybody waits for them.
fn may_speak(run: &Run, connection: &Stream) -> bool {
    let Ok(peer) = connection.peer() else {
        return false;
    };
    let may = peer.uid == process::effective_uid() || is_of_roots_run(run, peer.pid);
    if !may {
        turn_away(run, connection, &HelloError::Foreign(peer.pid));
    }
    may
}

/// Hear one hello.
fn greet(run: &Arc<Run>, joined: &Arc<EventFd>, connection: Stream) {
    match hear(&connection) {
        Ok(heard) => answer(run, joined, heard, connection),
        Err(error) => turn_away(run, &connection, &error),
    }
}

/// A hello that was heard.
struct Heard {
    hello: Hello,
    descriptors: Descriptors,
    greeting: Greeting,
    pid: u32,
}

fn hear(connection: &Stream) -> Result<Heard, HelloError> {
    let (hello, descriptors) = connection.recv::<Hello>(Wait::No)?;
    Ok(Heard {
        greeting: Greeting::of(&hello).ok_or(HelloError::Protocol)?,
        pid: connection.peer()?.pid,
        hello,
        descriptors,
    })
}

fn turn_away(run: &Run, connection: &Stream, error: &HelloError) {
    // Without this word an agent would take the end of the connection for the end of the pager.
    let _ = connection.send(&TURNED_AWAY, &[], Wait::No);
    tell(run, error, "its process runs on without swap");
}

/// Turn away a process that may have ended but for its agent's thread, which then ends with its status.
fn turn_process_away(
    run: &Run,
    connection: &Stream,
    error: &HelloError,
    (pid, hello): (u32, &Hello),
) {
    match last_thread::status_if_alone(pid, hello.agent_tid.cast_unsigned()) {
        None => turn_away(run, connection, error),
        Some(status) => {
            for word in [LEFT_ALONE, status] {
                let _ = connection.send(&word, &[], Wait::No);
            }
        }
    }
}

fn tell(run: &Run, error: &HelloError, consequence: &str) {
    // It is no news that a process ended half-way, or that there are still no descriptors.
    let news = match error {
        HelloError::Socket(_) | HelloError::Gone | HelloError::Ended(_) | HelloError::Leaving => {
            false
        }
        HelloError::Scarce => !SCARCITY_SAID.swap(true, Ordering::Relaxed),
        _ => true,
    };
    if news && !run.config.quiet {
        eprintln!("vswap: turned an agent away: {error}; {consequence}");
    }
}

fn answer(run: &Arc<Run>, joined: &Arc<EventFd>, heard: Heard, connection: Stream) {
    let Heard {
        hello,
        descriptors,
        greeting,
        pid,
    } = heard;
    match greeting {
        Greeting::ForkBegin => match run.listening.spaces.of_process(pid) {
            Some(space) => fork::window(&run.listening, space, hello.fork, connection),
            None => acknowledge(&connection),
        },
        Greeting::Filter => match run.listening.spaces.of_process(pid) {
            Some(space) => {
                let run = Arc::clone(run);
                // In a thread, because its agent may be stopped.
                threads::spawn_late(&format!("filter-{pid}"), move || {
                    lifecycle::filter_first(&run, &space);
                    acknowledge(&connection);
                });
            }
            None => acknowledge(&connection),
        },
        Greeting::Device => {
            if let Err(error) = give_device(&connection) {
                turn_away(run, &connection, &error);
            }
        }
        Greeting::Handshake => {
            // Where the pager may have no fork events either, the agent says so in its hello.
            let _ = shake_hands(&hello, descriptors, &connection);
        }
        Greeting::Begin => {
            // The process takes the connection over. A refused process still has to hear that it is refused.
            let kept = match connection.as_fd().try_clone_to_owned() {
                Ok(kept) => Stream::from_fd(kept),
                Err(error) => {
                    return turn_process_away(run, &connection, &error.into(), (pid, &hello));
                }
            };
            if let Err(error) = begin(run, &hello, descriptors, connection, pid) {
                turn_process_away(run, &kept, &error, (pid, &hello));
            }
        }
        Greeting::Join | Greeting::Copied => {
            let join = if greeting == Greeting::Copied {
                join_copied
            } else {
                join
            };
            let (run, joined) = (Arc::clone(run), Arc::clone(joined));
            // Without a thread the connection closes, and the child stops itself.
            threads::spawn_within(&format!("join-{pid}"), fork::THREAD_PATIENCE, move || {
                match join(&run, &hello, descriptors, connection, pid) {
                    // A full eventfd is signalled already.
                    Ok(()) => drop(joined.signal()),
                    // The agent gets no answer.
                    Err(error) => tell(&run, &error, "its process, a forked child, stops itself"),
                }
            });
        }
    }
}

/// Does the process belong to a run of root's and has changed its user? Its family tells, because anybody can find the
/// socket. A daemon has left the run's family, but is known itself.
fn is_of_roots_run(run: &Run, pid: u32) -> bool {
    let parent = |pid: &u32| procfs::stat(*pid).ok().map(|stat| stat.parent);
    let mut family = std::iter::successors(Some(pid), parent).take(ANCESTORS_MAX);
    process::effective_uid() == 0
        && family
            .any(|pid| pid == run.config.root_pid || run.listening.spaces.of_process(pid).is_some())
}

/// Lend the device to a process that may not make a userfaultfd, because it has given up the right: it has changed its
/// user, or is in a user namespace of its own. The program itself could get at the one that its agent has, so it gains
/// nothing by this.
fn give_device(connection: &Stream) -> Result<(), HelloError> {
    let opened = File::options().read(true).write(true).open(uffd::DEVICE);
    let device = opened.map_err(HelloError::NoDevice)?;
    Ok(connection.send(&ACK, &[device.as_fd()], Wait::No)?)
}

/// Do the handshake of a process's userfaultfd. The kernel asks whoever makes the call whether it may have fork events.
fn shake_hands(
    hello: &Hello,
    mut descriptors: Descriptors,
    connection: &Stream,
) -> Result<(), HelloError> {
    let uffd = descriptors.take(0).ok_or(HelloError::Descriptors)?;
    let done = uffd::shake_hands(uffd, hello.uffd_features);
    done.map_err(|_| HelloError::NoForkEvents)?;
    Ok(connection.send(&ACK, &[], Wait::No)?)
}

/// A process says hello whose memory nobody watches yet.
fn begin(
    run: &Arc<Run>,
    hello: &Hello,
    mut descriptors: Descriptors,
    connection: Stream,
    pid: u32,
) -> Result<(), HelloError> {
    if hello.uffd_errno != 0 {
        return Err(HelloError::NoUserfaultfd(hello.uffd_errno));
    }
    if run.listening.leaving.has_begun() {
        return Err(HelloError::Leaving);
    }
    if !process::could_have_descriptors(RESERVE) {
        return Err(HelloError::Scarce);
    }
    let uffd = descriptors.take(0).ok_or(HelloError::Descriptors)?;
    let staging = descriptors.take(1).ok_or(HelloError::Descriptors)?;
    let ring = descriptors.take(2).ok_or(HelloError::Descriptors)?;
    let process = open_process(hello, RingMap::open(ring.as_fd()), staging, connection, pid)?;
    let parent = u32::try_from(hello.parent_pid)
        .ok()
        .filter(|_| hello.kind == hello::FORKED)
        .and_then(|parent| run.listening.spaces.of_process(parent));
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
    Ok(())
}

/// A forked child says hello. Its space exists since the FORK event, and now gets its agent. This has its own thread,
/// because it waits for the child.
fn join(
    run: &Arc<Run>,
    hello: &Hello,
    mut descriptors: Descriptors,
    connection: Stream,
    pid: u32,
) -> Result<(), HelloError> {
    // The fork has returned only after its event was read. Whoever read it may still be applying it.
    if let Some(parent) = run.listening.forks.parent(hello.fork) {
        // This waits for the pager only, not for the process, which may be stopped.
        parent.wait_for_fork();
    }
    let Some(child) = find_child(run, hello.fork, &connection)? else {
        return Ok(connection.send(&NOTHING_INHERITED, &[], Wait::No)?);
    };
    let staging = descriptors.take(0).ok_or(HelloError::Descriptors)?;
    let ring = descriptors.take(1).ok_or(HelloError::Descriptors)?;
    let process = open_process(hello, RingMap::open(ring.as_fd()), staging, connection, pid)?;
    run.listening.forks.found(hello.fork);
    if child.filtered.load(Ordering::Acquire) {
        run.filters.note(pid);
    }
    // Before the answer, because then the child may fork.
    process.agent.announce_active();
    // Only this thread sets it, once for each child.
    let _ = child.process.set(process);
    // Also before the answer: until then the child maps nothing in the places of what it has not inherited.
    regions::keep_inherited(&run.serving.references, &child);
    if let Some(process) = child.process.get() {
        acknowledge(process.agent.socket());
    }
    // Only now can anybody measure how much the child shares.
    child.share_has_changed();
    lifecycle::start_evictor(run, &child);
    Ok(())
}

/// A child says hello whose fork was followed: its memory is as the fork has left it, with holes. It stands still until
/// it has the answer. This has its own thread, because looking at its memory may take long.
fn join_copied(
    run: &Arc<Run>,
    hello: &Hello,
    mut descriptors: Descriptors,
    connection: Stream,
    pid: u32,
) -> Result<(), HelloError> {
    if hello.uffd_errno != 0 {
        return Err(HelloError::NoUserfaultfd(hello.uffd_errno));
    }
    let uffd = descriptors.take(0).ok_or(HelloError::Descriptors)?;
    let staging = descriptors.take(1).ok_or(HelloError::Descriptors)?;
    let ring = descriptors.take(2).ok_or(HelloError::Descriptors)?;
    let process = open_process(hello, RingMap::open(ring.as_fd()), staging, connection, pid)?;
    let listening = &run.listening;
    let parent = listening
        .forks
        .parent(hello.fork)
        .ok_or(HelloError::NoFork)?;
    let copy = listening
        .forks
        .take_copy(hello.fork)
        .ok_or(HelloError::NoFork)?;
    let child = fork::new_child(listening, &parent, copy, Userfaultfd::from_fd(uffd));
    run.filters.note(pid);
    // Before the answer, because then the child may fork.
    process.agent.announce_active();
    // A new space has no process yet, so this cannot fail.
    let _ = child.process.set(process);
    if !regions::watch_copied(&run.serving.references, &child) {
        child
            .lock()
            .layout
            .clear(&mut run.serving.references.puts());
        child.mailbox.ended.store(true, Ordering::Release);
        child.mailbox.put_proposals(&run.serving.engine, |_| true);
        return Err(HelloError::Unwatched(pid));
    }
    fork::begin(listening, &parent, &child);
    if let Some(process) = child.process.get() {
        acknowledge(process.agent.socket());
    }
    child.share_has_changed();
    lifecycle::start_evictor(run, &child);
    Ok(())
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

fn open_process<E>(
    hello: &Hello,
    ring: Result<RingMap, E>,
    staging: OwnedFd,
    connection: Stream,
    pid: u32,
) -> Result<Process, HelloError> {
    let ring = ring.map_err(|_| HelloError::Descriptors)?;
    let own_pages = own_pages(hello).ok_or(HelloError::Protocol)?;
    let agent = Agent::new(ring, connection, hello.agent_tid, own_pages, hello.staging);
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
    let map = ProcMap::open(any_tid).map_err(|_| ended())?;
    Ok(Process {
        pid,
        agent,
        pagemap,
        statm,
        map,
        staging: Userfaultfd::from_fd(staging),
        leader: Leader::default(),
        late_statm: OnceLock::new(),
        entry: EntryPoint {
            address: hello.entry,
            stack_end: hello.entry_stack,
        },
        is_attached: hello.flags & ATTACHED != 0,
        has_fork_events: hello.uffd_features & feature::EVENT_FORK != 0,
        is_found_by_agent,
    })
}

/// Does the agent's thread have the id here that it has told? It does outside of pid namespaces.
fn is_known_as_it_says(pid: u32, hello: &Hello) -> bool {
    let agent = hello.agent_tid.cast_unsigned();
    procfs::innermost_tid(pid, agent).is_ok_and(|tid| tid == agent)
}

/// Send the one-byte answer.
fn acknowledge(connection: &Stream) {
    // A process that died in its fork does not hear it.
    let _ = connection.send(&ACK, &[], Wait::No);
}

/// Has the other end sent something or closed, or does it within `patience`?
fn has_ended(connection: &Stream, patience: Duration) -> bool {
    let mut fds = [PollFd::new(connection, PollFlags::IN)];
    poll(&mut fds, Some(patience)) != Ok(0)
}

impl fork::Caller for Stream {
    fn is_room(&self, forks: usize) -> bool {
        process::could_have_descriptors(forks * fork::DESCRIPTORS)
    }

    fn acknowledge(&self) {
        acknowledge(self);
    }

    fn has_ended(&self, patience: Duration) -> bool {
        has_ended(self, patience)
    }
}

/// Start the server's thread.
///
/// # Errors
/// There is no thread.
pub fn start(
    run: &Arc<Run>,
    listeners: Listeners,
    joined: Arc<EventFd>,
    stop: Arc<EventFd>,
) -> std::io::Result<()> {
    let run = Arc::clone(run);
    threads::try_spawn("agents", move || {
        // Hurry: until a process is known it grows unseen.
        threads::hurry_most();
        listen(&run, &listeners, &joined, &stop);
    })
}
