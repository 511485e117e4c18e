//! The plain system calls of the agent: memory, signals, futexes, processes. Constants as in the kernel's headers.
//!
//! Unsafe is needed here because each call is a bare system call: the agent has no std and no crate that wraps them.

use core::sync::atomic::AtomicU32;

use crate::abi::advice;
use crate::raw;

/// An errno, positive.
pub type Errno = i32;
/// A file descriptor as the kernel returned it.
pub type Descriptor = usize;

// What differs between machines.
#[cfg_attr(target_arch = "x86_64", path = "kernel/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "kernel/aarch64.rs")]
mod machine;

pub use self::machine::{Stat, call, has_small_pages, links_in, poll};

/// A page of memory.
pub const PAGE_BYTES: usize = 4096;
/// The agent's own calls carry this mark in the register of the sixth argument. All but mmap ignore that register. For
/// mmap it is an offset, which must be a multiple of the page size and means nothing for anonymous memory. The address
/// of the instruction would not do as a mark: the filter outlives an exec, and the next image has its agent elsewhere.
pub const MARK: usize = (MARK_HIGH as usize) << 32 | MARK_LOW as usize;
/// Its halves, as the filter compares them.
pub const MARK_HIGH: u32 = 0x9b5c_71e2;
pub const MARK_LOW: u32 = 0xd03f_4000;
const _: () = assert!(MARK.is_multiple_of(PAGE_BYTES));

/// Readable and writable, for mmap and mprotect.
pub const PROT_READ_WRITE: usize = 3;
/// MADV_DONTNEED that also takes locked memory (Linux 5.18).
pub const MADV_DONTNEED_LOCKED: usize = advice::DONTNEED_LOCKED as usize;
pub const MADV_POPULATE_WRITE: usize = advice::POPULATE_WRITE as usize;
/// `O_CLOEXEC`, which is also `SOCK_CLOEXEC`.
pub const CLOEXEC: usize = 0o2_000_000;
pub const ESRCH: Errno = 3;
pub const EAGAIN: Errno = 11;
pub const EBUSY: Errno = 16;
pub const EEXIST: Errno = 17;
pub const EINTR: Errno = 4;
pub const ENOMEM: Errno = 12;
pub const EACCES: Errno = 13;
pub const EFAULT: Errno = 14;
pub const EINVAL: Errno = 22;
pub const EFBIG: Errno = 27;
pub const ENOSYS: Errno = 38;
/// EUSERS: the answer of time namespaces to a process with several threads.
pub const EUSERS: Errno = 87;
/// ENODATA: the pager says that nothing was inherited.
pub const ENODATA: Errno = 61;
/// EPROTO: the other side breaks the protocol.
pub const EPROTO: Errno = 71;

/// A system call whose errno matters.
///
/// # Safety
/// See [`raw::syscall6`].
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller answers for the meaning of number and arguments.
    raw::result(unsafe { raw::syscall6(number, arguments) })
}

/// Closes a descriptor of the agent's own table.
pub fn close(descriptor: Descriptor) {
    // SAFETY: the agent's table holds only the agent's descriptors, so nobody else's is closed.
    unsafe { raw::syscall1(call::CLOSE, descriptor) };
}

/// Unmaps memory.
///
/// # Safety
/// The range belongs to the agent and is no longer used.
pub unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller promises that nobody uses the range any more.
    unsafe { raw::syscall2(call::MUNMAP, address, bytes) };
}

/// madvise(2).
///
/// # Safety
/// The caller answers for what `advice` does to the memory.
pub unsafe fn advise(address: usize, bytes: usize, advice: usize) -> Result<(), Errno> {
    // SAFETY: the caller answers for what the advice does to the memory.
    raw::result(unsafe { raw::syscall3(call::MADVISE, address, bytes, advice) }).map(|_| ())
}

/// Process id of the caller.
pub fn process_id() -> i32 {
    id(call::GETPID)
}

/// Process id of the caller's parent.
pub fn parent_id() -> i32 {
    id(call::GETPPID)
}

/// Thread id of the caller.
pub fn thread_id() -> i32 {
    id(call::GETTID)
}

fn id(number: usize) -> i32 {
    // SAFETY: these three calls have no arguments, no effects and no errors.
    i32::try_from(unsafe { raw::syscall0(number) }).unwrap_or(0)
}

/// A random word, not 0.
pub fn random_word() -> u64 {
    let mut word = 0_u64;
    // SAFETY: the kernel writes 8 bytes to a word of 8 bytes on this stack.
    unsafe { raw::syscall3(call::GETRANDOM, (&raw mut word).addr(), size_of::<u64>(), 0) };
    word.max(1)
}

