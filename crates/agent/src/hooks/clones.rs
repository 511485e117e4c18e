//! `_Fork`, `clone` and `syscall`: these make children without the hooks of fork. Here such a child gets an agent all
//! the same.
//!
//! Only calls that make a child with memory of its own matter. They go through the hooks as fork does. Every other call
//! jumps on to libc with its registers as they were. glibc's own fork uses its internal `_Fork`, not this one, so no
//! hook runs twice. For program threads only; also in signal handlers, from which `_Fork` may be called.
//!
//! Not covered: a child of the bare instruction, a child with a stack of its own by `syscall`, and the rare CLONE_VFORK
//! and CLONE_SETTLS without CLONE_VM. The pager serves those without an agent, see ARCHITECTURE.md, Forks.
//!
//! Unsafe is needed here because the calls are C functions found by name at run time, and their registers have to pass
//! through unchanged, which takes assembly.

// The functions `clone`, `__clone` and `syscall` themselves.
#[cfg_attr(target_arch = "x86_64", path = "clones/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "clones/aarch64.rs")]
mod machine;

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::base::kernel::{ENOSYS, call, is_readable};
use crate::base::libc;
use crate::hooks::{alone, fork, sandbox};
use crate::raw;
use crate::state::STATE;

const CLONE_VM: usize = 0x100;
const CLONE_VFORK: usize = 0x4000;
const CLONE_SETTLS: usize = 0x8_0000;
/// A call with any of these flags passes on unchanged.
const UNTOUCHED: usize = CLONE_VM | CLONE_VFORK | CLONE_SETTLS;
const SIGCHLD: usize = 17;
/// Offsets of fields of `clone_args`, and the size of its first version in bytes.
const CLONE_ARGS_FLAGS: usize = 0;
const CLONE_ARGS_STACK: usize = 40;
const CLONE_ARGS_BYTES_LEAST: usize = 64;

/// The arguments of a call, as many as one has at most.
type Arguments = [usize; 7];

/// What happens to a call.
#[repr(C)]
struct Verdict {
    /// Address to jump to; 0 if the call has been carried out.
    onward: usize,
    /// What a call that has been carried out returns.
    returned: isize,
}

/// Where `syscall` jumps to. In `.data`, like everything of the agent.
#[unsafe(link_section = ".data")]
static NEXT_SYSCALL: AtomicPtr<()> = AtomicPtr::new(machine::plain_syscall as *mut ());

/// Looks libc's functions up. Called by the constructor. Calls that come before it work all the same.
pub fn find() {
    find_next(&STATE.libc_clone, c"clone");
    find_next(&STATE.libc_fork, c"_Fork");
    if let Some(next) = libc::next_symbol(c"syscall") {
        NEXT_SYSCALL.store(
            core::ptr::with_exposed_provenance_mut(next),
            Ordering::Relaxed,
        );
    }
}

fn find_next(word: &AtomicUsize, name: &CStr) -> Option<usize> {
    let known = word.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let found = libc::next_symbol(name)?;
    word.store(found, Ordering::Relaxed);
    Some(found)
}

/// Calls `make`, which makes a child, between the hooks. In the child it returns on a copy of the stack.
fn with_hooks(make: impl FnOnce() -> isize) -> isize {
    fork::prepare();
    let returned = make();
    if returned == 0 {
        fork::child();
    } else {
        fork::parent();
    }
    returned
}

fn failed(errno: c_int) -> isize {
    libc::set_errno(errno);
    -1
}

/// libc's `_Fork`: fork without the handlers of `pthread_atfork`. The agent's own handlers run all the same.
///
/// # Safety
/// As for _Fork(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> c_int {
    type Fork = unsafe extern "C" fn() -> c_int;
    let Some(next) = find_next(&STATE.libc_fork, c"_Fork") else {
        libc::set_errno(ENOSYS);
        return -1;
    };
    // SAFETY: the address is that of libc's _Fork, which has this type.
    let pid = with_hooks(|| unsafe { core::mem::transmute::<usize, Fork>(next)() } as isize);
    i32::try_from(pid).unwrap_or(-1)
}

