//! The socket on which agents say hello, and the thread that listens to them.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use vswap_sys::eventfd::{EventFd, PollFd, PollFlags, poll};
use vswap_sys::process::procfs;
use vswap_sys::ring::{ACK, Hello, LEFT_ALONE, TURNED_AWAY};
use vswap_sys::sock::{Descriptors, Listener, SockError, Stream, Wait};
use vswap_sys::{process, uffd};

use crate::base::threads;
use crate::events::fork;
use crate::life::callers::Admission;
use crate::life::connections::{Connections, Event};
use crate::life::introduction::{HelloError, begin, join, join_copied};
use crate::life::run::Run;
use crate::life::{last_thread, lifecycle};
use crate::policy::hello::Greeting;
use crate::space::Space;

/// Name of the socket in the run directory.
pub const SOCKET_NAME: &str = "agents.sock";
/// How long the server sleeps at most. It is woken for everything that matters.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pause before taking a connection for which there was no descriptor.
const ACCEPT_PACE: Duration = Duration::from_millis(10);

/// The user was told that there are no descriptors.
static SCARCITY_SAID: AtomicBool = AtomicBool::new(false);

/// Longest chain of parents to follow. A longer chain is not a family of the run.
const ANCESTORS_MAX: usize = 1024;

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

    fn doors(&self) -> [&Listener; 2] {
        [&self.at_path, &self.by_name]
    }

    fn door(&self, number: u64) -> &Listener {
        match number {
            0 => &self.at_path,
            _ => &self.by_name,
        }
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        self.at_path.path()
    }
}

/// Listen until the server is to stop.
fn listen(run: &Arc<Run>, listeners: &Listeners, connections: &Arc<Connections>) {
    // Connections without a hello yet. An agent says hello right after it connects, unless its process is stopped in
    // between.
    let mut silent: HashMap<u64, Caller> = HashMap::new();
    let mut callers = 0;
    loop {
        for event in connections.wait(PATIENCE) {
            match event {
                Event::Stop => return,
                Event::HungUp(id) => {
                    if let Some(space) = run.listening.spaces.of_id(id) {
                        lifecycle::hang_up(&space);
                    }
                }
                Event::Spoke(number) => {
                    if let Some(caller) = silent.remove(&number) {
                        greet(run, connections, caller);
                    }
                }
                Event::Called(door) => {
                    callers += 1;
                    if let Some(caller) = accept(run, connections, listeners.door(door), callers) {
                        silent.insert(callers, caller);
                    }
                }
            }
        }
        connections.retry();
    }
}

/// A connection that the pager deals with, and has not handed over to a process yet.
struct Caller {
    connection: Stream,
    /// Who has connected.
    pid: u32,
    admission: Admission,
}

/// Take a connection from a listener that was called. None if it is turned away.
fn accept(
    run: &Run,
    connections: &Connections,
    listener: &Listener,
    number: u64,
) -> Option<Caller> {
    let Ok(connection) = listener.accept() else {
        // The connection waits where it is, and would end the next sleep at once.
        std::thread::sleep(ACCEPT_PACE);
        return None;
    };
    let admitted = admit(run, &connection).and_then(|admitted| {
        connections.await_hello(&connection, number)?;
        Ok(admitted)
    });
    match admitted {
        Ok((pid, admission)) => Some(Caller {
            connection,
            pid,
            admission,
        }),
        Err(error) => {
            turn_away(run, &connection, &error);
            None
        }
    }
}

/// Does the caller belong to vswap's user, or to the run? Others are turned away before anybody waits for them, and so
/// is a process that wants too much at a time.
fn admit(run: &Run, connection: &Stream) -> Result<(u32, Admission), HelloError> {
    let peer = connection.peer()?;
    if peer.uid != process::effective_uid() && !is_of_roots_run(run, peer.pid) {
        return Err(HelloError::Foreign(peer.pid));
    }
    let admission = run.callers.admit(peer.pid);
    Ok((peer.pid, admission.ok_or(HelloError::TooMany(peer.pid))?))
}

/// Hear one hello.
fn greet(run: &Arc<Run>, connections: &Arc<Connections>, caller: Caller) {
    match hear(&caller.connection) {
        Ok(heard) => answer(run, connections, heard, caller),
        Err(error) => turn_away(run, &caller.connection, &error),
    }
}

/// A hello that was heard.
struct Heard {
    hello: Hello,
    descriptors: Descriptors,
    greeting: Greeting,
}

