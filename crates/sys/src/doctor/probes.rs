//! The probes, one per permission.
//!
//! Unsafe is needed here because some probes are bare calls that have no safe wrapper: fork, a seccomp filter,
//! io_uring, a move of pages.

use std::os::fd::{FromRawFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitOptions, waitpid};

use super::rights::Rights;
use super::{FORK_EVENTS, Finding, Need, Status};
use crate::machine::NEWER_KERNEL;
use crate::memory::pagemap::{PAGE_BYTES, Pagemap, PagemapError, Query, Region};
use crate::memory::{HugePages, Mapping};
use crate::process::{LocalSpan, PidFd, RemoteSpan, read_memory};
use crate::uffd::{Faults, UffdError, Userfaultfd, feature, mode};

const PAGE: usize = 4096;
const MARK: u8 = 0xD7;

/// Advice for what cannot be tried yet.
const LATER: &str = "it is tried when there is a userfaultfd: see kernel-faults";

fn finding(
    name: &'static str,
    need: Need,
    status: Status,
    detail: impl Into<String>,
    advice: &'static str,
) -> Finding {
    let advice = if status == Status::Works { "" } else { advice };
    Finding {
        name,
        status,
        need,
        detail: detail.into(),
        advice,
    }
}

fn works(yes: bool) -> Status {
    if yes { Status::Works } else { Status::Missing }
}

fn errno_of<T>(result: &Result<T, rustix::io::Errno>) -> String {
    match result {
        Ok(_) => "permitted".to_owned(),
        Err(errno) => format!("refused: {errno}"),
    }
}

/// The ways to a userfaultfd, and what it can do, in the order in which a person mends them.
pub fn userfaultfd() -> Vec<Finding> {
    let rights = Rights::here();
    let device = Userfaultfd::open_device(Faults::All);
    let syscall = Userfaultfd::open_syscall(Faults::All);
    let full = device.is_ok() || syscall.is_ok();
    let faults = if full { Faults::All } else { Faults::UserOnly };
    let offered = Userfaultfd::offered(faults).ok();
    let mut findings = vec![
        fork_events(faults, rights),
        finding(
            "kernel-faults",
            Need::Required,
            works(full),
            "a userfaultfd that sees system calls of the program touch pages that are out",
            rights.for_faults(),
        ),
        finding(
            "userfaultfd-syscall",
            Need::OneOf,
            works(syscall.is_ok()),
            errno_of(&syscall),
            "",
        ),
        // Also where the system call works: the pager cannot make the call for another process.
        finding(
            "userfaultfd-device",
            Need::Useful,
            works(device.is_ok()),
            format!(
                "programs that give up root or the capability are swapped too: {}",
                errno_of(&device)
            ),
            "let vswap's user open /dev/userfaultfd: --device /dev/userfaultfd in a container, a udev rule elsewhere",
        ),
    ];
    findings.extend(features(faults, offered));
    findings
}

fn features(faults: Faults, offered: Option<u64>) -> Vec<Finding> {
    let has = |bits: u64| match offered {
        Some(offered) => works(offered & bits == bits),
        None => Status::Unknown,
    };
    let kernel = |version| if offered.is_some() { version } else { LATER };
    let layout = feature::EVENT_REMAP | feature::EVENT_REMOVE | feature::EVENT_UNMAP;
    let required = |name, status, detail, advice| {
        finding(name, Need::Required, status, detail, kernel(advice))
    };
    let (moves, move_advice) = match has(feature::MOVE) {
        Status::Works => (
            move_works(faults),
            "the kernel has it, and it was refused: use a seccomp profile that allows its ioctl",
        ),
        other => (other, NEWER_KERNEL),
    };
    vec![
        required(
            "layout-events",
            has(layout),
            "mremap, madvise and munmap of the program are followed",
            NEWER_KERNEL,
        ),
        required(
            "write-protect",
            has(feature::PAGEFAULT_FLAG_WP),
            "writes to clean pages are seen",
            NEWER_KERNEL,
        ),
        required(
            "move",
            moves,
            "pages are taken out without copying",
            move_advice,
        ),
        finding(
            "poison",
            Need::Useful,
            has(feature::POISON),
            "a page that cannot be read again harms only who touches it",
            kernel("use a newer kernel: Linux 6.6 or later"),
        ),
    ]
}

