//! Threads of other processes.

use std::ffi::{CStr, OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::kind::Kind;
use crate::looks;
use crate::machine::untagged;

/// An option of wait that rustix does not name: only for children and tracees of the calling thread (`__WNOTHREAD`).
pub const OWN_CHILDREN: u32 = libc::__WNOTHREAD.unsigned_abs();

/// The process that thread `tid` belongs to. None if the thread has gone.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = looks::read_text(&format!("/proc/{tid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// Does thread `tid` belong to process `pid` or to a child of it?
pub fn is_same_or_child(tid: u32, pid: u32) -> bool {
    let Ok(status) = looks::read_text(&format!("/proc/{tid}/status")) else {
        return false;
    };
    let names = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()) == Some(pid)
    };
    names("Tgid:") || names("PPid:")
}

/// Number of seccomp filters of thread `tid`. None if the thread has gone or the kernel does not tell.
pub fn filters_of(tid: i32) -> Option<u32> {
    let status = looks::read_text(&format!("/proc/{tid}/status")).ok()?;
    let line = |line: &str| line.strip_prefix("Seccomp_filters:")?.trim().parse().ok();
    status.lines().find_map(line)
}

/// A thread of process `pid` with this name.
pub fn named(pid: u32, name: &CStr) -> Option<u32> {
    let directory = format!("/proc/{pid}/task");
    let is_named = |tid: &OsString| {
        let path = Path::new(&directory).join(tid).join("comm");
        fs::read(path).is_ok_and(|comm| comm.strip_suffix(b"\n") == Some(name.to_bytes()))
    };
    let threads = looks::names(&directory).ok()?;
    let tid = threads.into_iter().find(|tid| is_named(tid))?;
    tid.to_str()?.parse().ok()
}

/// The thread that traces thread `tid`, as a debugger does. None if nobody does, or the thread has gone.
pub fn tracer_of(tid: u32) -> Option<u32> {
    let status = looks::read_text(&format!("/proc/{tid}/status")).ok()?;
    let line = |line: &str| line.strip_prefix("TracerPid:")?.trim().parse().ok();
    status.lines().find_map(line).filter(|tracer| *tracer != 0)
}

/// The processor that thread `tid` runs on or ran on last. None if the thread has gone.
pub fn processor_of(tid: u32) -> Option<usize> {
    let stat = looks::read_text(&format!("/proc/{tid}/stat")).ok()?;
    // Field 39. The second field, the name, may hold anything, so count behind its closing bracket.
    let behind_name = stat.rsplit_once(')')?.1;
    behind_name.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// What a thread does, as it is seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// It runs or would like to, in the program or in a system call.
    Running,
    /// It waits in this system call.
    Call(i32),
    /// It waits, and not in a system call.
    Elsewhere,
}

/// What thread `tid` does. None if it has gone, or may not be looked into.
pub fn is_at(tid: u32) -> Option<At> {
    let text = looks::read_text(&format!("/proc/{tid}/syscall")).ok()?;
    let first = text.split_ascii_whitespace().next()?;
    if first == "running" {
        return Some(At::Running);
    }
    let number = first.parse::<i32>().ok()?;
    Some(if number < 0 {
        At::Elsewhere
    } else {
        At::Call(number)
    })
}

/// A system call in which a thread of this process waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallUnderWay {
    /// Its number.
    pub number: i64,
    /// The thread's stack pointer.
    pub stack: u64,
    /// Where the program goes on after it.
    pub code: u64,
}

impl CallUnderWay {
    /// Its name, if it is one of those that usually get memory of a program, and otherwise its number.
    pub fn name(&self) -> String {
        let name = match self.number {
            libc::SYS_read => "read",
            libc::SYS_write => "write",
            libc::SYS_pread64 => "pread",
            libc::SYS_pwrite64 => "pwrite",
            libc::SYS_readv => "readv",
            libc::SYS_writev => "writev",
            libc::SYS_preadv => "preadv",
            libc::SYS_pwritev => "pwritev",
            libc::SYS_sendto => "send",
            libc::SYS_recvfrom => "recv",
            libc::SYS_sendmsg => "sendmsg",
            libc::SYS_recvmsg => "recvmsg",
            libc::SYS_ioctl => "ioctl",
            libc::SYS_futex => "futex",
            libc::SYS_getrandom => "getrandom",
            _ => return format!("system call {}", self.number),
        };
        name.to_owned()
    }
}

