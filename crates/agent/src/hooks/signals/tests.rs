//! Handlers behind stand-ins are entered as the kernel enters them.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::io::Error;

use super::*;
use crate::base::kernel::{call, process_id, thread_id};
use crate::raw;
use crate::registers_tests::{call_and_check, int, note_entry, seen, word};

/// The handler that the kernel has.
fn installed(signal: c_int) -> usize {
    let mut action = [0_usize; 4];
    let place = (&raw mut action).expose_provenance();
    // SAFETY: the record has the kernel's layout. Nothing is set.
    let asked = unsafe { call(call::RT_SIGACTION, [word(signal), 0, place, 8, 0, 0]) };
    assert_eq!(asked, Ok(0));
    action[0]
}

/// Sets a handler by one of the functions, and returns the one before.
fn set(by: unsafe extern "C" fn(), signal: c_int, handler: usize, flags: c_int) -> usize {
    let new = Action {
        handler,
        mask: [0; 16],
        flags,
        restorer: 0,
    };
    let mut old = Action { handler: 1, ..new };
    let [new, old_place] = [
        (&raw const new).expose_provenance(),
        (&raw mut old).expose_provenance(),
    ];
    let arguments = [word(signal), new, old_place, 0, 0, 0, 0, 0];
    assert_eq!(
        call_and_check(by as *const (), arguments),
        0,
        "{}",
        Error::last_os_error()
    );
    old.handler
}

/// Sends a signal to this thread, which takes it before the call returns.
fn raise(signal: c_int) {
    let [pid, tid] = [process_id(), thread_id()].map(word);
    let syscall: *const () = ::libc::syscall as *const ();
    let sent = call_and_check(syscall, [call::TGKILL, pid, tid, word(signal), 0, 0, 0, 0]);
    assert_eq!(sent, 0);
}

#[test]
fn all_registers_are_the_kernels() {
    let signal = ::libc::SIGUSR1;
    let handler = note_entry as *const () as usize;
    assert_eq!(
        set(machine::sigaction, signal, handler, ::libc::SA_SIGINFO),
        0
    );
    assert_ne!(installed(signal), handler, "the kernel has no stand-in");
    raise(signal);
    let entry = seen();
    assert_eq!(entry.arguments[0], word(signal));
    assert!(entry.has_known_registers(), "{entry:x?}");
    // What the kernel has put on the stack lies above.
    for place in &entry.arguments[1..] {
        assert!(
            (0..8192).contains(&(place - entry.stack_pointer)),
            "{entry:x?}"
        );
    }
    assert_eq!(set(machine::__sigaction, signal, 0, 0), handler);
    assert_eq!(installed(signal), 0);
}

static SIGNAL_SEEN: AtomicI32 = AtomicI32::new(0);
static CODE_SEEN: AtomicI32 = AtomicI32::new(0);
static SENDER_SEEN: AtomicI32 = AtomicI32::new(0);
static BLOCKED_SEEN: AtomicI32 = AtomicI32::new(0);

extern "C" fn look(signal: c_int, info: *const ::libc::siginfo_t, context: *const c_void) {
    // SAFETY: the kernel has made both records.
    unsafe {
        SENDER_SEEN.store((*info).si_pid(), Ordering::SeqCst);
        CODE_SEEN.store((*info).si_code, Ordering::SeqCst);
        let mask = &(*context.cast::<::libc::ucontext_t>()).uc_sigmask;
        BLOCKED_SEEN.store(::libc::sigismember(mask, ::libc::SIGHUP), Ordering::SeqCst);
    }
    SIGNAL_SEEN.store(signal, Ordering::SeqCst);
}

#[test]
fn a_handler_gets_the_records_of_its_signal() {
    let signal = ::libc::SIGUSR2;
    set(
        machine::sigaction,
        signal,
        look as *const () as usize,
        ::libc::SA_SIGINFO,
    );
    let mut mask = 1_u64 << (::libc::SIGHUP - 1);
    let place = (&raw mut mask).expose_provenance();
    // SAFETY: the mask is a word on this stack. SIG_BLOCK, for this thread alone.
    unsafe { raw::syscall4(call::RT_SIGPROCMASK, 0, place, 0, 8) };
    raise(signal);
    let seen = [&SIGNAL_SEEN, &CODE_SEEN, &SENDER_SEEN, &BLOCKED_SEEN];
    let seen = seen.map(|word| word.load(Ordering::SeqCst));
    assert_eq!(seen, [signal, ::libc::SI_TKILL, process_id(), 1]);
}

static PLAIN_SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: c_int) {
    PLAIN_SEEN.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn handlers_without_records_are_called_too() {
    let (signal, handler) = (::libc::SIGWINCH, count as *const () as usize);
    // SAFETY: the handler may be called for this signal.
    unsafe {
        assert_eq!(super::signal(signal, handler), 0);
        assert_eq!(
            installed(signal),
            handler,
            "calls are made again by the kernel"
        );
        assert_eq!(siginterrupt(signal, 1), 0);
        assert_ne!(installed(signal), handler);
        raise(signal);
        assert_eq!(__sysv_signal(signal, handler), handler);
        assert_ne!(installed(signal), handler);
        // The kernel has set it back by then.
        raise(signal);
        assert_eq!(super::signal(signal, handler), 0);
    }
    assert_eq!(PLAIN_SEEN.load(Ordering::SeqCst), 2);
    let returned = call_and_check(machine::sigaction as *const (), [0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(int(returned), -1);
    assert_eq!(Error::last_os_error().raw_os_error(), Some(::libc::EINVAL));
}
