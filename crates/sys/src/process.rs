//! Other processes: descriptors that name them without races, signals, and reading their memory.
//!
//! Reading takes pages that are present. A page that is missing under a userfaultfd makes the read wait until somebody
//! answers the fault. So a pager never reads memory whose faults it would have to answer itself.

pub mod cgroup;
pub mod cpu;
pub mod elf;
mod family;
pub mod memory_file;
pub mod procfs;
pub mod task;
pub mod image;
pub mod pressure;
pub mod waiting;
#[cfg(feature = "supervisor")]
pub mod signals;
#[cfg(feature = "supervisor")]
pub mod spawn;
#[cfg(feature = "supervisor")]
pub mod turns;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub use self::family::kill_family;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Signal, getrlimit};

/// Spans that one `read_memory` may name on each side (the kernel's UIO_MAXIOV).
pub const SPANS_MAX: usize = 1024;

/// A descriptor of one process. It never names another process, even after its pid was reused.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PidFd {
    /// Opens `pid`. The process may be a zombie.
    ///
    /// # Errors
    /// ESRCH when there is none, EINVAL when `pid` names a thread that leads no process.
    pub fn open(pid: u32) -> Result<PidFd, Errno> {
        Ok(PidFd {
            fd: rustix::process::pidfd_open(process(pid)?, PidfdFlags::empty())?,
        })
    }

    /// Takes a pidfd that the kernel has made.
    pub fn from_fd(fd: OwnedFd) -> PidFd {
        PidFd { fd }
    }

    /// Opens the thread `tid`. It may be a thread that leads no process, and may have ended but not been waited for.
    /// `exited` is then about this thread alone.
    ///
    /// # Errors
    /// ESRCH when there is none; EINVAL before Linux 6.9.
    pub fn open_thread(tid: u32) -> Result<PidFd, Errno> {
        /// `PIDFD_THREAD`.
        const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0o200);
        Ok(PidFd {
            fd: rustix::process::pidfd_open(process(tid)?, THREAD)?,
        })
    }

    /// How an opened thread has ended, once it is gone. None before Linux 6.15.
    pub fn exit_code(&self) -> Option<ExitCode> {
        let mut info = PidfdInfo {
            mask: PidfdInfo::EXIT,
            ..PidfdInfo::default()
        };
        // SAFETY: the ioctl reads and writes one pidfd_info, whose size is part of its number. rustix does not have
        // this ioctl.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), PidfdInfo::GET, &raw mut info) };
        let known = done == 0 && info.mask & PidfdInfo::EXIT != 0;
        known.then(|| ExitCode::of(info.exit_code.cast_unsigned()))
    }

    /// Has the process exited (reaped or not)? Waits up to `timeout` for it (None = for ever). A signal to this thread
    /// ends the wait early with `false`.
    ///
    /// # Errors
    /// The errno of poll.
    pub fn exited(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        Ok(crate::eventfd::poll(&mut fds, timeout)? > 0)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// ESRCH when it has been reaped, EPERM.
    pub fn signal(&self, signal: Signal) -> Result<(), Errno> {
        rustix::process::pidfd_send_signal(&self.fd, signal)
    }

    /// SIGKILL. A process that is already gone counts as killed.
    ///
    /// # Errors
    /// EPERM.
    pub fn kill(&self) -> Result<(), Errno> {
        gone_is_killed(self.signal(Signal::KILL))
    }
}

/// Could this process have `count` more descriptors now? Counts instead of trying, because a try would hold all of them
/// for a moment in which others find none. Does not check what the whole machine has left.
pub fn could_have_descriptors(count: usize) -> bool {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return true;
    };
    // The kernel counts (since Linux 6.2), and takes no descriptor for it. Numbers above the limit, which was higher
    // then, count too.
    let used = std::fs::metadata("/proc/self/fd").map_or(u64::MAX, |directory| directory.len());
    used.saturating_add(count as u64) <= limit
}

