//! The program image that runs in a process: which one it is, and whether an agent is in it or will come by itself.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::looks;
use crate::memory::maps::{self, Name};
use crate::patience;
use crate::process::elf::{self, Kind};
use crate::process::task;
use crate::ring::{AGENT_NAME, RING_NAME, SOCKET_ENV};

/// How long a reading of a program's memory may take. The one thread that supervises a run waits meanwhile. What is in
/// swap comes back within this time as a rule, and is looked for again.
const READ_PATIENCE: Duration = Duration::from_millis(100);

/// Names the image of a process: another one after each exec, because the kernel puts the stack elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    start_ticks: u64,
    stack: u64,
}

/// The image's mark. None of a process that has ended, or is in the middle of an exec: its new environment cannot be
/// read yet, and would be taken for an empty one.
pub fn mark(pid: u32) -> Option<Mark> {
    let stat = looks::read_text(&format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything, the state is the first field.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X" | "x") {
        return None;
    }
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let (start_ticks, code, stack) = (number(19)?, number(23)?, number(25)?);
    // The end of the environment is written last. Who may not know sees 1 for the code, and 0 for the others.
    if number(48)? == 0 && code != 1 {
        return None;
    }
    Some(Mark { start_ticks, stack })
}

/// Has the process an agent that works? One that it has a copy of, after a fork, does not count.
pub fn has_agent(pid: u32) -> bool {
    task::named(pid, AGENT_NAME).is_some()
}

/// Did the process come by a fork from one that has an agent, or has it one? The ring's file is in its mappings then.
pub fn has_ring_of_agent(pid: u32) -> bool {
    let ring = format!("/memfd:{RING_NAME}");
    let mut text = Vec::new();
    let read = maps::read(pid, &mut text);
    let is_ring =
        |name: &Name<'_>| matches!(name, Name::File(name) if name.starts_with(ring.as_bytes()));
    read.is_ok()
        && maps::parse(&text)
            .filter_map(Result::ok)
            .any(|mapping| is_ring(&mapping.name))
}

/// Is memory of the process registered with a userfaultfd? It stays so in the child of a fork that the pager heard of.
/// True also where nobody can tell.
pub fn is_watched(pid: u32) -> bool {
    // Registered for missing pages, write protection, minor faults.
    maps::flagged(pid, &["um", "uw", "ui"]).map_or(true, |watched| !watched.is_empty())
}

/// Will the loader of the process put `agent` into it? False also where `/proc` does not tell. None if the memory of
/// the process cannot be read in time.
pub fn loads_agent(pid: u32, agent: &Path) -> Option<bool> {
    let program = elf::inspect(Path::new(&format!("/proc/{pid}/exe")).as_os_str(), None);
    let takes_preload = program.is_ok_and(
        |program| matches!(&program.kind, Kind::Dynamic { loader } if !elf::is_musl(loader)),
    );
    if !takes_preload || is_secure(pid) {
        return Some(false);
    }
    asks_for_agent(pid, agent)
}

/// Does the environment that the image was started with ask for the agent? It lies in the memory of the process. None
/// if that cannot be read in time.
fn asks_for_agent(pid: u32, agent: &Path) -> Option<bool> {
    let read = move || fs::read(format!("/proc/{pid}/environ"));
    let Ok(environment) = patience::within(READ_PATIENCE, read)? else {
        return Some(false);
    };
    let agent = agent.as_os_str().as_encoded_bytes();
    let variables = || environment.split(|byte| *byte == 0);
    let has_socket = variables().any(|variable| {
        let value = variable.strip_prefix(SOCKET_ENV.as_bytes());
        value.is_some_and(|value| value.starts_with(b"="))
    });
    let preload = variables().find_map(|variable| variable.strip_prefix(b"LD_PRELOAD="));
    let mut libraries = preload
        .unwrap_or_default()
        .split(|byte| matches!(byte, b':' | b' '));
    Some(has_socket && libraries.any(|library| library == agent))
}

