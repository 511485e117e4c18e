//! The guardian: a process that outlives a killed pager and keeps programs from reading memory that the pager held.
//!
//! When the last copy of a userfaultfd closes, the kernel fills every hole of that memory with zeros. An agent holds a
//! copy and dies with the pager, but a child of a bare clone has no agent. So the guardian is a child process of the
//! pager's that shares its descriptor table (CLONE_FILES). Whatever the pager opens or gets from a fork event, the
//! guardian holds from the same moment on. When the pager is killed, nothing closes.
//!
//! The guardian then closes everything but userfaultfds and listeners of seccomp filters. That makes the agents stop
//! their processes. The guardian kills the processes that have no agent, and closes each userfaultfd only when the
//! memory behind it is gone. Meanwhile a thread that touches a hole waits for ever. So does one that makes a trapped
//! call: without a listener that call would fail with ENOSYS.
//!
//! When no such memory is left, processes may still have the filter: those that the pager has let go of, and those that
//! never had an agent. A filter cannot be taken off. So the guardian lets their calls run as they are, until the last
//! of these processes has ended. This is also how a pager leaves processes alive that it has brought everything back to
//! (`Guardian::stay`).
//!
//! While the pager lives the guardian does nothing: opening or closing a descriptor would do so for both. It has no
//! thread, and no memory of its own beyond a few copied pages. It has a session of its own, so that no signal to the
//! job reaches it. Its exit signal is 0, so `wait` does not see it and it is not one of the run's processes. From its
//! beginning it is confined as the pager is later (`confinement.rs`).
//!
//! Unsafe is needed here because no safe call makes such a child, and because descriptors are owned that no object of
//! this process has opened.

use std::collections::HashSet;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::confinement::{self, Reach};
use crate::eventfd::{PollFd, PollFlags, poll};
use crate::kind::Kind;
use crate::process::PidFd;
use crate::process::procfs;
use crate::ring::RING_NAME;
use crate::seccomp::Listener;
use crate::taken;
use crate::uffd::Userfaultfd;

/// How long agents have to stop their processes before the guardian looks for processes without an agent.
const GRACE: Duration = Duration::from_millis(100);
/// How often the guardian looks whether the processes are gone: at first, and after `LOOKS` looks. So a process that
/// cannot be killed because it waits for a device costs little.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOKS: u32 = 500;
const LOOK_EVERY_LATER: Duration = Duration::from_secs(1);
/// How long the last userfaultfds may take to close, and how often that is looked at.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
const CLOSE_PACE: Duration = Duration::from_micros(200);
const SOCKET_LINK: &str = "socket:";

/// The guardian of this process. Dropping it ends it.
#[derive(Debug)]
pub struct Guardian {
    pid: libc::pid_t,
    /// Names this process. The guardian waits for it by the same descriptor number.
    _own: PidFd,
}

impl Guardian {
    /// Starts the guardian. Call it while this process has one thread, with all signals blocked.
    ///
    /// # Errors
    /// What the kernel said: no process or no descriptor is to be had.
    pub fn start() -> io::Result<Guardian> {
        let own = PidFd::open(std::process::id())?;
        taken::share()?;
        // SAFETY: this process has one thread, so every lock in the child's copy of the memory is as this thread left
        // it. The child never returns from `guard`. Only the bare call can share descriptors and set the exit signal 0.
        let pid = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_FILES, 0, 0, 0, 0) };
        if pid == 0 {
            guard(own)
        }
        let pid = libc::pid_t::try_from(pid).unwrap_or(-1);
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        procfs::leave_out(Some(pid.unsigned_abs()));
        Ok(Guardian { pid, _own: own })
    }

    /// Leaves the guardian behind when this process ends, for processes that live on. Call it last, when nothing opens
    /// a userfaultfd any more. The guardian stops the processes behind those that are open, so this waits until none
    /// is: other threads may be closing the last ones. It does not wait for longer than 5 s.
    pub fn stay(self) {
        let since = Instant::now();
        while has_userfaultfds() && since.elapsed() < CLOSE_PATIENCE {
            std::thread::sleep(CLOSE_PACE);
        }
        // Closing the descriptor that names this process would close the guardian's too.
        let _ = ManuallyDrop::new(self);
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        procfs::leave_out(None);
        // SAFETY: the pid is that of a child for which nobody else waits, so it names no other process.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            while libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
}

