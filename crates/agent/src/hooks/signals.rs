//! `sigaction` and its like: the kernel gets a stand-in for a handler (`state/handlers.rs`), and the program sees its
//! own.
//!
//! Unsafe is needed here because the records are the program's, and the functions of libc are found by name at run
//! time.

// `sigaction` itself.
#[cfg_attr(target_arch = "x86_64", path = "signals/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "signals/aarch64.rs")]
mod machine;

use core::ffi::{CStr, c_int};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::base::kernel::ENOSYS;
use crate::base::libc;
use crate::state::handlers::{SIG_ERR, handler_of, stand_in_for};

/// libc's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}
const _: () = assert!(size_of::<Action>() == 152);

/// A function of libc, looked up when it is first needed.
struct Next(AtomicUsize, &'static CStr);

#[unsafe(link_section = ".data")]
static SIGACTION: Next = Next(AtomicUsize::new(0), c"sigaction");
#[unsafe(link_section = ".data")]
static SIGINTERRUPT: Next = Next(AtomicUsize::new(0), c"siginterrupt");
#[unsafe(link_section = ".data")]
static SIGNAL: Next = Next(AtomicUsize::new(0), c"signal");
#[unsafe(link_section = ".data")]
static SYSV_SIGNAL: Next = Next(AtomicUsize::new(0), c"__sysv_signal");

impl Next {
    fn find(&self) -> usize {
        let known = self.0.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let found = libc::next_symbol(self.1).unwrap_or(0);
        self.0.store(found, Ordering::Relaxed);
        found
    }
}

/// Looks libc's functions up, so that handlers may call them. Called by the constructor.
pub fn find() {
    for next in [&SIGACTION, &SIGINTERRUPT, &SIGNAL, &SYSV_SIGNAL] {
        next.find();
    }
}

fn libc_sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    type Sigaction = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;
    let next = SIGACTION.find();
    if next == 0 {
        libc::set_errno(ENOSYS);
        return -1;
    }
    // SAFETY: the address is that of libc's sigaction, which has this type. Both records are the caller's.
    unsafe { core::mem::transmute::<usize, Sigaction>(next)(signal, new, old) }
}

extern "C" fn act(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the program passed it as such a record. libc reads it in the same way.
    let wanted = (!new.is_null()).then(|| unsafe { new.read_unaligned() });
    let wanted = wanted.map(|action| Action {
        handler: stand_in_for(action.handler, action.flags.cast_unsigned() as usize),
        ..action
    });
    let new = wanted.as_ref().map_or(ptr::null(), ptr::from_ref);
    let returned = libc_sigaction(signal, new, old);
    if returned == 0 && !old.is_null() {
        // SAFETY: libc has just written the record.
        unsafe { (*old).handler = handler_of((*old).handler) };
    }
    returned
}

/// libc's `siginterrupt`: takes SA_RESTART from a handler or gives it one.
///
/// # Safety
/// As for siginterrupt(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int {
    type Siginterrupt = unsafe extern "C" fn(c_int, c_int) -> c_int;
    let next = SIGINTERRUPT.find();
    if next == 0 {
        libc::set_errno(ENOSYS);
        return -1;
    }
    // libc keeps in mind what later calls of `signal` are to do, and changes the flags of what the kernel has.
    // SAFETY: the address is that of libc's siginterrupt, which has this type.
    let returned = unsafe { core::mem::transmute::<usize, Siginterrupt>(next)(signal, interrupt) };
    if returned == 0 && interrupt != 0 {
        wrap(signal);
    }
    returned
}

/// Has the kernel get a stand-in for the handler that it has, if that needs one.
fn wrap(signal: c_int) {
    let mut now = Action {
        handler: 0,
        mask: [0; 16],
        flags: 0,
        restorer: 0,
    };
    let is_known = libc_sigaction(signal, ptr::null(), &raw mut now) == 0;
    if is_known && stand_in_for(now.handler, now.flags.cast_unsigned() as usize) != now.handler {
        act(signal, &raw const now, ptr::null_mut());
    }
}

/// Sets a handler by another function of libc, which may leave SA_RESTART out.
fn set_by(next: &Next, signal: c_int, handler: usize) -> usize {
    type Signal = unsafe extern "C" fn(c_int, usize) -> usize;
    let function = next.find();
    if function == 0 {
        libc::set_errno(ENOSYS);
        return SIG_ERR;
    }
    // SAFETY: the address is that of a function of this type.
    let before = unsafe { core::mem::transmute::<usize, Signal>(function)(signal, handler) };
    if before != SIG_ERR {
        wrap(signal);
    }
    handler_of(before)
}

/// libc's `signal`.
///
/// # Safety
/// As for signal(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    set_by(&SIGNAL, signal, handler)
}

/// libc's `signal` of System V, for programs that are compiled for strict ISO C.
///
/// # Safety
/// As for sysv_signal(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    set_by(&SYSV_SIGNAL, signal, handler)
}

#[cfg(test)]
#[path = "signals/tests.rs"]
mod tests;