/// Has the image gained rights when it started, so that its loader ignores preloads (AT_SECURE)?
fn is_secure(pid: u32) -> bool {
    const AT_SECURE: u64 = 23;
    let Ok(vector) = fs::read(format!("/proc/{pid}/auxv")) else {
        return true;
    };
    let words: Vec<u64> = vector
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
        .collect();
    words
        .chunks_exact(2)
        .any(|pair| pair[0] == AT_SECURE && pair[1] != 0)
}

/// May two processes share one memory, as a child of vfork shares its parent's? If the kernel does not say, those of
/// one image may.
pub fn may_share_memory(one: u32, other: u32) -> bool {
    share_memory(one, other).unwrap_or_else(|_| {
        let stack = |pid| mark(pid).map(|mark| mark.stack);
        let (one, other) = (stack(one), stack(other));
        one.is_some() && one == other
    })
}

/// Do two processes share one memory?
///
/// # Errors
/// What kcmp says: ENOSYS from a kernel without it, EPERM, ESRCH.
fn share_memory(one: u32, other: u32) -> io::Result<bool> {
    const KCMP_VM: libc::c_int = 1;
    let [one, other] = [one, other].map(u32::cast_signed);
    // SAFETY: the call takes numbers alone. No safe wrapper of it exists in rustix.
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// A child that is ended with its test.
    struct Running(Child);

    impl Running {
        fn start(command: &mut Command) -> Running {
            let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
            Running(command.stderr(Stdio::null()).spawn().unwrap())
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        let since = Instant::now();
        while !holds() {
            assert!(
                since.elapsed() < Duration::from_secs(20),
                "waiting until {what}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_exec_changes_the_mark_and_the_end_takes_it_away() {
        let mut child = Running::start(Command::new("sh").args(["-c", "read line; exec cat"]));
        let pid = child.pid();
        // An emulator returns from the start while its own image still is in the child. The name comes after the image.
        let name = || fs::read_to_string(format!("/proc/{pid}/comm"));
        until("it is the shell", || {
            name().is_ok_and(|name| name == "sh\n")
        });
        let first = mark(pid).unwrap();
        assert_eq!(mark(pid), Some(first));
        assert_ne!(mark(std::process::id()), Some(first));
        child.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        until("it is cat", || mark(pid).is_some_and(|now| now != first));
        let second = mark(pid).unwrap();
        assert_eq!(mark(pid), Some(second));
        // It ends, and nobody waits for it yet.
        drop(child.0.stdin.take());
        until("it has ended", || mark(pid).is_none());
    }

    #[test]
    fn nobody_here_has_an_agent() {
        let own = std::process::id();
        assert!(!has_agent(own) && !has_ring_of_agent(own));
        assert!(!has_agent(u32::MAX) && !has_ring_of_agent(u32::MAX));
    }

    #[test]
    fn memory_is_shared_with_oneself_and_with_no_other() {
        let own = std::process::id();
        let child = Running::start(&mut Command::new("cat"));
        match share_memory(own, own) {
            // The kernel can be built without kcmp.
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => return,
            shared => assert!(shared.unwrap()),
        }
        assert!(!share_memory(own, child.pid()).unwrap());
        assert!(may_share_memory(own, own) && !may_share_memory(own, child.pid()));
        assert!(share_memory(own, u32::MAX).is_err());
    }

    #[test]
    fn the_environment_says_whether_the_agent_comes_by_itself() {
        const AGENT: &str = "/no/such/agent.so";
        let loads = |socket: Option<&str>, preload: Option<&str>| {
            let mut command = Command::new("cat");
            let variables = [(SOCKET_ENV, socket), ("LD_PRELOAD", preload)];
            for (name, value) in variables {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            let child = Running::start(&mut command);
            until("its image is whole", || mark(child.pid()).is_some());
            loads_agent(child.pid(), Path::new(AGENT)) == Some(true)
        };
        let others = format!("/no/such/first.so:{AGENT}");
        assert!(loads(Some("/socket"), Some(AGENT)));
        assert!(loads(Some("/socket"), Some(&others)));
        assert!(!loads(None, Some(AGENT)));
        assert!(!loads(Some("/socket"), None));
        assert!(!loads(Some("/socket"), Some("/no/such/agent.so.1")));
        assert_eq!(loads_agent(u32::MAX, Path::new(AGENT)), Some(false));
    }
}