/// The first version of `pidfd_info`.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    /// Process, thread and user ids, which are not asked for.
    ids: [u32; 11],
    exit_code: i32,
}

const _: () = assert!(size_of::<PidfdInfo>() == 64);

impl PidfdInfo {
    /// `PIDFD_INFO_EXIT`.
    const EXIT: u64 = 1 << 3;
    /// `PIDFD_GET_INFO`: `_IOWR(0xff, 11, struct pidfd_info)`.
    const GET: libc::c_ulong = 0xc040_ff0b;
}

/// How a thread has ended: the signal that ended it, or 0, in the lower byte, and in the upper one the status that it
/// gave to exit. This is the kernel's own code without the flag of a core file. A thread ends by a signal alone if a
/// seccomp filter kills it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitCode(u16);

impl ExitCode {
    /// From the code that the kernel keeps.
    pub(crate) fn of(code: u32) -> ExitCode {
        const CORE: u8 = 0x80;
        let [signal, status, ..] = code.to_le_bytes();
        ExitCode(u16::from_le_bytes([signal & !CORE, status]))
    }

    /// Of a thread that gives `status` to exit, of which the kernel keeps the low byte.
    pub fn of_status(status: u64) -> ExitCode {
        let [status, ..] = status.to_le_bytes();
        ExitCode(u16::from_le_bytes([0, status]))
    }

    /// Signal and status.
    pub fn to_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }
}

impl From<ExitCode> for u64 {
    fn from(code: ExitCode) -> u64 {
        code.0.into()
    }
}

/// SIGKILL by pid. A process that is already gone counts as killed. `PidFd::kill` is free of the race with pid reuse.
///
/// # Errors
/// EPERM; ESRCH for pid 0.
pub fn kill(pid: u32) -> Result<(), Errno> {
    gone_is_killed(rustix::process::kill_process(process(pid)?, Signal::KILL))
}

fn gone_is_killed(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::SRCH) => Ok(()),
        other => other,
    }
}

/// Fills `words` from `address` on in the memory of `pid`. False if not all of it can be read.
pub fn read_words(pid: u32, address: u64, words: &mut [u64]) -> bool {
    let bytes = size_of_val(words);
    let local = [LocalSpan {
        pointer: words.as_mut_ptr().cast(),
        bytes,
    }];
    // SAFETY: the local span is `words`, which is borrowed for writing during the call and takes any bytes.
    unsafe { read_memory(pid, &[RemoteSpan { address, bytes }], &local) == Ok(bytes) }
}

/// The id of the process or thread that a pidfd of thread `tid` names. None for other descriptors, and if the named
/// process has ended.
pub fn named_by_descriptor(tid: u32, descriptor: u32) -> Option<u32> {
    let info = crate::looks::read_text(&format!("/proc/{tid}/fdinfo/{descriptor}")).ok()?;
    info.lines()
        .find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
}

/// Effective user id of this process.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn process(pid: u32) -> Result<Pid, Errno> {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(Errno::SRCH)
}

/// Memory of another process.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteSpan {
    /// First address there.
    pub address: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// Memory of this process that is written to.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalSpan {
    /// First byte.
    pub pointer: *mut u8,
    /// Length in bytes.
    pub bytes: usize,
}

const _: () = assert!(size_of::<RemoteSpan>() == size_of::<libc::iovec>());
const _: () = assert!(size_of::<LocalSpan>() == size_of::<libc::iovec>());
const _: () = assert!(core::mem::offset_of!(RemoteSpan, bytes) == 8);
const _: () = assert!(core::mem::offset_of!(LocalSpan, bytes) == 8);

/// Why not even the first span could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No such process.
    #[error("the process has exited (ESRCH): forget it")]
    Gone,
    /// The first remote span has no readable memory.
    #[error("nothing readable at the first address (EFAULT): look at the mappings again")]
    Fault,
    /// The process may not be read.
    #[error(
        "not permitted to read the process (EPERM): same user and dumpable, or CAP_SYS_PTRACE, is needed"
    )]
    NotPermitted,
    /// Any other errno.
    #[error("process_vm_readv failed with errno {0}")]
    Other(i32),
}