extern "C" fn set_errno(errno: c_int) {
    libc::set_errno(errno);
}

/// What a child of `clone` is to run. It lies on the parent's stack, of which the child has a copy.
#[repr(C)]
struct Routine {
    routine: extern "C" fn(usize) -> c_int,
    argument: usize,
}

extern "C" fn judge_clone(arguments: &Arguments) -> Verdict {
    type Entry = extern "C" fn(&Routine) -> c_int;
    type Clone =
        unsafe extern "C" fn(Entry, usize, c_int, *const Routine, usize, usize, usize) -> c_int;
    let [routine, stack, flags, argument, parent_tid, tls, child_tid] = *arguments;
    let Some(next) = find_next(&STATE.libc_clone, c"clone") else {
        return done(failed(ENOSYS));
    };
    if flags & UNTOUCHED != 0 || routine == 0 || stack == 0 {
        return onward(next);
    }
    // SAFETY: the program passed the address as a function of this type.
    let routine = unsafe { core::mem::transmute::<usize, extern "C" fn(usize) -> c_int>(routine) };
    let routine = Routine { routine, argument };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "flags are an int"
    )]
    let flags = flags as c_int;
    fork::prepare();
    // SAFETY: the address is that of libc's clone. The arguments are the program's, except for what the child runs
    // first.
    let pid = unsafe {
        core::mem::transmute::<usize, Clone>(next)(
            begin_child,
            stack,
            flags,
            &raw const routine,
            parent_tid,
            tls,
            child_tid,
        )
    };
    fork::parent();
    done(pid as isize)
}

/// The child of `clone` starts here. The returned value is the child's exit status.
extern "C" fn begin_child(routine: &Routine) -> c_int {
    fork::child();
    (routine.routine)(routine.argument)
}

extern "C" fn judge_syscall(arguments: &Arguments) -> Verdict {
    let [number, a, b, c, d, e, f] = *arguments;
    let (flags, stack) = match number {
        call::SECCOMP => return returned(sandbox::seccomp([a, b, c, d, e, f])),
        call::UNSHARE | call::SETNS => return returned(alone::carry_out([number, a, b])),
        call::FORK => (SIGCHLD, 0),
        call::CLONE => (a, b),
        // An invalid record goes on to the kernel, which refuses it.
        _ => clone_args(a, b).unwrap_or((UNTOUCHED, 0)),
    };
    // A child with a stack of its own would return to an address that is not on that stack.
    if flags & UNTOUCHED != 0 || stack != 0 {
        return onward(NEXT_SYSCALL.load(Ordering::Relaxed).addr());
    }
    // SAFETY: the program asked for exactly this call, and the child goes on with a copy of this stack.
    let made = with_hooks(|| unsafe { raw::syscall6(number, [a, b, c, d, e, f]) });
    returned(made)
}

/// Turns what the kernel returned into what `syscall` returns.
fn returned(value: isize) -> Verdict {
    match raw::result(value) {
        Ok(_) => done(value),
        Err(errno) => done(failed(errno)),
    }
}

/// Flags and stack of a `clone_args`, if it can be read.
fn clone_args(address: usize, bytes: usize) -> Option<(usize, usize)> {
    if bytes < CLONE_ARGS_BYTES_LEAST {
        return None;
    }
    let [flags, stack] = [CLONE_ARGS_FLAGS, CLONE_ARGS_STACK].map(|field| {
        let field = address.wrapping_add(field);
        is_readable(field).then(|| {
            // SAFETY: the kernel has just read a word there. The word is the program's, so it is read by address.
            unsafe { core::ptr::with_exposed_provenance::<usize>(field).read_unaligned() }
        })
    });
    Some((flags?, stack?))
}

fn onward(address: usize) -> Verdict {
    Verdict {
        onward: address,
        returned: 0,
    }
}

fn done(returned: isize) -> Verdict {
    Verdict {
        onward: 0,
        returned,
    }
}

#[cfg(test)]
#[path = "clones/tests.rs"]
mod tests;
