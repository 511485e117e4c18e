//! The guardian: a process that outlives a pager that is killed, and lets no program read what the pager had of it.
//!
//! When the last copy of a userfaultfd closes, the kernel fills every hole of that memory with zeros. An agent holds a
//! copy and dies with the pager; but a child of a bare clone has no agent. So the guardian is a child of the pager's
//! process that shares its descriptor table (CLONE_FILES): whatever the pager opens or gets from a fork event, the
//! guardian holds from the same moment on, and when the pager is killed nothing closes. It then closes everything but
//! userfaultfds and listeners of seccomp filters, whereupon the agents stop their processes, kills what has no agent,
//! and lets go of each userfaultfd only when the memory behind it is gone. A thread that touches a hole meanwhile waits
//! for ever, and so does one that makes a trapped call: where nobody listens it would fail with ENOSYS.
//!
//! While the pager lives the guardian does nothing: one that opened or closed a descriptor would do so for both. It has
//! no thread and no memory of its own beyond a few copied pages. It has a session of its own, so that no signal to the
//! job reaches it, and `wait` does not see it (its exit signal is 0), so that it is none of the run's processes.

use std::collections::HashSet;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::process::PidFd;
use crate::process::procfs;
use crate::ring::RING_NAME;
use crate::uffd::Userfaultfd;

/// How long agents have to stop their processes before those are looked for that have none.
const GRACE: Duration = Duration::from_millis(100);
/// How often the guardian looks whether the processes are gone: at first, and after so many looks. One that cannot be
/// killed, because it waits for a device, costs little.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOKS: u32 = 500;
const LOOK_EVERY_LATER: Duration = Duration::from_secs(1);
/// What the kernel calls a userfaultfd.
const USERFAULTFD_LINK: &str = "anon_inode:[userfaultfd]";
/// And the listener of a seccomp filter.
const LISTENER_LINK: &str = "anon_inode:seccomp notify";
const SOCKET_LINK: &str = "socket:";

/// The guardian of this process. Dropping it ends it.
#[derive(Debug)]
pub struct Guardian {
    pid: libc::pid_t,
    /// Names this process; the guardian waits for it, by the same number.
    _own: PidFd,
}

impl Guardian {
    /// Starts it. To be called while this process has one thread, with all signals blocked.
    ///
    /// # Errors
    /// What the kernel said: no process or no descriptor is to be had.
    pub fn start() -> io::Result<Guardian> {
        let own = PidFd::open(std::process::id())?;
        // SAFETY: the child has a copy of this process's memory and of its only thread, so every lock in it is as this
        // thread has left it; it never returns from `guard`.
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
}

impl Drop for Guardian {
    fn drop(&mut self) {
        procfs::leave_out(None);
        // SAFETY: the pid is that of a child that nobody else waits for, so it names no other process.
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
    // SAFETY: both calls concern this process alone; the name is a C string.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"vswap-guard".as_ptr());
    }
    while !matches!(pager.exited(None), Ok(true)) {}
    // From here on the table is the guardian's alone. It may be full: this makes room for the look at it.
    drop(pager);
    let table = Table::of_this_process();
    table.close_the_rest();
    stop_all(table);
    // SAFETY: ends the process without running what the pager registered for its own end.
    unsafe { libc::_exit(0) }
}

/// Kills what has no agent, again and again, until no memory is left that somebody could read.
fn stop_all(mut table: Table) {
    let mut looks = 0;
    // Agents stop their processes themselves, and say why. Nobody reads anything wrong meanwhile: all userfaultfds are
    // open.
    std::thread::sleep(GRACE);
    loop {
        table.userfaultfds.retain(|uffd| !uffd.is_gone());
        if table.userfaultfds.is_empty() {
            return;
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

/// What the pager had open.
struct Table {
    userfaultfds: Vec<Userfaultfd>,
    rest: Vec<RawFd>,
    /// What the mappings of all processes have in them that came of the pager's agents by forks.
    marks: HashSet<Vec<u8>>,
}

impl Table {
    fn of_this_process() -> Table {
        let mut table = Table {
            userfaultfds: Vec::new(),
            rest: Vec::new(),
            marks: HashSet::new(),
        };
        let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
        let numbers: Vec<RawFd> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        for fd in numbers {
            let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
            let link = link.to_string_lossy();
            if link == USERFAULTFD_LINK {
                // SAFETY: the pager, which owned it, is gone with all that it had in memory.
                let owned = unsafe { OwnedFd::from_raw_fd(fd) };
                table.userfaultfds.push(Userfaultfd::from_fd(owned));
                continue;
            }
            // Open until the guardian ends.
            if link == LISTENER_LINK {
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
            // SAFETY: nothing in this process uses it any more; the directory that was listed is closed already, and
            // closing a number twice before anything was opened does nothing.
            unsafe { libc::close(*fd) };
        }
    }
}

/// The name that the rings of those have who called at this socket.
fn mark_of(fd: RawFd) -> Option<Vec<u8>> {
    // SAFETY: the address is a plain structure that the call fills at most to the given length.
    let (address, length) = unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        let mut length = libc::socklen_t::try_from(size_of_val(&address)).ok()?;
        let pointer = (&raw mut address).cast();
        (libc::getsockname(fd, pointer, &raw mut length) == 0).then_some((address, length))?
    };
    let path_bytes = (length as usize).checked_sub(size_of::<libc::sa_family_t>())?;
    let path = address.sun_path.iter().take(path_bytes);
    let path = path.map(|byte| byte.cast_unsigned());
    // An abstract name begins with a zero; its listener has another at the same path.
    let path: Vec<u8> = path.take_while(|byte| *byte != 0).collect();
    let is_local = i32::from(address.sun_family) == libc::AF_UNIX;
    (is_local && !path.is_empty()).then(|| mark(&path))
}

/// Kills every process that came by forks of one whose agent has called at the socket `path`, with or without an agent
/// of its own.
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
    for process in procfs::processes().unwrap_or_default() {
        // Before its mappings are read: what is killed is what was looked at.
        let Ok(target) = PidFd::open(process.pid) else {
            continue;
        };
        let maps = std::fs::read(format!("/proc/{}/maps", process.pid)).unwrap_or_default();
        if has_mark(&maps, marks) {
            // One that may not be killed waits at its next hole.
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