/// Reads the `remote` spans of `pid`, one after the other, into the `local` spans, one after the other.
///
/// Returns the bytes read: all, or up to the first remote span that could not be read whole. Works with any thread id
/// of the process. Allocates nothing.
///
/// # Errors
/// As `ReadError` says, with nothing read; `Other { EINVAL }` for more than `SPANS_MAX` spans.
///
/// # Safety
/// Each local span is memory that may be written for the length of the call and that no reference covers.
pub unsafe fn read_memory(
    pid: u32,
    remote: &[RemoteSpan],
    local: &[LocalSpan],
) -> Result<usize, ReadError> {
    let pid = i32::try_from(pid).map_err(|_| ReadError::Gone)?;
    // SAFETY: both slices have the layout of iovec arrays of their lengths. The kernel checks the remote addresses, and
    // the caller answers for the local ones. rustix does not have this call.
    let read = unsafe {
        libc::process_vm_readv(
            pid,
            local.as_ptr().cast::<libc::iovec>(),
            local.len() as libc::c_ulong,
            remote.as_ptr().cast::<libc::iovec>(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(read).map_err(|_| {
        match std::io::Error::last_os_error().raw_os_error().unwrap_or(0) {
            libc::ESRCH => ReadError::Gone,
            libc::EFAULT => ReadError::Fault,
            libc::EPERM => ReadError::NotPermitted,
            other => ReadError::Other(other),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_spans_are_read_in_order() {
        let source: Vec<u8> = (0..=255).collect();
        let at = |offset: usize, bytes| RemoteSpan {
            address: source.as_ptr().expose_provenance() as u64 + offset as u64,
            bytes,
        };
        let mut into = [0u8; 12];
        let (head, tail) = into.split_at_mut(5);
        let local = [head, tail].map(|part| LocalSpan {
            pointer: part.as_mut_ptr(),
            bytes: part.len(),
        });
        let remote = [at(100, 4), at(0, 4), at(200, 4)];
        // SAFETY: the local spans are the two halves of `into`, which nothing refers to during the call.
        let read = unsafe { read_memory(std::process::id(), &remote, &local) };
        assert_eq!(read, Ok(12));
        assert_eq!(into, [100, 101, 102, 103, 0, 1, 2, 3, 200, 201, 202, 203]);
    }

    #[test]
    fn a_hole_ends_the_read_before_it() {
        let source = [7u8; 64];
        let good = RemoteSpan {
            address: source.as_ptr().expose_provenance() as u64,
            bytes: 64,
        };
        let hole = RemoteSpan {
            address: 0x1000,
            bytes: 64,
        };
        let mut into = [0u8; 128];
        let local = [LocalSpan {
            pointer: into.as_mut_ptr(),
            bytes: 128,
        }];
        let pid = std::process::id();
        // SAFETY: the local span is `into`, which nothing refers to during the calls.
        let read = unsafe {
            [
                read_memory(pid, &[good, hole], &local),
                read_memory(pid, &[hole, good], &local),
                read_memory(1 << 23, &[good], &local),
            ]
        };
        assert_eq!(read, [Ok(64), Err(ReadError::Fault), Err(ReadError::Gone)]);
        assert_eq!(into[..64], source);
    }

    #[test]
    fn a_child_is_seen_to_exit_and_can_be_killed() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pidfd = PidFd::open(child.id()).unwrap();
        assert!(!pidfd.exited(Some(Duration::ZERO)).unwrap());
        pidfd.kill().unwrap();
        assert!(pidfd.exited(Some(Duration::from_secs(10))).unwrap());
        child.wait().unwrap();
        assert_eq!(pidfd.signal(Signal::TERM), Err(Errno::SRCH));
        pidfd.kill().unwrap();
        assert_eq!(PidFd::open(0).err(), Some(Errno::SRCH));
    }
}
