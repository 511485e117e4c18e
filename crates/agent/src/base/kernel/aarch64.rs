//! System calls of aarch64: numbers, and what has another form on other machines.

use core::ptr;

use crate::raw;

/// Numbers of the system calls.
pub mod call {
    use crate::abi;

    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const CLOSE: usize = 57;
    pub const PPOLL: usize = 73;
    pub const MMAP: usize = abi::call::MMAP as usize;
    pub const MPROTECT: usize = 226;
    pub const MUNMAP: usize = 215;
    pub const BRK: usize = abi::call::BRK as usize;
    pub const RT_SIGACTION: usize = abi::call::RT_SIGACTION as usize;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const IOCTL: usize = abi::call::IOCTL as usize;
    pub const MREMAP: usize = abi::call::MREMAP as usize;
    pub const MINCORE: usize = 232;
    pub const MADVISE: usize = abi::call::MADVISE as usize;
    pub const NANOSLEEP: usize = 101;
    pub const GETPID: usize = 172;
    pub const SOCKET: usize = 198;
    pub const CONNECT: usize = 203;
    pub const RECVFROM: usize = 207;
    pub const SENDMSG: usize = 211;
    pub const RECVMSG: usize = 212;
    pub const GETSOCKOPT: usize = 209;
    pub const CLONE: usize = abi::call::CLONE as usize;
    pub const FORK: usize = abi::call::FORK as usize;
    /// Ends the calling thread alone.
    pub const EXIT: usize = abi::call::EXIT as usize;
    pub const KILL: usize = 129;
    pub const FTRUNCATE: usize = 46;
    pub const CHDIR: usize = 49;
    pub const GETEUID: usize = 175;
    pub const GETPPID: usize = 173;
    pub const GETPRIORITY: usize = 141;
    pub const SETPRIORITY: usize = 140;
    pub const MUNLOCK: usize = 229;
    pub const PRCTL: usize = 167;
    pub const GETTID: usize = 178;
    pub const FUTEX: usize = 98;
    pub const EXIT_GROUP: usize = 94;
    pub const TGKILL: usize = 131;
    pub const OPENAT: usize = 56;
    pub const NEWFSTATAT: usize = 79;
    pub const UNSHARE: usize = 97;
    pub const EVENTFD2: usize = 19;
    pub const PRLIMIT64: usize = 261;
    pub const SETNS: usize = 268;
    pub const SECCOMP: usize = abi::call::SECCOMP as usize;
    pub const GETRANDOM: usize = 278;
    pub const MEMFD_CREATE: usize = 279;
    pub const USERFAULTFD: usize = 282;
    pub const PKEY_MPROTECT: usize = 288;
    pub const PIDFD_OPEN: usize = 434;
    pub const CLONE3: usize = abi::call::CLONE3 as usize;
    pub const CLOSE_RANGE: usize = 436;
    pub const PIDFD_GETFD: usize = 438;
    pub const PROCESS_MADVISE: usize = abi::call::PROCESS_MADVISE as usize;
}

/// What `newfstatat` writes, in words.
pub type Stat = [u64; 128 / 8];

/// How many links a file has. The number is the upper half of a word, behind the mode.
pub fn links_in(stat: &Stat) -> u64 {
    let [_, _, mode_and_links, ..] = *stat;
    mode_and_links >> 32
}

/// Has a page 4 KiB? Kernels may have larger ones, of which none can be moved or watched as the pager does it.
///
/// The kernel says EINVAL to an address that is not that of a page before it sees that there is nothing to protect.
pub fn has_small_pages() -> bool {
    // SAFETY: the range is empty.
    let protected = unsafe { raw::syscall3(call::MPROTECT, super::PAGE_BYTES, 0, 0) };
    raw::result(protected) != Err(super::EINVAL)
}

/// poll(2) of `count` records: waits until there is something to hear, or only looks. There is only `ppoll`.
///
/// # Safety
/// There are so many `pollfd` at this address.
pub unsafe fn poll(records: usize, count: usize, waits: bool) -> isize {
    let at_once = [0_u64; 2];
    let timeout = if waits {
        0
    } else {
        ptr::from_ref(&at_once).addr()
    };
    // SAFETY: the caller answers for the records. The kernel reads the time from this stack, or waits without end if
    // there is none. The signal mask stays.
    unsafe { raw::syscall5(call::PPOLL, records, count, timeout, 0, 0) }
}
