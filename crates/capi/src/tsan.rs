//! What ThreadSanitizer has to know: memory that one thread frees may be another's next, and that is no race.
//!
//! The locks that order the two are the library's, which TSan does not see. Without TSan in the process this is a look
//! at a word.
//!
//! Unsafe is needed here because TSan's functions are found by their names.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

type Hook = unsafe extern "C" fn(*mut c_void);

struct Hooks {
    acquire: Hook,
    release: Hook,
}

/// What all frees come before, and all allocations after. One for all arenas, as the lock of a malloc would be.
static MARK: u8 = 0;

fn find(name: &CStr) -> Option<Hook> {
    // SAFETY: the name is a string, and nothing is loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: both functions have this type in every version of TSan's interface.
    Some(unsafe { std::mem::transmute::<*mut c_void, Hook>(found) })
}

fn hooks() -> Option<&'static Hooks> {
    static HOOKS: OnceLock<Option<Hooks>> = OnceLock::new();
    let find_both = || {
        let (acquire, release) = (find(c"__tsan_acquire")?, find(c"__tsan_release")?);
        Some(Hooks { acquire, release })
    };
    HOOKS.get_or_init(find_both).as_ref()
}

/// The calling thread is about to free memory.
pub fn frees() {
    if let Some(hooks) = hooks() {
        // SAFETY: TSan takes any address, as a name, and does not look at what is there.
        unsafe { (hooks.release)((&raw const MARK).cast_mut().cast()) };
    }
}

/// The calling thread has got memory.
pub fn allocated() {
    if let Some(hooks) = hooks() {
        // SAFETY: as above.
        unsafe { (hooks.acquire)((&raw const MARK).cast_mut().cast()) };
    }
}
