//! The signals of a process that stands in front of another one. It blocks its signals and takes them one by one. To
//! the process that it starts it gives exactly the dispositions and the mask that it was given itself.
//!
//! A constructor records the dispositions, because Rust's runtime ignores SIGPIPE before `main`. Everything here but
//! the constructor and `Inherited::restore` is for the main thread before other threads exist, or for the one thread
//! that takes signals. `restore` runs between fork and exec: async-signal-safe, no allocation.
//!
//! Unsafe is needed here because rustix leaves signal masks and dispositions to libc, whose calls take pointers.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io;

/// The highest signal number of Linux on x86-64.
const SIGNAL_MAX: i32 = 64;
/// The two real-time signals that the C library keeps for itself. Its threads break without them.
const LIBRARY_SIGNALS: [i32; 2] = [32, 33];
/// Signals that stay as they are. Either they cannot be blocked, or they tell of a fault in this process itself, or
/// (SIGPIPE) they answer its own write, or (SIGXCPU, SIGXFSZ) they are about its own limits.
const LEFT_ALONE: [i32; 12] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGPIPE,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// Bit n-1 is set if signal n was ignored when the process began. The constructor writes it once.
static IGNORED_AT_START: AtomicU64 = AtomicU64::new(0);

#[used]
// SAFETY: `.init_array` holds pointers to functions that the loader calls once, before `main`. A function without
// parameters does not read the arguments. `record_ignored` needs nothing that is set up later.
#[unsafe(link_section = ".init_array")]
static RECORD_IGNORED: extern "C" fn() = record_ignored;

extern "C" fn record_ignored() {
    IGNORED_AT_START.store(ignored_now(), Ordering::Relaxed);
}

fn ignored_now() -> u64 {
    settable_signals()
        .filter(|signal| disposition(*signal) == Some(libc::SIG_IGN))
        .fold(0, |ignored, signal| ignored | bit(signal))
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Every signal whose disposition may be set.
fn settable_signals() -> impl Iterator<Item = i32> {
    (1..=SIGNAL_MAX).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal))
}

/// The kernel's own sigaction. The C library's call hides two signals, but a program inherits their dispositions too.
#[repr(C)]
struct KernelAction {
    handler: libc::sighandler_t,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Bytes of the kernel's signal mask. Its calls demand this number.
const KERNEL_MASK_BYTES: usize = size_of::<u64>();

fn disposition(signal: i32) -> Option<libc::sighandler_t> {
    let mut old = KernelAction {
        handler: 0,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    let nothing = core::ptr::null::<KernelAction>();
    // SAFETY: with a null new action the kernel only writes the old one, to memory of the kernel's layout.
    let read = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            nothing,
            &raw mut old,
            KERNEL_MASK_BYTES,
        )
    };
    (read == 0).then_some(old.handler)
}

/// `action` is SIG_DFL or SIG_IGN.
fn set_disposition(signal: i32, action: libc::sighandler_t) {
    let new = KernelAction {
        handler: action,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    let nothing = core::ptr::null_mut::<KernelAction>();
    // SAFETY: `new` has the kernel's layout and outlives the call. SIG_DFL and SIG_IGN run no code of this process.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            &raw const new,
            nothing,
            KERNEL_MASK_BYTES,
        )
    };
}

fn is_taken(signal: i32) -> bool {
    !LEFT_ALONE.contains(&signal) && !LIBRARY_SIGNALS.contains(&signal)
}

/// What this process was given at its start: the mask and the ignored signals.
#[derive(Clone, Copy)]
pub struct Inherited {
    mask: libc::sigset_t,
    ignored: u64,
    /// Signals that this process itself has ignored since. Handlers need no note: exec removes them.
    ignored_since: u64,
}

impl std::fmt::Debug for Inherited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inherited")
            .field("ignored", &format_args!("{:#x}", self.ignored))
            .finish()
    }
}

