//! One request to ptrace, and what its failures mean.

use std::io;
use std::ptr;

use super::InjectError;

pub(super) fn request(what: libc::c_uint, tid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the callers' requests take numbers, or addresses of records that live in their frames and are as long as
    // the request says.
    let answer = unsafe {
        libc::ptrace(
            what,
            tid,
            ptr::with_exposed_provenance_mut::<libc::c_void>(address),
            ptr::with_exposed_provenance_mut::<libc::c_void>(data),
        )
    };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

pub(super) fn failed(error: io::Error) -> InjectError {
    match error.raw_os_error() {
        Some(libc::ESRCH) => InjectError::Gone,
        Some(libc::EBUSY) => InjectError::Busy,
        _ => InjectError::Ptrace(error),
    }
}