/// Tried with a userfaultfd of any kind: the kernel asks only for the capability.
fn fork_events(faults: Faults, rights: Rights) -> Finding {
    let tried = Userfaultfd::open(faults)
        .ok()
        .map(|(uffd, _)| uffd.handshake(feature::EVENT_FORK).is_ok());
    let may = rights.may_trace && rights.is_initial;
    let status = match tried {
        Some(yes) => works(yes),
        None if may => Status::Unknown,
        None => Status::Missing,
    };
    let detail = format!(
        "the kernel tells of forks, which are followed by ptrace otherwise (this is {})",
        rights.describe()
    );
    finding(FORK_EVENTS, Need::Information, status, detail, "")
}

/// Moves a page between two of this process.
fn move_works(faults: Faults) -> Status {
    let moved = || -> Option<bool> {
        // The mapping is dropped after the userfaultfd. This userfaultfd has no events, so nobody waits either way.
        let memory = Mapping::anonymous(2 * PAGE, HugePages::Never).ok()?;
        let (uffd, _) = Userfaultfd::open_with(faults, feature::MOVE).ok()?;
        let (from, to) = (memory.address(), memory.address() + PAGE_BYTES);
        let pointer = memory.pointer().as_ptr();
        // SAFETY: both pages belong to this function alone, and only this pointer reaches them.
        unsafe {
            pointer.write(MARK);
            uffd.register(to, PAGE_BYTES, mode::MISSING).ok()?;
            let moved: Result<(), UffdError> = uffd.move_pages(to, from, PAGE_BYTES, 0);
            Some(moved.is_ok() && pointer.add(PAGE).read_volatile() == MARK)
        }
    };
    moved().map_or(Status::Unknown, works)
}

/// Forks by a system call, because the handlers of the C library's fork are of no use here. Not every machine has
/// `fork` itself.
///
/// # Safety
/// The child makes only system calls.
unsafe fn fork() -> libc::c_long {
    // SAFETY: the child has a copy of this memory. No stack, thread pointer or word of the caller's is named.
    unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::SIGCHLD,
            0_usize,
            0_usize,
            0_usize,
            0_usize,
        )
    }
}

/// A forked child that waits until it is killed. It has a copy of this process's memory.
struct Child {
    pid: u32,
}

impl Child {
    fn new() -> Option<Child> {
        // SAFETY: the child makes only system calls: it waits for the signal that ends it.
        let pid = unsafe { fork() };
        if pid == 0 {
            // SAFETY: the call takes plain numbers. It makes the child end with the thread that made it.
            unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            loop {
                // SAFETY: the call waits for a signal, with neither descriptors nor a time or a mask to read.
                unsafe {
                    libc::syscall(libc::SYS_ppoll, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize)
                };
            }
        }
        u32::try_from(pid).ok().map(|pid| Child { pid })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = crate::process::kill(self.pid);
        wait(self.pid);
    }
}

/// Exit code of a child. None if a signal ended it.
fn wait(pid: u32) -> Option<i32> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?);
    let ended = retry_on_intr(|| waitpid(pid, WaitOptions::empty()));
    ended.ok()??.1.exit_status()
}

const TRACE_ADVICE: &str = "use a seccomp profile that allows it, set the sysctl kernel.yama.ptrace_scope to 1 or \
     less, or run with CAP_SYS_PTRACE";