/// Body of the guardian.
fn guard(pager: PidFd) -> ! {
    // SAFETY: the calls change only this process, and the names are C strings. It may live long, so it leaves the
    // directory, which somebody may want to unmount.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"vswap-guard".as_ptr());
    }
    // It guards without, too, and the pager has said already that there is no filter.
    let _ = confinement::confine(Reach::Machine);
    while !matches!(pager.exited(None), Ok(true)) {}
    // From here on the table is the guardian's alone. It may be full, so this makes room for the look at it.
    drop(pager);
    let table = Table::of_this_process();
    table.close_the_rest();
    let listeners = stop_all(table);
    let_calls_through(listeners);
    // SAFETY: ends the process without running what the pager has registered for its own end.
    unsafe { libc::_exit(0) }
}

/// Kills processes without an agent, again and again, until no memory is left that somebody could read. Returns the
/// listeners.
fn stop_all(mut table: Table) -> Vec<Listener> {
    let mut looks = 0;
    if !table.userfaultfds.is_empty() {
        // Agents stop their processes themselves, and say why. Meanwhile nobody reads anything wrong: all userfaultfds
        // are open.
        std::thread::sleep(GRACE);
    }
    loop {
        table.userfaultfds.retain(|uffd| !uffd.is_gone());
        if table.userfaultfds.is_empty() {
            return table.listeners;
        }
        kill_marked(&table.marks);
        looks += 1;
        std::thread::sleep(if looks < LOOKS {
            LOOK_EVERY
        } else {
            LOOK_EVERY_LATER
        });
    }
}

/// Lets every call run as it is, until no process is left whose calls stop. Begins with the calls that the pager had
/// taken in when it was killed: those of processes that it had put nothing of out.
fn let_calls_through(mut listeners: Vec<Listener>) {
    listeners.iter().for_each(Listener::let_taken_through);
    while !listeners.is_empty() {
        let mut fds: Vec<PollFd<'_>> = listeners
            .iter()
            .map(|listener| PollFd::new(listener, PollFlags::IN))
            .collect();
        if poll(&mut fds, None).is_err() {
            // Memory is short. A call waits a little longer then.
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        let found: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let mut found = found.into_iter();
        listeners.retain(|listener| match found.next() {
            Some(events) if events.contains(PollFlags::IN) => {
                listener.let_through();
                true
            }
            Some(events) => !events.contains(PollFlags::HUP),
            None => true,
        });
    }
}

/// What the pager had open.
struct Table {
    userfaultfds: Vec<Userfaultfd>,
    listeners: Vec<Listener>,
    rest: Vec<RawFd>,
    /// Ring names, as they stand in the mappings of every process that descends by forks from one of the pager's
    /// agents.
    marks: HashSet<Vec<u8>>,
}

impl Table {
    fn of_this_process() -> Table {
        let mut table = Table {
            userfaultfds: Vec::new(),
            listeners: Vec::new(),
            rest: Vec::new(),
            marks: HashSet::new(),
        };
        for (fd, link) in descriptors() {
            // SAFETY: the pager owned the descriptor. It is gone with everything that it had in memory, so nobody else
            // closes it.
            let owned = || unsafe { OwnedFd::from_raw_fd(fd) };
            if link == Kind::Userfaultfd.link() {
                table.userfaultfds.push(Userfaultfd::from_fd(owned()));
                continue;
            }
            if link == Kind::Listener.link() {
                table.listeners.push(Listener::from_fd(owned()));
                continue;
            }
            if link.starts_with(SOCKET_LINK) {
                table.marks.extend(mark_of(fd));
            }
            table.rest.push(fd);
        }
        table
    }

    fn close_the_rest(&self) {
        for fd in &self.rest {
            // SAFETY: nothing in this process uses the descriptor any more. The directory that was listed is closed
            // already, and closing its number again does nothing, because nothing was opened since.
            unsafe { libc::close(*fd) };
        }
    }
}

/// The descriptors of this process, and what the kernel says that they are.
fn descriptors() -> Vec<(RawFd, String)> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    // Listed first, so that the directory is closed when they are looked at.
    let numbers: Vec<RawFd> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    let link = |fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let named = |fd| (fd, link(fd).to_string_lossy().into_owned());
    numbers.into_iter().map(named).collect()
}

