//! The socket on which agents say hello, and the thread that listens to them.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use vswap_sys::eventfd::{EventFd, PollFd, PollFlags, poll};
use vswap_sys::memory::RingMap;
use vswap_sys::pagemap::{Pagemap, PagemapError};
use vswap_sys::process;
use vswap_sys::procfs::{self, Statm};
use vswap_sys::ring::{ACK, Hello, NOTHING_INHERITED, TURNED_AWAY, hello};
use vswap_sys::sock::{Descriptors, Listener, SockError, Stream, Wait};
use vswap_sys::uffd::feature;

use crate::agent::Agent;
use crate::core::Core;
use crate::hello::{Greeting, own_pages};
use crate::lifecycle;
use crate::space::{Process, Space};
use crate::{fork, threads};

/// Name of the socket in the run directory.
pub const SOCKET_NAME: &str = "agents.sock";
/// How long the server sleeps at most; it is woken for everything that matters.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);
/// An agent sends its hello right after it has connected; a connection that stays silent is closed.
const HELLO_PATIENCE: Duration = Duration::from_secs(2);

/// Longest chain of parents followed upwards: a chain that long is no family of the run's.
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
    #[error("fork events are not permitted (see vswap doctor)")]
    NoForkEvents,
    #[error("process {0} cannot be looked into")]
    Process(u32),
    #[error("the process has ended")]
    Gone,
    #[error("no descriptor left: {0}")]
    Io(#[from] std::io::Error),
}

/// Where agents call: at a path, and at an abstract name for those whose root or user has changed.
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

/// Listen until `stop` is signalled.
pub fn run(core: &Arc<Core>, listeners: &Listeners, stop: &EventFd) {
    let mut spaces: Vec<Weak<Space>> = Vec::new();
    loop {
        let alive: Vec<Arc<Space>> = spaces.iter().filter_map(Weak::upgrade).collect();
        let agents: Vec<&Arc<Space>> = alive.iter().filter(|space| !space.is_hung_up()).collect();
        let mut fds = vec![
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(&listeners.at_path, PollFlags::IN),
            PollFd::new(&listeners.by_name, PollFlags::IN),
        ];
        // Only the end of a connection is of interest; it is reported unasked.
        fds.extend(
            agents
                .iter()
                .filter_map(|space| space.process.get())
                .map(|process| {
                    PollFd::from_borrowed_fd(process.agent.socket().as_fd(), PollFlags::empty())
                }),
        );
        // A signal is as good as a message: look again.
        let _ = poll(&mut fds, Some(POLL_TIMEOUT));
        if fds[0].revents().contains(PollFlags::IN) {
            return;
        }
        for (fd, space) in fds[3..].iter().zip(&agents) {
            if fd.revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                lifecycle::hang_up(space);
            }
        }
        let called = [fds[1].revents(), fds[2].revents()].map(|r| r.contains(PollFlags::IN));
        spaces = agents.into_iter().map(Arc::downgrade).collect();
        for (listener, _) in [&listeners.at_path, &listeners.by_name]
            .into_iter()
            .zip(called)
            .filter(|(_, c)| *c)
        {
            let space = listener
                .accept()
                .ok()
                .and_then(|connection| greet(core, connection));
            spaces.extend(space.as_ref().map(Arc::downgrade));
        }
    }
}

/// Hear one hello. Returns the space that began with it.
fn greet(core: &Arc<Core>, connection: Stream) -> Option<Arc<Space>> {
    let answer = connection.as_fd().try_clone_to_owned().map(Stream::from_fd);
    match try_greet(core, connection) {
        Ok(space) => space,
        Err(error) => {
            // Without this an agent takes the end of the connection for the end of the pager.
            let _ = answer.map(|answer| answer.send(&TURNED_AWAY, &[], Wait::No));
            // That a process ended half-way is no news.
            let news = !matches!(error, HelloError::Socket(_) | HelloError::Gone);
            if news && !core.config.quiet {
                eprintln!("vswap: turned an agent away: {error}; its process runs on without swap");
            }
            None
        }
    }
}

fn try_greet(core: &Arc<Core>, connection: Stream) -> Result<Option<Arc<Space>>, HelloError> {
    wait_readable(&connection, HELLO_PATIENCE)?;
    let (hello, descriptors) = connection.recv::<Hello>(Wait::No)?;
    let peer = connection.peer()?;
    let greeting = Greeting::of(&hello).ok_or(HelloError::Protocol)?;
    if peer.uid != process::effective_uid() && !is_of_roots_run(core, peer.pid) {
        return Err(HelloError::Foreign(peer.pid));
    }
    match greeting {
        Greeting::ForkBegin => {
            match core.space_of(peer.pid) {
                Some(space) => fork::window(core, space, hello.fork, connection),
                None => acknowledge(&connection),
            }
            Ok(None)
        }
        Greeting::Begin => begin(core, &hello, descriptors, connection, peer.pid).map(Some),
        Greeting::Join => join(core, &hello, descriptors, connection, peer.pid),
    }
}

