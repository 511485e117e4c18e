//! SIGBUS in the thread that touched a page, for memory of this process that somebody here serves.
//!
//! One handler for the process, put in front of the one that was there. It asks `serve` about a fault at an address,
//! and goes on to the earlier handler with everything else: a mapped file that was cut, a broken memory module, a
//! signal that a process sent. It runs on the stack of the faulting thread, with all signals blocked: a handler of the
//! program that interrupted `serve` could touch a page that `serve` is just bringing. It allocates nothing, takes no
//! lock and leaves errno alone. Whoever installs a handler later must call this one for what is not theirs.
//!
//! [`Masked`] keeps handlers of the program from running in the middle of what they may come to wait for.
//!
//! Unsafe is needed here because rustix leaves dispositions and masks to libc, whose calls take pointers, and because
//! a handler gets its arguments as pointers.

#[cfg_attr(target_arch = "x86_64", path = "sigbus/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "sigbus/aarch64.rs")]
mod machine;

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Answers for a fault at an address, which is one of a write or perhaps not. True if the access may be repeated.
pub type Serve = fn(address: usize, is_write: bool) -> bool;

/// Signals that tell a thread of what it has just done. To block them would only make them deadly.
const OWN_FAULTS: [c_int; 6] = [
    libc::SIGBUS,
    libc::SIGSEGV,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Who serves, and whose handler comes after. Set before the handler is in place, and never changed.
struct Chain {
    serve: Serve,
    earlier: libc::sigaction,
}

static CHAIN: OnceLock<Chain> = OnceLock::new();
/// The earlier handler wanted to be called once only, and has been.
static USED_UP: AtomicBool = AtomicBool::new(false);

/// Puts the handler in place, once for the life of the process. A second call changes nothing.
///
/// # Errors
/// What the kernel says to the change.
pub fn install(serve: Serve) -> io::Result<()> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if CHAIN.get().is_some() {
        return Ok(());
    }
    let mut earlier = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null new action the call only writes the old one, which lives here.
    check(unsafe { libc::sigaction(libc::SIGBUS, core::ptr::null(), earlier.as_mut_ptr()) })?;
    // SAFETY: zeroed, and then written by the call.
    let earlier = unsafe { earlier.assume_init() };
    let _ = CHAIN.set(Chain { serve, earlier });
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_sigbus;
    // SAFETY: all of a sigaction may be zero.
    let mut ours: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    ours.sa_sigaction = handler as *const () as libc::sighandler_t;
    // Not on the alternative stack: threads have small ones, made for a last message.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the set lives here. The handler has the signature that SA_SIGINFO asks for and does only what a handler
    // may do.
    check(unsafe {
        libc::sigfillset(&raw mut ours.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const ours, core::ptr::null_mut())
    })
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Writes a text to standard error, as a handler may.
pub fn say(text: &str) {
    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
}

extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(chain) = CHAIN.get() else { return };
    // SAFETY: the kernel passes a siginfo that lives as long as the handler runs.
    let code = unsafe { (*info).si_code };
    if code == libc::BUS_ADRERR {
        // SAFETY: as above; a fault's siginfo has its address there.
        let address = unsafe { (*info).si_addr() }.addr();
        // SAFETY: the kernel passes the context of the interrupted thread.
        let is_write = unsafe { machine::may_be_write(context) };
        if (chain.serve)(address, is_write) {
            return;
        }
    }
    pass_on(&chain.earlier, signal, code, (info, context));
}

/// Does what would have happened without us.
fn pass_on(
    earlier: &libc::sigaction,
    signal: c_int,
    code: c_int,
    (info, context): (*mut libc::siginfo_t, *mut c_void),
) {
    let was_sent = code <= 0;
    let is_used_up =
        earlier.sa_flags & libc::SA_RESETHAND != 0 && USED_UP.swap(true, Ordering::Relaxed);
    match earlier.sa_sigaction {
        libc::SIG_IGN if was_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => end_by(signal, was_sent),
        _ if is_used_up => end_by(signal, was_sent),
        handler => {
            mask_as(earlier, signal, context);
            if earlier.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: the program gave this function to sigaction with SA_SIGINFO, so that is its type.
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { core::mem::transmute(handler) };
                handler(signal, info, context);
            } else {
                // SAFETY: as above, without SA_SIGINFO.
                let handler: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
                handler(signal);
            }
        }
    }
}

/// Has the signal end the process: the access is repeated, and nobody handles it then. One that was sent is not
/// repeated by itself, so it is sent again.
fn end_by(signal: c_int, was_sent: bool) {
    // SAFETY: all of a sigaction may be zero, and SIG_DFL runs no code of this process. raise takes any number.
    unsafe {
        let action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(signal, &raw const action, core::ptr::null_mut());
        if was_sent {
            libc::raise(signal);
        }
    }
}

/// Blocks the signals that would be blocked if the kernel had called the earlier handler.
fn mask_as(earlier: &libc::sigaction, signal: c_int, context: *mut c_void) {
    // SAFETY: the context is the kernel's, and its mask, of which the C library's type has more than the kernel writes,
    // is copied as the kernel has it: 64 signals, to be or-ed into a set that is initialised.
    unsafe {
        let context = context.cast::<libc::ucontext_t>();
        let mut mask = earlier.sa_mask;
        for other in 1..=64 {
            if libc::sigismember(&raw const (*context).uc_sigmask, other) == 1 {
                libc::sigaddset(&raw mut mask, other);
            }
        }
        if earlier.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&raw mut mask, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, core::ptr::null_mut());
    }
}

/// While this lives no handler of the program runs on this thread, but for what the thread itself does wrong.
pub struct Masked {
    before: libc::sigset_t,
    /// A mask belongs to its thread.
    of_thread: PhantomData<*mut ()>,
}

impl core::fmt::Debug for Masked {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Masked")
    }
}

impl Masked {
    /// Blocks the signals. They come when this is dropped. Masks lie in one another as their lifetimes do.
    #[must_use]
    pub fn new() -> Masked {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets live here. sigfillset initialises one, the numbers are valid, and the last call writes the
        // other. It cannot fail with these arguments; if it did, an empty set is initialised as well.
        let before = unsafe {
            libc::sigfillset(set.as_mut_ptr());
            for signal in OWN_FAULTS {
                libc::sigdelset(set.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Masked {
            before,
            of_thread: PhantomData,
        }
    }
}

impl Default for Masked {
    fn default() -> Masked {
        Masked::new()
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: the set was written when this was made. A null pointer asks for no old mask.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, core::ptr::null_mut());
        }
    }
}
