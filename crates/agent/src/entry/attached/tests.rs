//! The entry from outside runs with its parameters on the stack that it is given.

use core::ffi::c_int;

use super::*;
use crate::base::kernel::call;
use crate::registers_tests::start;
use crate::ring::RESERVATION_BYTES;

const IMAGE_BYTES: usize = 7 * PAGE_BYTES;
const PATH: &[u8] = b"/nowhere/at/all";

/// Ends the child, and says by its status whether the entry has taken over what the parameters say.
extern "C" fn look(_: c_int) {
    let base = STATE.base.load(Ordering::SeqCst);
    let is_there = base != 0
        && Reservation::at(base).was_made_here()
        && STATE.image_bytes.load(Ordering::SeqCst) == IMAGE_BYTES
        && STATE.entry.load(Ordering::SeqCst) == machine::vswap_attached as *const () as usize
        && STATE.entry_stack.load(Ordering::SeqCst) == base
        && STATE.socket_path_bytes().eq(PATH.iter().copied());
    // SAFETY: this ends the child.
    unsafe { ::libc::_exit(if is_there { 7 } else { 8 }) };
}

/// What the child does: it never comes back from the entry, so a signal ends it.
fn begin_in_child() -> Result<core::convert::Infallible, Errno> {
    let flags = 0x4022;
    // SAFETY: this makes a new mapping, without access.
    let base = unsafe { call(call::MMAP, [0, RESERVATION_BYTES, 0, flags, usize::MAX, 0]) }?;
    let mut path = [0; _];
    path[..PATH.len()].copy_from_slice(PATH);
    let parameters = Parameters {
        base,
        image_bytes: IMAGE_BYTES,
        origin: origin::EXEC,
        fork: 0,
        path_bytes: PATH.len(),
        path,
    };
    let parameters = (&raw const parameters).expose_provenance();
    let soon = ::libc::itimerval {
        it_interval: ::libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: ::libc::timeval {
            tv_sec: 0,
            tv_usec: 200_000,
        },
    };
    let mut stack = vec![0_usize; 4096];
    let stack_end = stack.as_mut_ptr_range().end.expose_provenance();
    // SAFETY: the handler only ends the child, and nobody else uses the stack.
    unsafe {
        ::libc::signal(::libc::SIGALRM, look as *const () as usize);
        ::libc::setitimer(::libc::ITIMER_REAL, &raw const soon, core::ptr::null_mut());
        start(
            machine::vswap_attached as *const (),
            parameters,
            stack_end & !15,
        )
    }
}

#[test]
fn the_entry_begins_as_its_parameters_say() {
    // SAFETY: the child only prepares a stack, and ends in the handler.
    let child = unsafe { ::libc::fork() };
    if child == 0 {
        let _ = begin_in_child();
        // SAFETY: this ends the child.
        unsafe { ::libc::_exit(9) };
    }
    let mut status = 0;
    // SAFETY: the status is a word on this stack.
    let waited = unsafe { ::libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 7 << 8));
}
