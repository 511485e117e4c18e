//! Memory of any object with a buffer, kept in RAM: for what passes addresses to the kernel.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use vswap_arena::Passed;

use crate::failure::raised;

/// The addresses from the first byte of a buffer to its last, with what lies between them.
pub fn addresses(buffer: &PyUntypedBuffer) -> Range<usize> {
    let start = buffer.buf_ptr().addr();
    if buffer.len_bytes() == 0 {
        return start..start;
    }
    let (mut first, mut last) = (start, start);
    for (&length, &stride) in buffer.shape().iter().zip(buffer.strides()) {
        let reach = stride.unsigned_abs().saturating_mul(length - 1);
        if stride < 0 {
            first = first.saturating_sub(reach);
        } else {
            last = last.saturating_add(reach);
        }
    }
    first..last.saturating_add(buffer.item_size())
}

/// Keeps an object's memory in RAM between `__enter__` and `__exit__`.
#[pyclass(frozen, module = "vswap_arena")]
#[derive(Debug)]
pub struct Pinned {
    object: Py<PyAny>,
    held: Mutex<Option<Held>>,
}

/// The object cannot give its memory away as long as its buffer is taken.
#[derive(Debug)]
struct Held {
    // Dropped in this order.
    #[expect(dead_code, reason = "it is there to be dropped")]
    passed: Passed,
    #[expect(dead_code, reason = "it is there to be dropped")]
    buffer: PyUntypedBuffer,
}

/// What keeps an object's memory in RAM, for a `with`.
#[pyfunction]
pub fn pinned(object: Py<PyAny>) -> Pinned {
    Pinned {
        object,
        held: Mutex::new(None),
    }
}

#[pymethods]
impl Pinned {
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let object = self.object.bind(py).clone();
        let buffer = PyUntypedBuffer::get(&object)?;
        let bytes = addresses(&buffer);
        // It may wait for an area, and a reader of that for nothing of Python's.
        let passed = py
            .detach(|| Passed::new(bytes))
            .map_err(|error| raised(&error))?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Err(PyRuntimeError::new_err(
                "this pin is in use: call pinned() once for each `with`",
            ));
        }
        *held = Some(Held { passed, buffer });
        drop(held);
        Ok(object)
    }

    fn __exit__(&self, _kind: Py<PyAny>, _value: Py<PyAny>, _trace: Py<PyAny>) {
        let held = self
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // Outside of the lock: to give a buffer back runs code of its object.
        drop(held);
    }
}