/// What this process can learn about another process of the same user.
pub fn other_process() -> Vec<Finding> {
    let memory = Mapping::anonymous(PAGE, HugePages::Never).ok();
    if let Some(memory) = &memory {
        // SAFETY: the page belongs to this function alone.
        unsafe { memory.pointer().write(MARK) };
    }
    let child = Child::new();
    let both = memory.as_ref().zip(child.as_ref());
    let try_each = |probe: fn(u32, u64) -> Result<bool, String>| match both
        .map(|(memory, child)| probe(child.pid, memory.address()))
    {
        None => (Status::Unknown, "no child process could be made".to_owned()),
        Some(Ok(yes)) => (works(yes), "permitted".to_owned()),
        Some(Err(why)) => (Status::Missing, why),
    };
    let (scan, scan_detail) = try_each(|pid, address| {
        let pagemap = Pagemap::open(pid).map_err(|error| error.to_string())?;
        let mut regions = [Region::default(); 1];
        let found = pagemap
            .scan(
                address,
                address + PAGE_BYTES,
                &Query::EVICTABLE,
                &mut regions,
            )
            .map_err(|error| error.to_string())?;
        Ok(found.regions == 1)
    });
    let (read, read_detail) = try_each(|pid, address| {
        let mut byte = 0u8;
        let local = [LocalSpan {
            pointer: &raw mut byte,
            bytes: 1,
        }];
        // SAFETY: the span is `byte`, which nothing refers to during the call.
        let read = unsafe { read_memory(pid, &[RemoteSpan { address, bytes: 1 }], &local) };
        read.map_err(|error| error.to_string())?;
        Ok(byte == MARK)
    });
    let (pidfd, pidfd_detail) = try_each(|pid, _| {
        let pidfd = PidFd::open(pid).map_err(|errno| errno.to_string())?;
        pidfd
            .exited(Some(std::time::Duration::ZERO))
            .map_err(|errno| errno.to_string())?;
        Ok(true)
    });
    vec![
        finding(
            "pagemap-scan",
            Need::Required,
            scan,
            scan_detail.clone(),
            scan_advice(&scan_detail),
        ),
        finding(
            "process-vm-readv",
            Need::Required,
            read,
            read_detail,
            TRACE_ADVICE,
        ),
        finding(
            "pidfd",
            Need::Required,
            pidfd,
            pidfd_detail,
            "use a seccomp profile that allows pidfd_open",
        ),
    ]
}

fn scan_advice(why: &str) -> &'static str {
    if why == PagemapError::NoScan.to_string() {
        "use a newer kernel: Linux 6.7 or later"
    } else {
        "make /proc/PID/pagemap readable: mount /proc, run as the program's user or with CAP_SYS_PTRACE"
    }
}

/// Tracing another process, by which an agent is put into programs that do not load it. Where the kernel tells of no
/// forks, they are followed in this way.
pub fn attach(has_fork_events: bool) -> Finding {
    let tried = match Child::new() {
        Some(child) => seize(child.pid),
        None => Err("no child process could be made".to_owned()),
    };
    let status = works(tried.is_ok());
    let said = tried.err().unwrap_or_else(|| "permitted".to_owned());
    let (need, what) = if has_fork_events {
        (
            Need::Useful,
            "static programs and those of other C libraries are swapped too",
        )
    } else {
        (
            Need::Required,
            "forks are followed, and static programs are swapped too",
        )
    };
    finding(
        "attach",
        need,
        status,
        format!("{what}: {said}"),
        TRACE_ADVICE,
    )
}

/// Traces a process. It stays traced until it ends.
fn seize(pid: u32) -> Result<(), String> {
    let pid = pid.cast_signed();
    // SAFETY: this request takes plain numbers.
    let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
    if done == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error().to_string())
}

/// Installs a filter with a listener in a child. The content of the filter does not matter: it allows everything.
pub fn seccomp() -> Finding {
    const TRIED: i32 = 200;
    // BPF_RET | BPF_K of SECCOMP_RET_ALLOW.
    let filter = [libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    }];
    // SAFETY: the child makes only system calls and ends by one.
    let pid = unsafe { fork() };
    if pid == 0 {
        let errno = install(&filter).err().unwrap_or(0);
        // SAFETY: ends the child at once.
        unsafe {
            libc::syscall(
                libc::SYS_exit_group,
                if errno < TRIED { errno } else { TRIED },
            )
        };
    }
    let code = u32::try_from(pid).ok().and_then(wait);
    let (status, detail) = match code {
        Some(0) => (Status::Works, "permitted".to_owned()),
        Some(libc::EBUSY) => (
            Status::Missing,
            "a supervisor of this container listens already (EBUSY)".to_owned(),
        ),
        Some(errno) => (
            Status::Missing,
            format!("refused: {}", rustix::io::Errno::from_raw_os_error(errno)),
        ),
        None => (Status::Unknown, "no child process could be made".to_owned()),
    };
    finding(
        "seccomp-notify",
        Need::Required,
        status,
        detail,
        "use a container runtime that does not listen itself and a profile that allows the seccomp call; Linux 5.7 or \
         later with CONFIG_SECCOMP_FILTER",
    )
}