impl Inherited {
    /// Gives the calling process the dispositions and the mask of `self`. For a forked child, right before exec:
    /// async-signal-safe. The signals named here give no errors; an error would leave a default in place.
    pub(crate) fn restore(&self) {
        for signal in settable_signals() {
            if self.ignored & bit(signal) != 0 {
                set_disposition(signal, libc::SIG_IGN);
            } else if self.ignored_since & bit(signal) != 0 {
                set_disposition(signal, libc::SIG_DFL);
            }
        }
        // SAFETY: the mask is initialised and outlives the call. A null pointer asks for no old mask.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.mask, core::ptr::null_mut()) };
    }
}

/// A signal that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its number.
    pub signal: i32,
    /// Sent by the kernel itself, like the terminal's signals, and not by a process.
    pub from_kernel: bool,
    /// Process that sent it. None if the kernel did, or a process outside of this pid namespace.
    pub sender: Option<u32>,
}

/// All signals that a process can be sent, blocked and taken one at a time.
pub struct Blocked {
    set: libc::sigset_t,
    inherited: Inherited,
}

impl std::fmt::Debug for Blocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocked")
            .field("inherited", &self.inherited)
            .finish_non_exhaustive()
    }
}

/// Blocks the signals for the calling thread and every thread that it makes later. So call it before other threads
/// exist.
///
/// # Errors
/// What the kernel says to the change of the mask.
pub fn block() -> io::Result<Blocked> {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset initialises the set, which lives here, and the signal numbers are valid.
    let set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in settable_signals().filter(|signal| is_taken(*signal)) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    };
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets live here, and the call writes the old mask before anybody reads it.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, mask.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    let ignored = IGNORED_AT_START.load(Ordering::Relaxed);
    let ignored_since = ignored_now() & !ignored;
    // An ignored SIGCHLD would let the kernel reap children and lose their exit status.
    set_disposition(libc::SIGCHLD, libc::SIG_DFL);
    // SAFETY: zeroed, and then written by pthread_sigmask.
    let mask = unsafe { mask.assume_init() };
    let inherited = Inherited {
        mask,
        ignored,
        ignored_since,
    };
    Ok(Blocked { set, inherited })
}

impl Blocked {
    /// What the process was given before `block`.
    #[must_use]
    pub fn inherited(&self) -> &Inherited {
        &self.inherited
    }

    /// Waits for a signal and takes it. None if no signal came within `timeout`, or if the wait was interrupted.
    #[must_use]
    pub fn take(&self, timeout: Duration) -> Option<Taken> {
        let timeout = libc::timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialised, `info` has the size that the kernel writes, and both outlive the call.
        let signal = unsafe { libc::sigtimedwait(&self.set, info.as_mut_ptr(), &timeout) };
        if signal <= 0 {
            return None;
        }
        // SAFETY: zeroed above and written by the kernel.
        let info = unsafe { info.assume_init() };
        let from_kernel = info.si_code > 0;
        // SAFETY: every variant of the union is plain integers at this place, so any of them may be read.
        let sender = unsafe { info.si_pid() };
        // Only a signal from a process has its pid there.
        let sender = if from_kernel { 0 } else { sender };
        let sender = u32::try_from(sender).ok().filter(|pid| *pid != 0);
        Some(Taken {
            signal,
            from_kernel,
            sender,
        })
    }
}

/// Sends `signal`, real-time ones included, to the process `pid`.
///
/// # Errors
/// The process is gone, or may not be signalled by this user.
pub fn send(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 0)
        .ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the call takes plain integers. A positive pid names one process, never a group.
    if unsafe { libc::kill(pid, signal) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Ends this process by `signal`, like the process that it stood for, without a core file of its own. Returns only if
/// the signal cannot end it: in the first process of a pid namespace, or with a signal that does not kill.
pub fn die_by(signal: i32) {
    // SAFETY: the call takes plain integers. The process is about to end and needs no memory image of itself.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    if signal != libc::SIGKILL && signal != libc::SIGSTOP {
        set_disposition(signal, libc::SIG_DFL);
    }
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset initialises the set, which lives here. raise takes any number.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), core::ptr::null_mut());
        libc::raise(signal);
    }
}
