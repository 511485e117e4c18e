//! Signal handlers: one records a signal that no step has asked for, one reads memory because a step has asked for it.
//!
//! Everything here is async-signal-safe: only statics and atomics. Unsafe is needed because handlers are installed and
//! called by address.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::program::log::{Log, Wrong};

static LOG: OnceLock<Log> = OnceLock::new();

/// What a handler must read, and what it has read. It lies on the stack of the thread that waits for it.
#[derive(Debug)]
struct Request {
    address: usize,
    found: AtomicU64,
}

/// Installs both handlers.
pub(crate) fn install(log: Log) {
    let _already = LOG.set(log);
    for signal in [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGABRT,
        libc::SIGSYS,
    ] {
        handle(signal, unexpected);
    }
    for signal in [libc::SIGUSR1, libc::SIGRTMIN() + 2] {
        handle(signal, reads);
    }
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

fn handle(signal: i32, handler: Handler) {
    // SAFETY: a zeroed sigaction has no flags and no mask. The handler has the signature that SA_SIGINFO requires.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = (handler as *const ()).addr();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn unexpected(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid structure. For faults the address is set.
    let (address, code) = unsafe { ((*info).si_addr().addr(), (*info).si_code) };
    if let Some(log) = LOG.get() {
        let words = (0, (signal as u64) << 32 | u64::from(code as u32));
        log.fail(usize::from(u16::MAX), Wrong::Signal, address, words);
    }
}

extern "C" fn reads(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: only `read_in_handler` sends this signal, with the address of a request that lives until the handler is
    // back. Its step has checked that the page may be read.
    unsafe {
        let request = (*info).si_value().sival_ptr.cast::<Request>();
        let at = std::ptr::with_exposed_provenance::<AtomicU64>((*request).address);
        let value = (*at).load(Ordering::Relaxed);
        (*request).found.store(value, Ordering::SeqCst);
    }
}

/// Lets a handler on this thread read the word at `address`. `None`: the signal cannot be sent.
pub(crate) fn read_in_handler(address: usize, realtime: bool) -> Option<u64> {
    let signal = if realtime {
        libc::SIGRTMIN() + 2
    } else {
        libc::SIGUSR1
    };
    let request = Request {
        address,
        found: AtomicU64::new(0),
    };
    // A siginfo_t: signal, error, code and padding; then process and user; then the value.
    let queued = -1_i32;
    let mut words = [0_u64; 16];
    words[0] = signal as u64;
    words[1] = u64::from(queued as u32);
    words[3] = (&raw const request).expose_provenance() as u64;
    // SAFETY: sends a signal to this very thread. The structure is as large as the kernel requires.
    let sent = unsafe {
        let (pid, tid) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        let call = libc::SYS_rt_tgsigqueueinfo;
        libc::syscall(call, pid, tid, signal, words.as_ptr())
    };
    (sent == 0).then(|| request.found.load(Ordering::SeqCst))
}