#[repr(C)]
struct FilterProgram {
    len: u16,
    filter: *const libc::sock_filter,
}

/// Installs `filter` in the calling thread and closes the listener. Returns the errno if it is refused. Makes only
/// system calls.
fn install(filter: &[libc::sock_filter]) -> Result<(), i32> {
    const SET_MODE_FILTER: libc::c_ulong = 1;
    const FLAG_TSYNC: libc::c_ulong = 1 << 0;
    const FLAG_NEW_LISTENER: libc::c_ulong = 1 << 3;
    const FLAG_TSYNC_ESRCH: libc::c_ulong = 1 << 4;
    let flags = FLAG_TSYNC | FLAG_NEW_LISTENER | FLAG_TSYNC_ESRCH;
    let len = u16::try_from(filter.len()).map_err(|_| libc::E2BIG)?;
    let program = FilterProgram {
        len,
        filter: filter.as_ptr(),
    };
    // SAFETY: the program outlives the call, which copies it. prctl takes plain numbers.
    let fd = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    closed(fd)
}

/// Closes the descriptor that a system call returned, or returns its errno.
fn closed(fd: libc::c_long) -> Result<(), i32> {
    match i32::try_from(fd) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: the call returned a new descriptor, which nobody else owns.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(())
        }
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::ENOSYS)),
    }
}

/// Makes the smallest ring.
pub fn io_uring() -> Finding {
    /// Bytes of struct io_uring_params, which must be zero.
    const PARAMS_BYTES: usize = 120;
    let mut params = [0u64; PARAMS_BYTES / 8];
    // SAFETY: the call reads and writes PARAMS_BYTES bytes, and `params` has as many.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    let made = closed(fd);
    let detail = match made {
        Ok(()) => "permitted".to_owned(),
        Err(errno) => format!("refused: {}", rustix::io::Errno::from_raw_os_error(errno)),
    };
    finding(
        "io-uring",
        Need::Useful,
        works(made.is_ok()),
        detail,
        "areas on disk use plain reads and writes; for more, set the sysctl kernel.io_uring_disabled=0 or use a \
         seccomp profile that allows io_uring",
    )
}

/// How many mappings a program may have.
pub fn map_count() -> Finding {
    let count = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let (status, detail) = match count.trim().parse::<u64>() {
        Ok(count) => (Status::Works, format!("{count} mappings per process")),
        Err(_) => (
            Status::Unknown,
            "vm.max_map_count cannot be read".to_owned(),
        ),
    };
    finding("map-count", Need::Information, status, detail, "")
}

/// Where memory limits come from.
pub fn memory() -> Vec<Finding> {
    let mib = |bytes: u64| bytes >> 20;
    let machine = match crate::process::procfs::meminfo() {
        Ok(memory) => (
            Status::Works,
            format!(
                "{} MiB, {} MiB available, {} MiB of kernel swap",
                mib(memory.total_bytes),
                mib(memory.available_bytes),
                mib(memory.swap_total_bytes)
            ),
        ),
        Err(error) => (Status::Unknown, error.to_string()),
    };
    let limit = match (
        crate::process::cgroup::limit(),
        crate::process::cgroup::hierarchies().is_empty(),
    ) {
        (Some(limit), _) => (
            Status::Works,
            format!("{} MiB by {}", mib(limit.bytes), limit.source.display()),
        ),
        (None, false) => (Status::Works, "no limit on the control group".to_owned()),
        (None, true) => (
            Status::Missing,
            "no memory control group is mounted here".to_owned(),
        ),
    };
    vec![
        finding(
            "memory-machine",
            Need::Required,
            machine.0,
            machine.1,
            "mount the whole of /proc: vswap reads /proc/meminfo (in a systemd unit, no ProcSubset=pid)",
        ),
        finding(
            "memory-limit",
            Need::Information,
            limit.0,
            limit.1,
            "`--ram auto` uses the machine's memory",
        ),
    ]
}