/// The system call in which thread `tid` of this process waits. None if it waits in none, does not wait, or has gone.
/// Allocates nothing.
pub fn call_under_way(tid: u32) -> Option<CallUnderWay> {
    let (mut path, mut text) = ([0; 40], [0; 256]);
    write!(&mut path[..], "/proc/self/task/{tid}/syscall").ok()?;
    let path = path.split(|byte| *byte == 0).next()?;
    let mut file = fs::File::open(OsStr::from_bytes(path)).ok()?;
    let bytes = file.read(&mut text).ok()?;
    parse_call(str::from_utf8(&text[..bytes]).ok()?)
}

/// The number, six arguments, the stack pointer and the place in the code. Whoever waits elsewhere has -1, and no
/// arguments.
fn parse_call(text: &str) -> Option<CallUnderWay> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok().filter(|number| *number >= 0)?;
    let address = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let stack = words.nth(6).and_then(address)?;
    let code = words.next().and_then(address)?;
    Some(CallUnderWay {
        number,
        stack,
        code,
    })
}

/// How long thread `tid` has had a processor. None if it has gone, or the kernel does not count that.
pub fn time_on_processors(tid: u32) -> Option<Duration> {
    let text = looks::read_text(&format!("/proc/{tid}/schedstat")).ok()?;
    let nanos = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// How long a thread has run so far, and how long it was ready to run and had no processor. None if nobody can tell.
pub fn ran_and_queued(tid: u32) -> Option<(Duration, Duration)> {
    let text = looks::read_text(&format!("/proc/{tid}/schedstat")).ok()?;
    let mut figures = text.split_whitespace();
    let mut next = || Some(Duration::from_nanos(figures.next()?.parse().ok()?));
    Some((next()?, next()?))
}

/// Does a process have an io_uring? Also false if its descriptors cannot be seen.
pub fn has_ring(pid: u32) -> bool {
    let directory = format!("/proc/{pid}/fd");
    let Ok(descriptors) = looks::names(&directory) else {
        return false;
    };
    descriptors.into_iter().any(|descriptor| {
        let link = fs::read_link(Path::new(&directory).join(descriptor));
        link.is_ok_and(|link| Kind::IoUring.is_link(&link))
    })
}

/// Will thread `tid` never touch memory again? True if it has gone, and for a zombie.
pub fn has_ended(tid: u32) -> bool {
    let Ok(stat) = looks::read_text(&format!("/proc/{tid}/stat")) else {
        return true;
    };
    // Field 3. The second field, the name, may hold anything.
    let state = stat.rsplit_once(')').map(|(_, behind)| behind.trim_start());
    state.is_none_or(|state| state.starts_with(['Z', 'X']))
}

/// Address of the list of robust mutexes that the kernel walks when thread `tid` ends. None if there is no such list,
/// the thread has gone, or this process may not ask. Without a tag.
pub fn robust_list(tid: u32) -> Option<u64> {
    let (mut head, mut bytes) = (0_u64, 0_usize);
    let tid = i32::try_from(tid).ok()?;
    // SAFETY: the kernel writes one word to each of the two places. rustix does not have this call.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            tid,
            &raw mut head,
            &raw mut bytes,
        )
    };
    (failed == 0 && head != 0 && bytes == ROBUST_LIST_HEAD_BYTES).then_some(untagged(head))
}

