//! Sets of registers, by the kernel's number of them.

use std::io;
use std::ptr;

use crate::inject::request::request;

/// Reads a set to `place`, which is large enough for every kind of it that is asked for, and returns its length.
pub fn read<T: Copy>(tid: i32, set: usize, place: &mut [T]) -> io::Result<usize> {
    let mut span = libc::iovec {
        iov_base: place.as_mut_ptr().cast(),
        iov_len: size_of_val(place),
    };
    let span_at = (&raw mut span).expose_provenance();
    request(libc::PTRACE_GETREGSET, tid, set, span_at)?;
    Ok(span.iov_len)
}

/// Writes a set.
pub fn write<T: Copy>(tid: i32, set: usize, value: &[T]) -> io::Result<()> {
    let span = libc::iovec {
        iov_base: value.as_ptr().cast_mut().cast(),
        iov_len: size_of_val(value),
    };
    let span_at = ptr::from_ref(&span).expose_provenance();
    request(libc::PTRACE_SETREGSET, tid, set, span_at)
}