fn hear(connection: &Stream) -> Result<Heard, HelloError> {
    let (hello, descriptors) = connection.recv::<Hello>(Wait::No)?;
    Ok(Heard {
        greeting: Greeting::of(&hello).ok_or(HelloError::Protocol)?,
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
    match last_thread::code_if_alone(pid, hello.agent_tid.cast_unsigned()) {
        None => turn_away(run, connection, error),
        Some(code) => {
            let [signal, status] = code.to_bytes();
            let _ = connection.send(&[LEFT_ALONE, signal, status], &[], Wait::No);
        }
    }
}

fn tell(run: &Run, error: &HelloError, consequence: &str) {
    // It is no news that a process ended half-way or runs another program by now, nor that there are still no
    // descriptors.
    let news = match error {
        HelloError::Socket(_)
        | HelloError::Gone
        | HelloError::Ended(_)
        | HelloError::Second(_)
        | HelloError::Stranger(_)
        | HelloError::Leaving => false,
        HelloError::Scarce => !SCARCITY_SAID.swap(true, Ordering::Relaxed),
        _ => true,
    };
    if !news || run.config.quiet {
        return;
    }
    if let Some(rest) = run.callers.tell() {
        tracing::warn!("turned an agent away: {error}; {consequence}{rest}");
    }
}

fn answer(run: &Arc<Run>, connections: &Arc<Connections>, heard: Heard, caller: Caller) {
    let Heard {
        hello,
        descriptors,
        greeting,
    } = heard;
    match greeting {
        Greeting::ForkBegin => match run.listening.spaces.of_process(caller.pid) {
            Some(space) => fork::window(&run.listening, space, hello.fork, caller),
            None => acknowledge(&caller.connection),
        },
        Greeting::Filter => match run.listening.spaces.of_process(caller.pid) {
            Some(space) => {
                let run = Arc::clone(run);
                // In a thread, because its agent may be stopped.
                threads::spawn_late(&format!("filter-{}", caller.pid), move || {
                    lifecycle::filter_first(&run, &space);
                    acknowledge(&caller.connection);
                });
            }
            None => acknowledge(&caller.connection),
        },
        Greeting::Device => {
            if let Err(error) = give_device(&caller.connection) {
                turn_away(run, &caller.connection, &error);
            }
        }
        Greeting::Handshake => {
            // Where the pager may have no fork events either, the agent says so in its hello.
            let _ = shake_hands(&hello, descriptors, &caller.connection);
        }
        Greeting::Begin => answer_begin(run, connections, &hello, descriptors, caller),
        Greeting::Join => answer_child(run, connections, join, (hello, descriptors), caller),
        Greeting::Copied => {
            answer_child(run, connections, join_copied, (hello, descriptors), caller);
        }
    }
}

fn answer_begin(
    run: &Arc<Run>,
    connections: &Connections,
    hello: &Hello,
    descriptors: Descriptors,
    caller: Caller,
) {
    let Caller {
        connection,
        pid,
        admission,
    } = caller;
    // The process takes the connection over. A refused process still has to hear that it is refused.
    let kept = match connection.as_fd().try_clone_to_owned() {
        Ok(kept) => Stream::from_fd(kept),
        Err(error) => {
            return turn_process_away(run, &connection, &error.into(), (pid, hello));
        }
    };
    match begin(run, hello, descriptors, connection, pid) {
        Ok(space) => connections.watch(&space),
        Err(error) => turn_process_away(run, &kept, &error, (pid, hello)),
    }
    drop(admission);
}

/// What a forked child asks for.
type Joining =
    fn(&Arc<Run>, &Hello, Descriptors, Stream, u32) -> Result<Option<Arc<Space>>, HelloError>;

fn answer_child(
    run: &Arc<Run>,
    connections: &Arc<Connections>,
    join: Joining,
    (hello, descriptors): (Hello, Descriptors),
    caller: Caller,
) {
    let (run, connections) = (Arc::clone(run), Arc::clone(connections));
    // Without a thread the connection closes, and the child stops itself.
    let name = format!("join-{}", caller.pid);
    threads::spawn_within(&name, fork::THREAD_PATIENCE, move || {
        fork::wait_to_inspect(&caller);
        let Caller {
            connection,
            pid,
            admission,
        } = caller;
        match join(&run, &hello, descriptors, connection, pid) {
            Ok(Some(child)) => connections.watch(&child),
            Ok(None) => {}
            // The agent gets no answer.
            Err(error) => tell(&run, &error, "its process, a forked child, stops itself"),
        }
        drop(admission);
    });
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
    let uffd = uffd::Userfaultfd::received(uffd).ok_or(HelloError::Descriptors)?;
    let done = uffd::shake_hands(&uffd, hello.uffd_features);
    done.map_err(|_| HelloError::NoForkEvents)?;
    Ok(connection.send(&ACK, &[], Wait::No)?)
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

impl fork::Caller for Caller {
    fn is_room(&self, forks: usize) -> bool {
        fork::has_descriptors(forks)
    }

    fn acknowledge(&self) {
        acknowledge(&self.connection);
    }

    fn has_ended(&self, patience: Duration) -> bool {
        has_ended(&self.connection, patience)
    }
}

/// Start the server's thread.
///
/// # Errors
/// There is no thread, or no descriptor.
pub fn start(
    run: &Arc<Run>,
    listeners: Listeners,
    stop: &Arc<EventFd>,
) -> std::io::Result<Weak<Connections>> {
    let connections = Arc::new(Connections::new(Arc::clone(stop))?);
    let known = Arc::downgrade(&connections);
    for (number, listener) in listeners.doors().into_iter().enumerate() {
        connections.open(listener, number as u64)?;
    }
    let run = Arc::clone(run);
    // Hurry: until a process is known it grows unseen.
    threads::try_spawn_hurried("agents", move || {
        listen(&run, &listeners, &connections);
    })?;
    Ok(known)
}