/// First entry, offset of the futex words in entries, entry under way.
const ROBUST_LIST_HEAD_BYTES: usize = 3 * size_of::<u64>();

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_call_under_way_says_where_it_was_made() {
        assert_eq!(parse_call("running\n"), None);
        assert_eq!(parse_call("-1 0x7ffc0010 0x55d0\n"), None);
        let text = "1 0x3 0x7f00 0x1000 0x0 0x0 0x22 0x7ffc0010 0x7f55d0\n";
        let call = CallUnderWay {
            number: 1,
            stack: 0x7ffc_0010,
            code: 0x7f_55d0,
        };
        assert_eq!(parse_call(text), Some(call));
        let (tell, told) = mpsc::channel();
        let (stop, wait) = mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            tell.send(own.cast_unsigned()).unwrap();
            let _ = wait.recv();
        });
        let tid = told.recv().unwrap();
        let begun = Instant::now();
        let futex = libc::SYS_futex;
        while call_under_way(tid).is_none_or(|call| call.number != futex) {
            assert!(begun.elapsed() < Duration::from_secs(10), "it never waits");
            std::thread::yield_now();
        }
        drop(stop);
        waiting.join().unwrap();
        assert_eq!(call_under_way(tid), None, "it has ended");
    }

    #[test]
    fn a_thread_belongs_to_its_process() {
        let waiting = std::thread::spawn(|| {
            let own = rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned();
            process_of(own)
        });
        assert_eq!(waiting.join().ok().flatten(), Some(std::process::id()));
        assert_eq!(process_of(u32::MAX / 2), None);
        let own = std::process::id();
        assert!(filters_of(own.cast_signed()).is_some());
        assert_eq!(filters_of(i32::MAX), None);
        assert!(is_same_or_child(own, own));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert!(is_same_or_child(child.id(), own));
        assert!(!is_same_or_child(own, child.id()));
        child.wait().unwrap();
    }

    #[test]
    fn a_thread_that_may_run_on_one_processor_runs_there() {
        let Some(&cpu) = crate::process::cpu::permitted().last() else {
            return;
        };
        let pinned = std::thread::spawn(move || {
            crate::process::cpu::set_affinity(&[cpu]).unwrap();
            processor_of(
                rustix::thread::gettid()
                    .as_raw_nonzero()
                    .get()
                    .cast_unsigned(),
            )
        });
        assert_eq!(pinned.join().unwrap(), Some(cpu));
        assert_eq!(processor_of(u32::MAX / 2), None);
    }

    #[test]
    fn a_thread_is_listed_and_has_a_robust_list_until_it_ends() {
        let (says, said) = mpsc::channel();
        let (lets_go, let_go) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            says.send(own.cast_unsigned()).unwrap();
            let _ = let_go.recv();
        });
        let tid = said.recv().unwrap();
        assert!(
            crate::process::procfs::threads(std::process::id())
                .unwrap()
                .contains(&tid)
        );
        assert!(!has_ended(tid));
        assert!(robust_list(tid).is_some());
        lets_go.send(()).unwrap();
        thread.join().unwrap();
        // Joining waits for the word that the kernel clears, which happens a moment before the end.
        while !has_ended(tid) {
            std::thread::yield_now();
        }
        assert_eq!(robust_list(u32::MAX / 2), None);
        assert!(has_ended(u32::MAX / 2));
    }

    #[test]
    fn a_thread_is_seen_to_wait_and_to_run() {
        let (told, tid) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            told.send(own.unsigned_abs()).expect("a listener");
            may_go.recv().expect("leave to go");
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(20) {}
        });
        let tid = tid.recv().expect("its id");
        let futex = i32::try_from(libc::SYS_futex).expect("a small number");
        while is_at(tid) != Some(At::Call(futex)) {
            std::thread::yield_now();
        }
        let before = time_on_processors(tid).expect("a kernel that counts it");
        go.send(()).expect("a listener");
        while time_on_processors(tid).is_some_and(|now| now < before + Duration::from_millis(1)) {
            std::thread::yield_now();
        }
        thread.join().expect("no panic");
        assert_eq!(is_at(tid), None);
    }
}
