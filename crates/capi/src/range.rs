//! Ranges of memory: whole pages, pins, advice.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use vswap_arena::Advice;

use crate::failure::{Failure, code_of};
use crate::handle::{Handle, handle};
use crate::memory::give_out;
use crate::tsan;

/// Whole pages, zero at first.
///
/// # Safety
/// `arena` is null or a handle that is not destroyed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_map(arena: *mut Handle, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    give_out(unsafe { handle(arena) }.and_then(|held| Ok(held.heap.map(bytes)?)))
}

/// Gives back what `vswap_map` gave.
///
/// # Safety
/// As [`vswap_map`], and nobody uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_unmap(
    arena: *mut Handle,
    memory: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    code_of(unsafe { handle(arena) }.and_then(|held| {
        tsan::frees();
        // SAFETY: nobody uses the memory. If it is none, that is an error.
        Ok(unsafe { held.heap.unmap(memory.addr(), bytes) }?)
    }))
}

/// Does something with the addresses of some memory. No bytes are no addresses.
///
/// # Safety
/// As [`vswap_map`].
unsafe fn with_addresses(
    arena: *mut Handle,
    (memory, bytes): (*const c_void, usize),
    work: impl FnOnce(&Handle, Range<usize>) -> Result<(), Failure>,
) -> c_int {
    // SAFETY: the caller's promise.
    code_of(unsafe { handle(arena) }.and_then(|held| {
        if bytes == 0 {
            return Ok(());
        }
        let start = memory.addr();
        let end = start.checked_add(bytes);
        work(held, start..end.ok_or_else(|| Failure::too_large(bytes))?)
    }))
}

/// Keeps memory in RAM.
///
/// # Safety
/// As [`vswap_map`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_pin(
    arena: *mut Handle,
    memory: *const c_void,
    bytes: usize,
) -> c_int {
    let pin = |held: &Handle, addresses| Ok(held.heap.pin(addresses)?);
    // SAFETY: the caller's promise.
    unsafe { with_addresses(arena, (memory, bytes), pin) }
}

/// Ends one pin.
///
/// # Safety
/// As [`vswap_map`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_unpin(
    arena: *mut Handle,
    memory: *const c_void,
    bytes: usize,
) -> c_int {
    let unpin = |held: &Handle, addresses| Ok(held.heap.unpin(addresses)?);
    // SAFETY: the caller's promise.
    unsafe { with_addresses(arena, (memory, bytes), unpin) }
}

/// Says something of memory.
///
/// # Safety
/// As [`vswap_map`]. With `VSWAP_DROP` nobody counts on the content.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_advise(
    arena: *mut Handle,
    memory: *mut c_void,
    bytes: usize,
    advice: c_int,
) -> c_int {
    let advise = |held: &Handle, addresses| {
        let advice = match advice {
            0 => Advice::WillNeed,
            1 => Advice::Cold,
            2 => Advice::NeverSwap,
            3 => Advice::MaySwap,
            // SAFETY: nobody counts on the content.
            4 => return Ok(unsafe { held.heap.drop_content(addresses) }?),
            _ => {
                return Err(Failure::argument(format!(
                    "advice {advice} is unknown: pass one of enum vswap_advice"
                )));
            }
        };
        Ok(held.heap.advise(addresses, advice)?)
    };
    // SAFETY: the caller's promise.
    unsafe { with_addresses(arena, (memory, bytes), advise) }
}
