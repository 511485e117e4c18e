//! Threads of other processes.

use std::ffi::{CStr, OsString};
use std::fs;
use std::mem::size_of;
use std::path::Path;

use crate::kind::Kind;
use crate::looks;

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
/// the thread has gone, or this process may not ask.
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
    (failed == 0 && head != 0 && bytes == ROBUST_LIST_HEAD_BYTES).then_some(head)
}

/// First entry, offset of the futex words in entries, entry under way.
const ROBUST_LIST_HEAD_BYTES: usize = 3 * size_of::<u64>();

#[cfg(test)]
mod tests {
    use super::*;

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
        let (says, said) = std::sync::mpsc::channel();
        let (lets_go, let_go) = std::sync::mpsc::channel::<()>();
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
}
