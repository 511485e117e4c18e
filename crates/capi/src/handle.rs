//! The handle of an arena: making and destroying it.

use std::ffi::{c_char, c_int};

use vswap_arena::{Arena, ArenaError, Heap, Limits};

use crate::failure::{Failure, code_of};
use crate::options::{Options, parse, text};

/// What C has a pointer to, and cannot look into. Any number of threads may use it at the same time.
#[derive(Debug)]
pub struct Handle {
    pub arena: Arena,
    pub heap: Heap,
}

/// The handle behind a pointer.
///
/// # Safety
/// The pointer is null, or the handle was made and is not destroyed while the result is in use.
pub unsafe fn handle<'a>(arena: *const Handle) -> Result<&'a Handle, Failure> {
    // SAFETY: the caller passes null or a handle that is alive, to which nobody has a mutable reference.
    unsafe { arena.as_ref() }
        .ok_or_else(|| Failure::argument("arena is NULL: pass what vswap_create has made"))
}

/// Makes an arena, or another handle of one, and writes it to `made`, or null.
///
/// # Safety
/// `made` is null or can be written to.
unsafe fn create(
    made: *mut *mut Handle,
    arena: impl FnOnce() -> Result<Arena, Failure>,
) -> Result<(), Failure> {
    if made.is_null() {
        return Err(Failure::argument(
            "the place for the arena is NULL: pass the address of a pointer",
        ));
    }
    // SAFETY: the caller passes a place for a pointer. Whoever does not look at the result has null then.
    unsafe { made.write(std::ptr::null_mut()) };
    let arena = arena()?;
    let heap = arena.heap();
    let boxed = Box::new(Handle { arena, heap });
    // SAFETY: as above.
    unsafe { made.write(Box::into_raw(boxed)) };
    Ok(())
}

/// Makes an arena.
///
/// # Safety
/// `options` is null or has as many bytes as its `size` says, and its texts are null or strings. `made` is null or
/// can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_create(options: *const Options, made: *mut *mut Handle) -> c_int {
    let arena = || {
        // SAFETY: the caller's promise.
        let options = unsafe { Options::read(options) }?;
        // SAFETY: the caller's promise.
        Ok(unsafe { options.builder() }?.build()?)
    };
    // SAFETY: the caller's promise.
    code_of(unsafe { create(made, arena) })
}

/// Makes an arena as a text says.
///
/// # Safety
/// `said` is null or a string. `made` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_create_from_text(
    said: *const c_char,
    made: *mut *mut Handle,
) -> c_int {
    let arena = || {
        if said.is_null() {
            return Err(Failure::argument(
                "the text is NULL: pass one like \"ram=512M\"",
            ));
        }
        // SAFETY: the caller passes a string.
        Ok(parse(unsafe { text(said) })?.build()?)
    };
    // SAFETY: the caller's promise.
    code_of(unsafe { create(made, arena) })
}

/// Makes a group of an arena, or another handle of it.
///
/// # Safety
/// `arena` is null or a handle that is not destroyed meanwhile, `name` and `limits` are null or strings. `made` is null
/// or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_group(
    arena: *mut Handle,
    name: *const c_char,
    limits: *const c_char,
    made: *mut *mut Handle,
) -> c_int {
    let group = || {
        // SAFETY: the caller's promise.
        let (held, name, limits) = unsafe { (handle(arena)?, text(name), text(limits)) };
        let utf8 = |_| Failure::argument("the name or the limits of the group are not UTF-8");
        let limits: Limits = limits.to_str().map_err(utf8)?.parse()?;
        Ok(held.arena.group(name.to_str().map_err(utf8)?, &limits)?)
    };
    // SAFETY: the caller's promise.
    code_of(unsafe { create(made, group) })
}

/// Writes what a group has.
///
/// # Safety
/// `group` is null or a handle that is not destroyed meanwhile. The places are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_group_usage(
    group: *mut Handle,
    pool_bytes: *mut u64,
    swap_bytes: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    code_of(unsafe { handle(group) }.and_then(|held| {
        if held.heap.is_of_parent() {
            return Err(ArenaError::Forked.into());
        }
        let found = held.arena.group_stats();
        let found = found.ok_or_else(|| {
            Failure::argument("this handle is no group's: pass what vswap_group has made")
        })?;
        for (place, bytes) in [
            (pool_bytes, found.pool_bytes),
            (swap_bytes, found.swap_bytes),
        ] {
            if !place.is_null() {
                // SAFETY: the caller passes a place for a number.
                unsafe { place.write(bytes) };
            }
        }
        Ok(())
    }))
}

/// Gives a handle up, and with the last one the arena, with all that was allocated from it.
///
/// # Safety
/// The pointer is null, or a handle that nobody uses any more, nor memory of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_destroy(arena: *mut Handle) {
    // SAFETY: the caller's promise.
    let Ok(held) = (unsafe { handle(arena) }) else {
        return;
    };
    // In the child of a fork the arena's threads and memory are not there to be ended. The handle is left as it is.
    if held.heap.is_of_parent() {
        return;
    }
    // SAFETY: the handle came out of a box, and the caller gives it up.
    drop(unsafe { Box::from_raw(arena) });
}
