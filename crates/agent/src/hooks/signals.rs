//! `sigaction` and its like: a signal must not end a call that the filter has stopped.
//!
//! A call that stops in the filter can be interrupted until the pager has received it; from then on the kernel waits
//! for the answer. With SA_RESTART the call is made again after the handler. Without it the call returns EINTR, which
//! brk, mmap and the others never do natively, so nobody is prepared for it: malloc takes the EINTR of brk for an
//! address.
//!
//! So the kernel gets [`enter`] in place of a handler without SA_RESTART. It runs on the handler's stack, looks at what
//! was interrupted, and jumps to the program's handler with everything as the kernel has left it. If a call of ours was
//! cut short, the thread will make it again when the handler returns. Only libc's own calls are recognised: there the
//! number is loaded just before the instruction. The program never sees [`enter`]: when it asks for its handler it gets
//! its own.
//!
//! Not covered: programs without these hooks (their agent was attached), and other ways to make such a call.
//!
//! Unsafe is needed here because the records are the kernel's and the program's, and the functions of libc are found by
//! name at run time.

use core::arch::naked_asm;
use core::ffi::{CStr, c_int};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::call;
use crate::base::kernel::{EINTR, ENOSYS, is_readable};
use crate::base::libc;

const SIGNALS: usize = 65;
const SA_RESTART: c_int = 0x1000_0000;
/// SIG_DFL and SIG_IGN are 0 and 1, SIG_ERR is the last address.
const SIG_IGN: usize = 1;
const SIG_ERR: usize = usize::MAX;

/// The program's handlers for which the kernel has [`enter`]. A handler that is replaced stays: a thread may be on its
/// way to it.
#[unsafe(link_section = ".data")]
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];

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

/// Offsets in the `ucontext_t` that the kernel gives a handler, in bytes.
const RAX: usize = 144;
const RIP: usize = 168;

/// How libc makes a call: `mov eax, number` and `syscall`.
const CALL_BYTES: usize = 7;
const MOV_EAX: u8 = 0xb8;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The calls that the filter may stop and that never return EINTR natively.
const RESTARTED: [u32; 13] = [
    call::BRK,
    call::MMAP,
    call::MREMAP,
    call::MADVISE,
    call::PROCESS_MADVISE,
    call::CLONE,
    call::CLONE3,
    call::FORK,
    call::EXIT,
    call::SET_TID_ADDRESS,
    call::IO_URING_SETUP,
    call::SECCOMP,
    call::PTRACE,
];

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

fn own() -> usize {
    (enter as *const ()).addr()
}

fn handler_of(signal: c_int) -> Option<&'static AtomicUsize> {
    HANDLERS.get(usize::try_from(signal).unwrap_or(SIGNALS))
}

/// What the program takes for its handler: its own where the kernel has ours.
fn seen(kernels: usize, before: usize) -> usize {
    if kernels == own() { before } else { kernels }
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

/// Does the kernel get [`enter`] for this handler?
fn is_wrapped(handler: usize, flags: c_int) -> bool {
    handler > SIG_IGN && handler != SIG_ERR && handler != own() && flags & SA_RESTART == 0
}

extern "C" fn act(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    let Some(handler) = handler_of(signal) else {
        return libc_sigaction(signal, new, old);
    };
    let before = handler.load(Ordering::SeqCst);
    // SAFETY: the program passed it as such a record. libc reads it in the same way.
    let wanted = (!new.is_null()).then(|| unsafe { new.read_unaligned() });
    let wrapped = wanted.filter(|action| is_wrapped(action.handler, action.flags));
    let returned = match wrapped {
        Some(action) => {
            // Before the kernel has ours, which would find none.
            handler.store(action.handler, Ordering::SeqCst);
            let ours = Action {
                handler: own(),
                ..action
            };
            libc_sigaction(signal, &raw const ours, old)
        }
        None => libc_sigaction(signal, new, old),
    };
    if returned != 0 && wrapped.is_some() {
        handler.store(before, Ordering::SeqCst);
    }
    if returned == 0 && !old.is_null() {
        // SAFETY: libc has just written the record.
        unsafe { (*old).handler = seen((*old).handler, before) };
    }
    returned
}

/// libc's `sigaction`.
///
/// # Safety
/// As for sigaction(2).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction() {
    naked_asm!("jmp {act}", act = sym act)
}

/// The other name of `sigaction`.
///
/// # Safety
/// As for sigaction(2).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction() {
    naked_asm!("jmp {act}", act = sym act)
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

/// Has the kernel get [`enter`] for the handler that it has, if that needs it.
fn wrap(signal: c_int) {
    let mut now = Action {
        handler: 0,
        mask: [0; 16],
        flags: 0,
        restorer: 0,
    };
    if libc_sigaction(signal, ptr::null(), &raw mut now) == 0 && is_wrapped(now.handler, now.flags)
    {
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
    let before = handler_of(signal).map_or(0, |handler| handler.load(Ordering::SeqCst));
    // SAFETY: the address is that of a function of this type.
    let kernels = unsafe { core::mem::transmute::<usize, Signal>(function)(signal, handler) };
    if kernels != SIG_ERR {
        wrap(signal);
    }
    seen(kernels, before)
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

/// What the kernel runs in place of a handler without SA_RESTART.
#[unsafe(naked)]
extern "C" fn enter() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {mend}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        mend = sym mend,
    )
}

/// Has a call of ours that was cut short made again, and returns the program's handler.
extern "C" fn mend(signal: c_int, _info: usize, context: usize) -> usize {
    let [rax, rip] = [RAX, RIP]
        .map(|register| ptr::with_exposed_provenance_mut::<usize>(context.wrapping_add(register)));
    // SAFETY: the kernel has made the context, and the thread goes on with what it holds.
    unsafe {
        if rax.read() == 0_usize.wrapping_sub(EINTR as usize) && is_stopped_call(rip.read()) {
            rip.write(rip.read().wrapping_sub(CALL_BYTES));
        }
    }
    handler_of(signal).map_or(0, |handler| handler.load(Ordering::SeqCst))
}

/// Does a call that the filter may stop end at this address?
fn is_stopped_call(end: usize) -> bool {
    let start = end.wrapping_sub(CALL_BYTES);
    if !is_readable(start) {
        return false;
    }
    // The instructions were just run; if they begin on the page before, that could be read too.
    // SAFETY: as said. The bytes are the program's, so they are read by address.
    let code = unsafe { ptr::with_exposed_provenance::<[u8; CALL_BYTES]>(start).read() };
    let [mov, a, b, c, d, first, second] = code;
    mov == MOV_EAX
        && [first, second] == SYSCALL
        && RESTARTED.contains(&u32::from_ne_bytes([a, b, c, d]))
}
