//! The four things of libc that the agent uses, each of which may be missing.
//!
//! They are weak references of the oldest symbol version, so that the library loads with any libc. A strong reference
//! or a newer version would make the loader refuse the whole program. Only the constructor and program threads may call
//! these.
//!
//! Unsafe is needed here because a symbol that may be missing cannot be declared as a function. It is an address from a
//! table that the loader fills, and only this file knows its type.

// What differs between machines.
#[cfg_attr(target_arch = "x86_64", path = "libc/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "libc/aarch64.rs")]
mod machine;

use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

// One table, so that the versions bind to these references wherever the compiler puts the code that uses them.
global_asm!(
    machine::versions!(),
    ".weak dlsym, environ, __errno_location, __register_atfork",
    ".pushsection .data.rel.ro.vswap_libc, \"aw\", @progbits",
    ".balign 8",
    ".hidden vswap_libc_table",
    ".globl vswap_libc_table",
    "vswap_libc_table:",
    ".quad dlsym, environ, __errno_location, __register_atfork",
    ".popsection",
);

unsafe extern "C" {
    static vswap_libc_table: [AtomicUsize; 4];
}

/// `RTLD_NEXT`: the symbol's next definition after this library.
const RTLD_NEXT: usize = usize::MAX;

/// A hook of `pthread_atfork`.
pub type Hook = extern "C" fn();

fn entry(index: usize) -> Option<usize> {
    // SAFETY: the table is defined above with four words, and the loader relocates it before any code of this library
    // runs.
    let table = unsafe { &vswap_libc_table };
    table
        .get(index)
        .map(|word| word.load(Ordering::Relaxed))
        .filter(|address| *address != 0)
}

/// Address of the next definition of `name` after this library's.
pub fn next_symbol(name: &CStr) -> Option<usize> {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let address = entry(0)?;
    // SAFETY: the address is that of `dlsym`, which has this type and takes RTLD_NEXT and a C string.
    let found = unsafe {
        core::mem::transmute::<usize, Dlsym>(address)(RTLD_NEXT as *mut c_void, name.as_ptr())
    };
    Some(found.addr()).filter(|address| *address != 0)
}

/// The program's environment as it is now; 0 without a libc that has one.
pub fn environ() -> usize {
    let Some(place) = entry(1) else { return 0 };
    // SAFETY: the address is that of `environ`, a variable of libc that is as large as a pointer. It is read without a
    // reference because the program may write it.
    unsafe { core::ptr::with_exposed_provenance::<usize>(place).read() }
}

/// The value of the environment variable whose name and `=` are `prefix`, without copying it.
pub fn environment(prefix: &[u8]) -> Option<&'static CStr> {
    let environ = entry(1)? as *const *const *const c_char;
    // SAFETY: `environ` is a variable of libc. It points to a null-terminated vector of C strings, and nobody changes
    // it while constructors run.
    unsafe {
        let mut variable = *environ;
        while !variable.is_null() && !(*variable).is_null() {
            let text = CStr::from_ptr(*variable);
            if text.to_bytes().starts_with(prefix) {
                return Some(CStr::from_ptr((*variable).add(prefix.len())));
            }
            variable = variable.add(1);
        }
    }
    None
}

/// Runs `work` and puts errno back to what it was before.
pub fn keeping_errno<R>(work: impl FnOnce() -> R) -> R {
    type Location = unsafe extern "C" fn() -> *mut c_int;
    let Some(address) = entry(2) else {
        return work();
    };
    // SAFETY: the address is that of `__errno_location`, which has this type and returns a word of the calling thread.
    let errno = unsafe { core::mem::transmute::<usize, Location>(address)() };
    // SAFETY: the word is the calling thread's own, so nobody else writes it.
    let before = unsafe { *errno };
    let answer = work();
    // SAFETY: as above.
    unsafe { *errno = before };
    answer
}

/// Sets errno of the calling thread.
pub fn set_errno(errno: c_int) {
    type Location = unsafe extern "C" fn() -> *mut c_int;
    let Some(address) = entry(2) else {
        return;
    };
    // SAFETY: the address is that of `__errno_location`, which has this type and returns a word of the calling thread.
    unsafe { *core::mem::transmute::<usize, Location>(address)() = errno };
}

/// Registers hooks for fork; false if libc cannot.
pub fn register_atfork(prepare: Hook, parent: Hook, child: Hook) -> bool {
    type Register = unsafe extern "C" fn(Hook, Hook, Hook, *mut c_void) -> c_int;
    let Some(address) = entry(3) else {
        return false;
    };
    // SAFETY: the address is that of `__register_atfork`, which has this type. A null library handle means that the
    // hooks stay for good, as the library does.
    let failed = unsafe {
        core::mem::transmute::<usize, Register>(address)(
            prepare,
            parent,
            child,
            core::ptr::null_mut(),
        )
    };
    failed == 0
}
