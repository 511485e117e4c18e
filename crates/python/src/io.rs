//! read(2) and write(2) on memory that may be out.
//!
//! Memory is pinned a part at a time, so that little of it has to be in RAM at once.

use std::ops::Range;
use std::os::fd::RawFd;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyOSError, PyValueError};
use pyo3::prelude::*;
use vswap_arena::Passed;

use crate::failure::raised;
use crate::pinned::addresses;

/// What is pinned at a time.
const PART_BYTES: usize = 1 << 20;

/// The bytes of a buffer that is one piece.
fn bytes_of(buffer: &PyUntypedBuffer) -> PyResult<Range<usize>> {
    if buffer.is_c_contiguous() || buffer.is_fortran_contiguous() {
        Ok(addresses(buffer))
    } else {
        Err(PyBufferError::new_err(
            "the memory is not one piece: pass a contiguous array, or copy it",
        ))
    }
}

/// A descriptor, or what has one.
fn descriptor(file: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    let number: RawFd = match file.extract() {
        Ok(number) => number,
        Err(_) => {
            // What is buffered comes before what is written past the buffer.
            if file.hasattr("flush")? {
                file.call_method0("flush")?;
            }
            file.call_method0("fileno")?.extract()?
        }
    };
    if number < 0 {
        return Err(PyValueError::new_err(
            "a descriptor below 0: pass an open file",
        ));
    }
    Ok(number)
}

/// Moves bytes part by part until all are moved, a part is the last, or a signal's handler raises.
fn in_parts(
    py: Python<'_>,
    all: Range<usize>,
    call: impl Fn(usize, usize) -> isize + Sync + Send,
) -> PyResult<usize> {
    let mut at = all.start;
    while at < all.end {
        let part = at..all.end.min(at.saturating_add(PART_BYTES));
        let moved = py.detach(|| {
            let _passed = Passed::new(part.clone()).map_err(|error| raised(&error))?;
            let moved = call(part.start, part.len());
            usize::try_from(moved).map_err(|_| PyErr::from(std::io::Error::last_os_error()))
        });
        match moved {
            Ok(0) => break,
            Ok(bytes) => at += bytes,
            Err(error) if is_interrupted(py, &error) => py.check_signals()?,
            Err(error) => return Err(error),
        }
    }
    Ok(at - all.start)
}

fn is_interrupted(py: Python<'_>, error: &PyErr) -> bool {
    let errno = || error.value(py).getattr("errno").ok()?.extract::<i32>().ok();
    error.is_instance_of::<PyOSError>(py) && errno() == Some(libc::EINTR)
}

/// Writes all bytes of an object to a file. Returns how many those were.
#[pyfunction]
#[pyo3(signature = (file, data, /))]
pub fn write(py: Python<'_>, file: &Bound<'_, PyAny>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
    let file = descriptor(file)?;
    let buffer = PyUntypedBuffer::get(data)?;
    in_parts(py, bytes_of(&buffer)?, move |start, bytes| {
        let from = std::ptr::with_exposed_provenance(start);
        // SAFETY: the buffer is held, and its memory with it. The descriptor is the caller's.
        unsafe { libc::write(file, from, bytes) }
    })
}

/// Reads from a file until an object's memory is full or the file ends. Returns how many bytes were read.
#[pyfunction]
#[pyo3(signature = (file, into, /))]
pub fn read_into(
    py: Python<'_>,
    file: &Bound<'_, PyAny>,
    into: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    // What a file has read ahead would be left out.
    if file.hasattr("raw")? || file.hasattr("buffer")? {
        return Err(PyValueError::new_err(
            "the file has a buffer of its own: open it with buffering=0, or pass its descriptor",
        ));
    }
    let file = descriptor(file)?;
    let buffer = PyUntypedBuffer::get(into)?;
    if buffer.readonly() {
        return Err(PyBufferError::new_err(
            "the memory is read-only: pass one that can be written to",
        ));
    }
    in_parts(py, bytes_of(&buffer)?, move |start, bytes| {
        let to = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the buffer is held and can be written to. Who reads it meanwhile sees bytes of the file come, as with
        // every buffer of Python's.
        unsafe { libc::read(file, to, bytes) }
    })
}
