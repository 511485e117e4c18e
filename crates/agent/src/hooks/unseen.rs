//! `dl_iterate_phdr` without the agent, so that a program sees its libraries in the order in which it was linked.
//!
//! Programs built with AddressSanitizer use it to check that the sanitizer's library is the first. If it is not, they
//! do not start: some functions that the sanitizer replaces would be used before it is ready. The agent defines none of
//! those, so it does no harm by being first. Everything else is passed on unchanged. Nobody misses the agent: no
//! exception passes through it, and debuggers look elsewhere. For program threads only. Takes no lock of its own.
//!
//! Unsafe is needed here because these are C functions with raw pointers, found by name at run time.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use crate::base::libc;
use crate::state::STATE;

/// Called for each library with a record of it, the record's length, and the caller's word.
type Visitor = unsafe extern "C" fn(*const Library, usize, *mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(Visitor, *mut c_void) -> c_int;

/// The first fields of `dl_phdr_info`.
#[repr(C)]
pub struct Library {
    /// The library's load bias: what is added to addresses in the file.
    base: usize,
    /// Its path, as the loader was given it.
    name: *const c_char,
}

/// The caller's visitor and word.
struct Caller {
    visitor: Visitor,
    word: *mut c_void,
}

unsafe extern "C" {
    /// The start of this library in memory; the linker defines it.
    static __ehdr_start: u8;
}

/// libc's `dl_iterate_phdr`, less the agent.
///
/// # Safety
/// As for dl_iterate_phdr(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dl_iterate_phdr(visitor: Visitor, word: *mut c_void) -> c_int {
    let Some(iterate) = next() else {
        // No library at all, as in a static program that knows of none.
        return 0;
    };
    let mut caller = Caller { visitor, word };
    // SAFETY: the address is that of libc's function, which has this type.
    let iterate = unsafe { core::mem::transmute::<usize, Iterate>(iterate) };
    // SAFETY: libc calls `visit` only during this call, and `caller` lives longer.
    unsafe { iterate(visit, (&raw mut caller).cast()) }
}

/// Libraries may ask before the constructor has run, so this looks the function up if need be.
fn next() -> Option<usize> {
    let known = STATE.dl_iterate_phdr.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let found = libc::next_symbol(c"dl_iterate_phdr")?;
    STATE.dl_iterate_phdr.store(found, Ordering::Relaxed);
    Some(found)
}

/// Looks libc's function up now: later it may be called where nothing can be looked up.
pub fn look_up() {
    next();
}

/// Keeps the path of the agent's own file. Called by the constructor.
pub fn remember_path() {
    if let Some(iterate) = next() {
        // SAFETY: the address is that of libc's function, which has this type.
        let iterate = unsafe { core::mem::transmute::<usize, Iterate>(iterate) };
        // SAFETY: `remember` takes the record that libc passes, and ignores the word.
        unsafe { iterate(remember, core::ptr::null_mut()) };
    }
}

unsafe extern "C" fn remember(library: *const Library, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: libc passes a pointer to a valid record of a library.
    let (base, name) = unsafe { ((*library).base, (*library).name) };
    if base != (&raw const __ehdr_start).addr() || name.is_null() {
        return 0;
    }
    // SAFETY: the name of a library is a C string, and libc keeps it during this call.
    STATE.remember_agent_path(unsafe { CStr::from_ptr(name) }.to_bytes());
    1
}

unsafe extern "C" fn visit(library: *const Library, bytes: usize, caller: *mut c_void) -> c_int {
    // SAFETY: libc passes a valid record of a library, which starts with the base.
    let base = unsafe { (*library).base };
    if base == (&raw const __ehdr_start).addr() {
        return 0;
    }
    // SAFETY: `dl_iterate_phdr` above passed its `Caller` as this word. The other arguments are libc's own.
    unsafe {
        let caller = &*caller.cast::<Caller>();
        (caller.visitor)(library, bytes, caller.word)
    }
}