/// Can a word be read? Asks the kernel, which answers EFAULT where a read would kill the program. Changes nothing: even
/// if the kernel can read the mask, it refuses the call because of the impossible first argument.
pub fn is_readable(address: usize) -> bool {
    const NO_SUCH_HOW: usize = 99;
    // SAFETY: the call fails in every case and changes nothing.
    let asked = unsafe {
        raw::syscall4(
            call::RT_SIGPROCMASK,
            NO_SUCH_HOW,
            address,
            0,
            size_of::<u64>(),
        )
    };
    address != 0 && raw::result(asked) != Err(EFAULT)
}

/// Blocks all signals for the calling thread and returns the mask it had.
pub fn block_signals() -> u64 {
    const SIG_BLOCK: usize = 0;
    let (all, mut before) = (u64::MAX, 0_u64);
    // SAFETY: the kernel reads one mask and writes the other; both are words of 8 bytes on this stack.
    unsafe {
        raw::syscall4(
            call::RT_SIGPROCMASK,
            SIG_BLOCK,
            (&raw const all).addr(),
            (&raw mut before).addr(),
            size_of::<u64>(),
        );
    }
    before
}

/// Gives the calling thread a signal mask that `block_signals` returned.
pub fn restore_signals(mask: u64) {
    const SIG_SETMASK: usize = 2;
    // SAFETY: the kernel reads a mask of 8 bytes on this stack.
    unsafe {
        raw::syscall4(
            call::RT_SIGPROCMASK,
            SIG_SETMASK,
            (&raw const mask).addr(),
            0,
            size_of::<u64>(),
        );
    }
}

/// Waits while `word` is `value`. May return early. The futex is not private: the pager shares the ring, and when a
/// thread ends the kernel's own wake-up is not private either.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    const FUTEX_WAIT: usize = 0;
    // SAFETY: the reference proves that the word is mapped; the null pointer says that there is no time-out.
    unsafe {
        raw::syscall4(
            call::FUTEX,
            word.as_ptr().addr(),
            FUTEX_WAIT,
            value as usize,
            0,
        )
    };
}

/// Wakes everyone who waits for `word`.
pub fn futex_wake(word: &AtomicU32) {
    const FUTEX_WAKE: usize = 1;
    const EVERYONE: usize = 0x7fff_ffff;
    // SAFETY: the reference proves that the word is mapped.
    unsafe { raw::syscall3(call::FUTEX, word.as_ptr().addr(), FUTEX_WAKE, EVERYONE) };
}

/// Sleeps for less than a second. May end early.
pub fn nap(nanoseconds: u64) {
    let time = [0, nanoseconds];
    // SAFETY: the kernel reads the two words on this stack as a timespec. The null pointer says that nobody asks for
    // the time that is left.
    unsafe { raw::syscall2(call::NANOSLEEP, time.as_ptr().addr(), 0) };
}

/// Ends the calling thread. The call carries the mark, because the pager may be waiting for the end of this very
/// thread.
pub fn exit_thread() -> ! {
    exit_thread_with(0)
}

/// Ends the calling thread, which is the last one of its process, as another one has ended: by a signal, unless that is
/// 0, or with a status.
pub fn end_like([signal, status]: [u8; 2]) -> ! {
    /// Words of the kernel's `sigaction`. All 0 is the default action.
    const ACTION_WORDS: usize = 4;
    const SIG_SETMASK: usize = 2;
    const SET_BYTES: usize = 8;
    if signal != 0 {
        let (action, none, signal) = ([0_usize; ACTION_WORDS], 0_u64, usize::from(signal));
        let (pid, tid) = (
            process_id().cast_unsigned() as usize,
            thread_id().cast_unsigned() as usize,
        );
        // SAFETY: the kernel reads the action and the set, both on this stack. The handler that goes was for threads
        // that have ended.
        unsafe {
            let action = action.as_ptr().addr();
            raw::syscall6(call::RT_SIGACTION, [signal, action, 0, SET_BYTES, 0, 0]);
            let none = (&raw const none).addr();
            raw::syscall6(
                call::RT_SIGPROCMASK,
                [SIG_SETMASK, none, 0, SET_BYTES, 0, 0],
            );
            raw::syscall3(call::TGKILL, pid, tid, signal);
        }
    }
    exit_thread_with(status.into())
}

/// Ends the calling thread with a status. If it is the last thread, this is the status of the process.
fn exit_thread_with(status: usize) -> ! {
    loop {
        // SAFETY: only threads of the agent call this, and they hold nothing that would have to be released.
        unsafe { raw::syscall6(call::EXIT, [status, 0, 0, 0, 0, MARK]) };
    }
}

#[cfg(test)]
#[path = "kernel/tests.rs"]
mod tests;
