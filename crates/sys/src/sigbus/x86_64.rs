//! What a fault was on x86-64: the processor's error code says so.

use core::ffi::c_void;

/// Was the access a write?
///
/// # Safety
/// `context` is what the kernel passed to a handler with SA_SIGINFO.
pub unsafe fn may_be_write(context: *mut c_void) -> bool {
    /// The bit of a page fault's error code that says so.
    const WRITE: i64 = 1 << 1;
    let context = context.cast::<libc::ucontext_t>();
    let error_register = usize::try_from(libc::REG_ERR).unwrap_or(0);
    // SAFETY: the caller passes a ucontext of the kernel's.
    let error = unsafe { (&(*context).uc_mcontext.gregs)[error_register] };
    error & WRITE != 0
}