/// Is the process one of a run of root's that has changed its user? Its family tells: anybody can find the socket.
fn is_of_roots_run(core: &Core, pid: u32) -> bool {
    let parent = |pid: &u32| procfs::stat(*pid).ok().map(|stat| stat.parent);
    let mut family = std::iter::successors(Some(pid), parent).take(ANCESTORS_MAX);
    process::effective_uid() == 0 && family.any(|pid| pid == core.config.root_pid)
}

/// A process whose memory nobody watches yet.
fn begin(
    core: &Arc<Core>,
    hello: &Hello,
    mut descriptors: Descriptors,
    connection: Stream,
    pid: u32,
) -> Result<Arc<Space>, HelloError> {
    if hello.uffd_errno != 0 {
        return Err(HelloError::NoUserfaultfd(hello.uffd_errno));
    }
    // A child whose fork nobody tells of would read zeros where its parent had swapped pages.
    if hello.uffd_features & feature::EVENT_FORK == 0 {
        return Err(HelloError::NoForkEvents);
    }
    let uffd = descriptors.take(0).ok_or(HelloError::Descriptors)?;
    let ring = descriptors.take(2).ok_or(HelloError::Descriptors)?;
    let process = open_process(hello, RingMap::open(ring.as_fd()), connection, pid)?;
    let parent = u32::try_from(hello.parent_pid)
        .ok()
        .filter(|_| hello.kind == hello::FORKED)
        .and_then(|parent| core.space_of(parent));
    let kin = parent.as_ref().map(|parent| Arc::clone(&parent.kin));
    let space = lifecycle::begin(core, uffd, process, kin.unwrap_or_default())?;
    if let Some(parent) = parent {
        parent.begin_sharing();
        space.begin_sharing();
        core.shares.begin(space.id, &parent);
    }
    Ok(space)
}

/// A forked child whose space exists since the FORK event: it gets its agent now.
fn join(
    core: &Arc<Core>,
    hello: &Hello,
    mut descriptors: Descriptors,
    connection: Stream,
    pid: u32,
) -> Result<Option<Arc<Space>>, HelloError> {
    // The fork returned only after its event was read; whoever read it may still be applying it.
    let parent = u32::try_from(hello.parent_pid)
        .ok()
        .and_then(|pid| core.space_of(pid));
    drop(parent.as_ref().map(|parent| parent.lock_thawed()));
    let Some(child) = core.forks.take(hello.fork) else {
        connection.send(&NOTHING_INHERITED, &[], Wait::No)?;
        return Ok(None);
    };
    let ring = descriptors.take(1).ok_or(HelloError::Descriptors)?;
    let copy = child.uffd.try_clone().map_err(std::io::Error::from)?;
    let process = open_process(hello, RingMap::open(ring.as_fd()), connection, pid)?;
    // Before the answer: from then on the child may fork.
    process.agent.announce_active();
    process
        .agent
        .socket()
        .send(&ACK, &[copy.as_fd()], Wait::No)?;
    // Only this thread sets it, once for each child.
    let _ = child.process.set(process);
    // Only now can anybody look how much it shares.
    child.share_has_changed();
    lifecycle::start_evictor(core, &child);
    Ok(Some(child))
}

fn open_process<E>(
    hello: &Hello,
    ring: Result<RingMap, E>,
    connection: Stream,
    pid: u32,
) -> Result<Process, HelloError> {
    let ring = ring.map_err(|_| HelloError::Descriptors)?;
    let own_pages = own_pages(hello).ok_or(HelloError::Protocol)?;
    let agent = Agent::new(ring, connection, hello.agent_tid, own_pages, hello.staging);
    let pagemap = Pagemap::open(pid).map_err(|error| match error {
        PagemapError::Gone => HelloError::Gone,
        _ => HelloError::Process(pid),
    })?;
    let statm = Statm::open(pid).map_err(|_| HelloError::Gone)?;
    Ok(Process {
        pid,
        agent,
        pagemap,
        statm,
    })
}

/// Send the one-byte answer.
pub fn acknowledge(connection: &Stream) {
    // A process that died in its fork does not hear it.
    let _ = connection.send(&ACK, &[], Wait::No);
}

/// Has the other end sent something or closed, or does it within `patience`?
pub fn has_ended(connection: &Stream, patience: Duration) -> bool {
    let mut fds = [PollFd::new(connection, PollFlags::IN)];
    poll(&mut fds, Some(patience)) != Ok(0)
}

fn wait_readable(connection: &Stream, patience: Duration) -> Result<(), HelloError> {
    let mut fds = [PollFd::new(connection, PollFlags::IN)];
    match poll(&mut fds, Some(patience)) {
        Ok(1..) => Ok(()),
        Ok(0) => Err(HelloError::Protocol),
        Err(errno) => Err(HelloError::Io(errno.into())),
    }
}

/// Start the server's thread.
pub fn start(core: &Arc<Core>, listeners: Listeners, stop: Arc<EventFd>) {
    let core = Arc::clone(core);
    threads::spawn("agents", move || {
        // A process that nobody knows yet grows unseen.
        threads::hurry_most();
        run(&core, &listeners, &stop);
    });
}
