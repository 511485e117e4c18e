//! The handle of an arena: making and destroying it.

use std::ffi::{CStr, c_char, c_int};

use vswap_arena::{Arena, Builder, Heap};

use crate::failure::{Failure, code_of};
use crate::options::{Options, parse};

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

/// Makes an arena and writes its handle to `made`, or null.
///
/// # Safety
/// `made` is null or can be written to.
unsafe fn create(
    made: *mut *mut Handle,
    builder: impl FnOnce() -> Result<Builder, Failure>,
) -> Result<(), Failure> {
    if made.is_null() {
        return Err(Failure::argument(
            "the place for the arena is NULL: pass the address of a pointer",
        ));
    }
    // SAFETY: the caller passes a place for a pointer. Whoever does not look at the result has null then.
    unsafe { made.write(std::ptr::null_mut()) };
    let arena = builder()?.build()?;
    let heap = arena.heap();
    let boxed = Box::new(Handle { arena, heap });
    // SAFETY: as above.
    unsafe { made.write(Box::into_raw(boxed)) };
    Ok(())
}

/// Makes an arena.
///
/// # Safety
/// `options` is null or has as many bytes as its `size` says, and its directory is null or a string. `made` is null or
/// can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_create(options: *const Options, made: *mut *mut Handle) -> c_int {
    let builder = || {
        // SAFETY: the caller's promise.
        let options = unsafe { Options::read(options) }?;
        // SAFETY: the caller's promise.
        unsafe { options.builder() }
    };
    // SAFETY: the caller's promise.
    code_of(unsafe { create(made, builder) })
}

/// Makes an arena as a text says.
///
/// # Safety
/// `text` is null or a string. `made` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_create_from_text(
    text: *const c_char,
    made: *mut *mut Handle,
) -> c_int {
    let builder = || {
        if text.is_null() {
            return Err(Failure::argument(
                "the text is NULL: pass one like \"ram=512M\"",
            ));
        }
        // SAFETY: the caller passes a string.
        parse(unsafe { CStr::from_ptr(text) })
    };
    // SAFETY: the caller's promise.
    code_of(unsafe { create(made, builder) })
}

/// Ends an arena, with all that was allocated from it.
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
