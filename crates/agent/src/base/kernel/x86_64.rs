//! System calls of x86-64: numbers, and what has another form on other machines.

use crate::raw;

/// Numbers of the system calls.
pub mod call {
    use crate::abi;

    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const POLL: usize = 7;
    pub const MMAP: usize = abi::call::MMAP as usize;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const BRK: usize = abi::call::BRK as usize;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = abi::call::IOCTL as usize;
    pub const MREMAP: usize = abi::call::MREMAP as usize;
    pub const MINCORE: usize = 27;
    pub const MADVISE: usize = abi::call::MADVISE as usize;
    pub const NANOSLEEP: usize = 35;
    pub const GETPID: usize = 39;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const RECVFROM: usize = 45;
    pub const SENDMSG: usize = 46;
    pub const RECVMSG: usize = 47;
    pub const GETSOCKOPT: usize = 55;
    pub const CLONE: usize = abi::call::CLONE as usize;
    pub const FORK: usize = abi::call::FORK as usize;
    /// Ends the calling thread alone.
    pub const EXIT: usize = abi::call::EXIT as usize;
    pub const KILL: usize = 62;
    pub const FTRUNCATE: usize = 77;
    pub const CHDIR: usize = 80;
    pub const GETEUID: usize = 107;
    pub const GETPPID: usize = 110;
    pub const GETPRIORITY: usize = 140;
    pub const SETPRIORITY: usize = 141;
    pub const MUNLOCK: usize = 150;
    pub const PRCTL: usize = 157;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const EXIT_GROUP: usize = 231;
    pub const TGKILL: usize = 234;
    pub const OPENAT: usize = 257;
    pub const NEWFSTATAT: usize = 262;
    pub const UNSHARE: usize = 272;
    pub const EVENTFD2: usize = 290;
    pub const PRLIMIT64: usize = 302;
    pub const SETNS: usize = 308;
    pub const SECCOMP: usize = abi::call::SECCOMP as usize;
    pub const GETRANDOM: usize = 318;
    pub const MEMFD_CREATE: usize = 319;
    pub const USERFAULTFD: usize = 323;
    pub const PKEY_MPROTECT: usize = 329;
    pub const PIDFD_OPEN: usize = 434;
    pub const CLONE3: usize = abi::call::CLONE3 as usize;
    pub const CLOSE_RANGE: usize = 436;
    pub const PIDFD_GETFD: usize = 438;
    pub const PROCESS_MADVISE: usize = abi::call::PROCESS_MADVISE as usize;
}

/// What `newfstatat` writes, in words.
pub type Stat = [u64; 144 / 8];

/// How many links a file has.
pub fn links_in(stat: &Stat) -> u64 {
    let [_, _, links, ..] = *stat;
    links
}

/// Has a page 4 KiB? Nothing else exists here.
pub const fn has_small_pages() -> bool {
    true
}

/// poll(2) of `count` records: waits until there is something to hear, or only looks.
///
/// # Safety
/// There are so many `pollfd` at this address.
pub unsafe fn poll(records: usize, count: usize, waits: bool) -> isize {
    // The time-out that means none.
    let timeout = if waits { usize::MAX } else { 0 };
    // SAFETY: the caller answers for the records.
    unsafe { raw::syscall3(call::POLL, records, count, timeout) }
}
