//! The entry for an agent that was put into a program from outside (ptrace), without a loader.
//!
//! Static programs, programs of another C library and programs without our LD_PRELOAD have no constructor that could
//! start the agent. vswap stops one of their threads, writes the relocated image of this library into the process and
//! has the thread run [`attached`] on a stack of its own. The image, that stack and the reservation are one mapping:
//!
//! ```text
//! image                                       base
//! | text, data | stack of this function       | reservation, see `state/reservation.rs` |
//! ```
//!
//! The pager is told that all of it is the agent's, so it never moves a page of it out. Nothing of libc is there: the
//! references to it are 0 (`base/libc.rs`), and its functions are not in front of ours. So forks of such a program pass
//! the hooks by. They stop in the filter instead, and the pager has the child run [`attached`] before it runs on. The
//! child has a copy of the image and of the stack, and makes a reservation in the place of its parent's.
//!
//! Where the kernel tells of no forks, the child of a program that the loader has given the agent begins here too, on
//! [`STACK`].

#[cfg_attr(target_arch = "x86_64", path = "attached/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "attached/aarch64.rs")]
mod machine;

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

use crate::base::kernel::{EINVAL, Errno, PAGE_BYTES, has_small_pages, parent_id};
use crate::hooks::fork;
use crate::raw;
use crate::ring::{ATTACHED_CALL, Parameters, origin};
use crate::state::reservation::Reservation;
use crate::state::{STATE, phase};
use crate::thread::{self, Origin};

/// Bytes of [`STACK`]. The parameters lie at its end.
const STACK_BYTES: usize = 4 * PAGE_BYTES;

/// A stack for [`attached`] in a library that the loader has loaded. In `.data`, which never leaves.
#[unsafe(link_section = ".data")]
static STACK: Stack = Stack(UnsafeCell::new([0; STACK_BYTES]));

#[repr(C, align(64))]
struct Stack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: this library never reads or writes it. It is a stack only for the only thread of a new process.
unsafe impl Sync for Stack {}

extern "C" fn attached(parameters: &Parameters) -> ! {
    let outcome = begin(parameters);
    let answer = outcome.err().unwrap_or(0).cast_unsigned() as usize;
    loop {
        // SAFETY: no system call has this number. The injector takes the thread back when it sees it.
        unsafe { raw::syscall1(ATTACHED_CALL, answer) };
    }
}

fn begin(parameters: &Parameters) -> Result<(), Errno> {
    if !has_small_pages() {
        return Err(EINVAL);
    }
    let origin = match parameters.origin {
        origin::FORKED => Origin::Forked,
        origin::INHERITED => Origin::Inherited,
        origin::COPIED => Origin::Copied,
        _ => Origin::Exec,
    };
    if parameters.base == 0 {
        STATE.fork_token.store(parameters.fork, Ordering::SeqCst);
        return fork::begin_followed_child(origin);
    }
    begin_image(origin, parameters)
}

/// This image is new here.
fn begin_image(origin: Origin, parameters: &Parameters) -> Result<(), Errno> {
    let path = parameters
        .path
        .get(..parameters.path_bytes)
        .unwrap_or_default();
    STATE.remember_socket_path(path);
    STATE
        .image_bytes
        .store(parameters.image_bytes, Ordering::Relaxed);
    STATE.parent.store(parent_id(), Ordering::Relaxed);
    remember_entry(parameters.base);
    let started = Reservation::prepare(parameters.base)
        .and_then(|reservation| thread::start_in(origin, reservation));
    if started.is_err() {
        STATE.phase.store(phase::OFF, Ordering::SeqCst);
    }
    started
}

/// Remembers where children begin, in a library that the loader has loaded.
pub fn remember_own_entry() {
    remember_entry(STACK.0.get().addr().wrapping_add(STACK_BYTES));
}

fn remember_entry(stack_end: usize) {
    let entry = (machine::vswap_attached as unsafe extern "C" fn() -> !) as *const ();
    STATE.entry.store(entry.addr(), Ordering::Relaxed);
    STATE.entry_stack.store(stack_end, Ordering::Relaxed);
}

#[cfg(test)]
#[path = "attached/tests.rs"]
mod tests;
