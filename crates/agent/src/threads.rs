//! `pthread_create`, so that the pager knows every thread's control block before the thread runs code of the program.
//!
//! The kernel writes into the control block while a thread exits (its id for whoever joins it, robust mutexes). By then
//! it cannot wait for a fault any more, so the page must never be evicted: it is pinned by its address in the ring.
//! Program threads only. Takes no lock.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use crate::libc;
use crate::raw;
use crate::ring::{PINS_MAX, Ring};
use crate::state::{STATE, Start, phase};

type Create = unsafe extern "C" fn(*mut usize, *const c_void, usize, usize) -> c_int;

/// EAGAIN of pthread_create: "not enough resources".
const NO_RESOURCES: c_int = 11;

/// libc's `pthread_create`, with a few instructions before the routine.
///
/// # Safety
/// As for pthread_create(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut usize,
    attributes: *const c_void,
    routine: usize,
    argument: usize,
) -> c_int {
    let Some(create) = next_create() else {
        return NO_RESOURCES;
    };
    // SAFETY: the address is that of libc's pthread_create, which has this type.
    let create = unsafe { core::mem::transmute::<usize, Create>(create) };
    let slot = match STATE.phase.load(Ordering::Relaxed) {
        phase::OFF => None,
        _ => claim(routine, argument),
    };
    let Some(slot) = slot else {
        // SAFETY: the caller's own call.
        let failed = unsafe { create(thread, attributes, routine, argument) };
        if failed == 0 && STATE.phase.load(Ordering::Relaxed) != phase::OFF {
            // Every libc that there is uses the address of the control block as the name of the thread.
            // SAFETY: it was written by the call.
            pin(unsafe { thread.read() } as u64);
        }
        return failed;
    };
    let trampoline: extern "C" fn() = trampoline;
    // SAFETY: the trampoline takes the slot and goes on to the caller's routine.
    let failed = unsafe {
        create(
            thread,
            attributes,
            trampoline as usize,
            core::ptr::from_ref(slot).addr(),
        )
    };
    if failed != 0 {
        slot.claimed.store(0, Ordering::Release);
    }
    failed
}

/// Looks `pthread_create` up; threads may be started before the constructor has.
pub fn next_create() -> Option<usize> {
    let known = STATE.pthread_create.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let found = libc::next_symbol(c"pthread_create")?;
    STATE.pthread_create.store(found, Ordering::Relaxed);
    Some(found)
}

fn claim(routine: usize, argument: usize) -> Option<&'static Start> {
    let free = |slot: &&Start| {
        slot.claimed
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    };
    let slot = STATE.starts.iter().find(free)?;
    slot.routine.store(routine, Ordering::Relaxed);
    slot.argument.store(argument, Ordering::Relaxed);
    Some(slot)
}

/// First code of a new thread. Leaves no frame behind: the routine is jumped to, as if libc had called it.
#[unsafe(naked)]
extern "C" fn trampoline() {
    naked_asm!(
        "push rax",
        "call {enter}",
        "pop rcx",
        "mov rdi, rdx",
        "jmp rax",
        enter = sym enter,
    )
}

/// Comes back in rax and rdx.
#[repr(C)]
struct Routine {
    routine: usize,
    argument: usize,
}

extern "C" fn enter(slot: &'static Start) -> Routine {
    let routine = Routine {
        routine: slot.routine.load(Ordering::Relaxed),
        argument: slot.argument.load(Ordering::Relaxed),
    };
    slot.claimed.store(0, Ordering::Release);
    pin_self();
    routine
}

/// Pins the calling thread's control block.
pub fn pin_self() {
    // SAFETY: the callers are threads of libc.
    pin(unsafe { raw::fs_base() } as u64);
}

/// Records early if the ring is not there, and in the ring if it is there after that: whoever publishes the ring copies
/// the early ones afterwards, so one of the two sees the other.
fn pin(address: u64) {
    let ring = match STATE.ring() {
        Some(ring) => Some(ring),
        None => {
            for word in &STATE.early_pins {
                match word.compare_exchange(0, address, Ordering::SeqCst, Ordering::SeqCst) {
                    Err(other) if other != address => {}
                    _ => break,
                }
            }
            STATE.ring()
        }
    };
    if let Some(ring) = ring {
        pin_in(ring, address);
    }
}

fn pin_in(ring: &Ring, address: u64) {
    let mut count = 0_u32;
    for word in &ring.pins {
        count = count.wrapping_add(1);
        match word.compare_exchange(0, address, Ordering::SeqCst, Ordering::SeqCst) {
            Err(other) if other != address => {}
            _ => {
                ring.pin_count.fetch_max(count, Ordering::SeqCst);
                return;
            }
        }
    }
    // Says that some are lost.
    ring.pin_count.fetch_max(PINS_LOST, Ordering::SeqCst);
}

#[allow(clippy::cast_possible_truncation, reason = "checked below")]
const PINS_LOST: u32 = PINS_MAX as u32 + 1;
const _: () = assert!(PINS_MAX < u32::MAX as usize);

/// Copies what was recorded before the ring was there. Called after it was published.
pub fn record_early_pins(ring: &Ring) {
    for word in &STATE.early_pins {
        let address = word.load(Ordering::SeqCst);
        if address != 0 {
            pin_in(ring, address);
        }
    }
}

/// In a forked child, whose other threads are gone.
pub fn forget_others() {
    for word in &STATE.early_pins {
        word.store(0, Ordering::SeqCst);
    }
    for slot in &STATE.starts {
        slot.claimed.store(0, Ordering::SeqCst);
    }
}
