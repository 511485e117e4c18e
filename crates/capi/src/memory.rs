//! Memory as malloc gives it: whoever frees it does not say its size.

use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr::NonNull;

use crate::failure::{Failure, end, note, set_errno};
use crate::handle::{Handle, handle};
use crate::tsan;

/// No wish: the arena aligns all memory for the types of C.
const ANY_ALIGN: usize = 1;

fn layout(bytes: usize, align: usize) -> Result<Layout, Failure> {
    if !align.is_power_of_two() {
        return Err(Failure::argument(format!(
            "an alignment of {align}: pass a power of two"
        )));
    }
    Layout::from_size_align(bytes, align).map_err(|_| Failure::too_large(bytes))
}

/// The address for C: null and errno where there is none.
pub fn give_out(place: Result<NonNull<u8>, Failure>) -> *mut c_void {
    match place {
        Ok(place) => {
            tsan::allocated();
            place.as_ptr().cast()
        }
        Err(failure) => {
            let errno = failure.errno();
            note(failure);
            // As malloc says it, whatever else is in the text.
            set_errno(if errno == libc::EINVAL {
                errno
            } else {
                libc::ENOMEM
            });
            std::ptr::null_mut()
        }
    }
}

/// As malloc.
///
/// # Safety
/// `arena` is null or a handle that is not destroyed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_malloc(arena: *mut Handle, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    give_out(unsafe { handle(arena) }.and_then(|held| {
        let layout = layout(bytes, ANY_ALIGN)?;
        Ok(held.heap.allocate(layout)?)
    }))
}

/// As calloc.
///
/// # Safety
/// As [`vswap_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_calloc(
    arena: *mut Handle,
    count: usize,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    give_out(unsafe { handle(arena) }.and_then(|held| {
        let all = count.checked_mul(bytes);
        let all = all.ok_or_else(|| Failure::too_large(format!("{count} times {bytes}")))?;
        Ok(held.heap.allocate_zeroed(layout(all, ANY_ALIGN)?)?)
    }))
}

/// As aligned_alloc, for any size.
///
/// # Safety
/// As [`vswap_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_aligned_alloc(
    arena: *mut Handle,
    align: usize,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    give_out(unsafe { handle(arena) }.and_then(|held| {
        let layout = layout(bytes, align)?;
        Ok(held.heap.allocate(layout)?)
    }))
}

/// As realloc; no bytes are as one.
///
/// # Safety
/// As [`vswap_malloc`], and `memory` is null or nobody uses it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_realloc(
    arena: *mut Handle,
    memory: *mut c_void,
    bytes: usize,
) -> *mut c_void {
    if memory.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { vswap_malloc(arena, bytes) };
    }
    // SAFETY: the caller's promise.
    let moved = unsafe { handle(arena) }.and_then(|held| {
        tsan::frees();
        // SAFETY: nobody else uses the memory. If it is none, that is an error.
        let moved = unsafe { held.heap.reallocate(memory.addr(), bytes) };
        Ok(moved?)
    });
    match moved {
        Err(failure) if failure.is_misuse() => end("vswap_realloc", memory.addr(), &failure),
        moved => give_out(moved),
    }
}

/// As free.
///
/// # Safety
/// As [`vswap_malloc`], and nobody uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_free(arena: *mut Handle, memory: *mut c_void) {
    if memory.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let freed = unsafe { handle(arena) }.and_then(|held| {
        if held.heap.is_of_parent() {
            return Ok(());
        }
        tsan::frees();
        // SAFETY: nobody uses the memory. If it is none, that is an error.
        Ok(unsafe { held.heap.free(memory.addr()) }?)
    });
    if let Err(failure) = freed {
        end("vswap_free", memory.addr(), &failure);
    }
}

/// How many bytes can be used there; 0 for null and for what is no allocation.
///
/// # Safety
/// As [`vswap_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_usable_size(arena: *mut Handle, memory: *const c_void) -> usize {
    if memory.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let usable =
        unsafe { handle(arena) }.and_then(|held| Ok(held.heap.usable_bytes(memory.addr())?));
    usable.unwrap_or_else(|failure| {
        note(failure);
        0
    })
}