/// Is any descriptor of this process a userfaultfd?
fn has_userfaultfds() -> bool {
    let is_one = |(_, link): &(RawFd, String)| *link == Kind::Userfaultfd.link();
    descriptors().iter().any(is_one)
}

/// The name of the rings whose agents have connected to this socket.
fn mark_of(fd: RawFd) -> Option<Vec<u8>> {
    // SAFETY: sockaddr_un is plain integers, so zeros are a value of it, and the call writes at most `length` bytes.
    let (address, length) = unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        let mut length = libc::socklen_t::try_from(size_of_val(&address)).ok()?;
        let pointer = (&raw mut address).cast();
        (libc::getsockname(fd, pointer, &raw mut length) == 0).then_some((address, length))?
    };
    let path_bytes = (length as usize).checked_sub(size_of::<libc::sa_family_t>())?;
    let path = address.sun_path.iter().take(path_bytes);
    let path = path.map(|byte| byte.to_ne_bytes()[0]);
    // An abstract name begins with a zero. Its listener has another socket at the same path.
    let path: Vec<u8> = path.take_while(|byte| *byte != 0).collect();
    let is_local = i32::from(address.sun_family) == libc::AF_UNIX;
    (is_local && !path.is_empty()).then(|| mark(&path))
}

/// Kills every process that descends by forks from one whose agent has connected to the socket `path`, with or without
/// an agent of its own. Not the caller, although a pager has the rings of its agents in its own memory too.
pub fn kill_callers(path: &Path) {
    kill_marked(&HashSet::from([mark(path.as_os_str().as_bytes())]));
}

fn mark(path: &[u8]) -> Vec<u8> {
    [
        format!("/memfd:{RING_NAME}").as_bytes(),
        path,
        b" (deleted)",
    ]
    .concat()
}

fn kill_marked(marks: &HashSet<Vec<u8>>) {
    let own = std::process::id();
    let processes = procfs::processes().unwrap_or_default();
    for process in processes.iter().filter(|process| process.pid != own) {
        // Opened before the mappings are read, so that what is killed is what was looked at.
        let Ok(target) = PidFd::open(process.pid) else {
            continue;
        };
        let maps = std::fs::read(format!("/proc/{}/maps", process.pid)).unwrap_or_default();
        if has_mark(&maps, marks) {
            // A process that may not be killed waits at its next hole.
            let _ = target.kill();
        }
    }
}

fn has_mark(maps: &[u8], marks: &HashSet<Vec<u8>>) -> bool {
    maps.split(|byte| *byte == b'\n').any(|line| {
        let path = line.iter().position(|byte| *byte == b'/');
        path.is_some_and(|at| marks.contains(&line[at..]))
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn processes_are_told_by_the_name_of_their_ring() {
        let (listener, _client);
        let dir = std::env::temp_dir().join(format!("vswap-guardian-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("agents.sock");
        listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let marks: HashSet<_> = [listener.as_raw_fd(), accepted.as_raw_fd()]
            .into_iter()
            .filter_map(mark_of)
            .collect();
        assert_eq!(marks.len(), 1);
        assert_eq!(mark_of(_client.as_raw_fd()), None, "a client has no name");
        let line = |path: &str| format!("7f00-7f01 rw-s 0 00:01 5    {path}\n").into_bytes();
        let own = format!("/memfd:{RING_NAME}{} (deleted)", path.display());
        assert!(has_mark(&line(&own), &marks));
        assert!(!has_mark(&line("/memfd:other (deleted)"), &marks));
        assert!(!has_mark(&line(&own.replace("agents", "others")), &marks));
    }
}
