//! Whole pages with a buffer.
//!
//! Unsafe is needed here because a buffer is an address. Each holds a reference to its `Memory`, and so to the pages.

use std::ffi::{c_char, c_int};
use std::ptr;

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use vswap_arena::{Advice, Region};

use crate::failure::raised;

/// Advice by its name.
pub fn advice(name: &str) -> PyResult<Advice> {
    match name {
        "will-need" => Ok(Advice::WillNeed),
        "cold" => Ok(Advice::Cold),
        "never-swap" => Ok(Advice::NeverSwap),
        "may-swap" => Ok(Advice::MaySwap),
        _ => Err(PyValueError::new_err(format!(
            "'{name}' is no advice: will-need, cold, never-swap and may-swap are"
        ))),
    }
}

/// Bytes of an arena. They are freed with the last reference to them, buffers included.
#[pyclass(frozen, module = "vswap_arena")]
#[derive(Debug)]
pub struct Memory {
    region: Region,
    /// Its length. To ask the region would make a slice of bytes that Python may be writing to.
    bytes: usize,
}

impl Memory {
    pub fn new(region: Region) -> Memory {
        let bytes = region.len();
        Memory { region, bytes }
    }
}

#[pymethods]
impl Memory {
    fn __len__(&self) -> usize {
        self.bytes
    }

    fn __repr__(&self) -> String {
        format!("<vswap_arena.Memory of {} bytes>", self.bytes)
    }

    /// Says something of some of the bytes.
    #[pyo3(signature = (what, start = 0, end = None))]
    fn advise(&self, py: Python<'_>, what: &str, start: usize, end: Option<usize>) -> PyResult<()> {
        let what = advice(what)?;
        let end = end.unwrap_or(self.bytes);
        py.detach(|| self.region.advise(start..end, what))
            .map_err(|error| raised(&error))
    }

    /// The buffer: bytes in one piece that can be written to.
    ///
    /// # Safety
    /// As Python calls it.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view was passed"));
        }
        let Memory { region, bytes } = slf.get();
        let length = ffi::Py_ssize_t::try_from(*bytes)
            .map_err(|_| PyBufferError::new_err("more bytes than a buffer can have"))?;
        // One byte after another, which are unsigned.
        const FORMAT: *const c_char = c"B".as_ptr();
        let start = region.as_ptr().as_ptr();
        // SAFETY: Python passes a view for this call to fill. What it points to lives as long as the reference in it:
        // the length is its own field, and the format is a constant.
        unsafe {
            (*view).buf = start.cast();
            (*view).len = length;
            (*view).readonly = 0;
            (*view).itemsize = 1;
            (*view).format = if flags & ffi::PyBUF_FORMAT == 0 {
                ptr::null_mut()
            } else {
                FORMAT.cast_mut()
            };
            (*view).ndim = 1;
            (*view).shape = if flags & ffi::PyBUF_ND == 0 {
                ptr::null_mut()
            } else {
                &raw mut (*view).len
            };
            (*view).strides = if flags & ffi::PyBUF_STRIDES == ffi::PyBUF_STRIDES {
                &raw mut (*view).itemsize
            } else {
                ptr::null_mut()
            };
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = ptr::null_mut();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }
}
