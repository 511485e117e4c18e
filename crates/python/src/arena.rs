//! An arena, as Python has it.

use std::path::PathBuf;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use vswap_arena::{Arena as Inner, ArenaError, Packing, PackingNameError, Size};

use crate::failure::raised;
use crate::memory::{Memory, advice};
use crate::numpy::NumpyArrays;
use crate::pinned::addresses;

/// A size: a number of bytes, or a text such as "512M".
fn size(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(bytes) = value.extract::<u64>() {
        return Ok(bytes);
    }
    match value.extract::<String>() {
        Ok(text) => text
            .as_str()
            .size_bytes()
            .map_err(|error| raised(&ArenaError::from(error))),
        Err(_) => Err(PyTypeError::new_err(
            "a size is a number of bytes of 0 or more, or a text like \"512M\"",
        )),
    }
}

fn codec(name: &str) -> PyResult<Packing> {
    name.parse()
        .map_err(|error: PackingNameError| PyValueError::new_err(error.to_string()))
}

/// Memory that may be larger than the RAM that it takes.
#[pyclass(frozen, module = "vswap_arena")]
#[derive(Debug)]
pub struct Arena {
    inner: Inner,
}

#[pymethods]
impl Arena {
    #[new]
    #[pyo3(signature = (*, ram, pool = None, swap = None, swap_size = None, codec = "auto", capacity = None))]
    fn new(
        ram: &Bound<'_, PyAny>,
        pool: Option<&Bound<'_, PyAny>>,
        swap: Option<PathBuf>,
        swap_size: Option<&Bound<'_, PyAny>>,
        codec: &str,
        capacity: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Arena> {
        let mut builder = Inner::builder().ram(size(ram)?).codec(self::codec(codec)?);
        if let Some(pool) = pool {
            builder = builder.pool(size(pool)?);
        }
        if let Some(capacity) = capacity {
            builder = builder.capacity(size(capacity)?);
        }
        builder = match (swap, swap_size) {
            (None, None) => builder,
            (Some(directory), Some(bytes)) => builder.swap(directory, size(bytes)?),
            _ => {
                return Err(PyValueError::new_err(
                    "swap is a directory and swap_size how large its file may grow: give both, or none",
                ));
            }
        };
        let inner = builder.build().map_err(|error| raised(&error))?;
        Ok(Arena { inner })
    }

    /// Bytes that are zero.
    fn allocate(&self, size: &Bound<'_, PyAny>) -> PyResult<Memory> {
        let bytes = self::size(size)?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let region = self.inner.allocate(bytes).map_err(|error| raised(&error))?;
        Ok(Memory::new(region))
    }

    /// Has numpy's arrays lie here within a `with`.
    fn numpy(&self) -> NumpyArrays {
        NumpyArrays::new(self.inner.heap())
    }

    /// Has all of numpy's arrays lie here that are made from now on.
    fn use_for_numpy(&self, py: Python<'_>) -> PyResult<()> {
        self.numpy().set(py).map(drop)
    }

    /// Says something of an object's memory.
    fn advise(&self, py: Python<'_>, object: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
        let what = advice(what)?;
        let buffer = PyUntypedBuffer::get(object)?;
        let bytes = addresses(&buffer);
        let advised = py.detach(|| self.inner.advise_addresses(&bytes, what));
        advised.map_err(|error| raised(&error))
    }

    /// Figures of now.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, figure) in self.inner.stats().figures() {
            dict.set_item(name, figure)?;
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let stats = self.inner.stats();
        format!(
            "<vswap_arena.Arena of {} bytes of RAM, {} allocated>",
            stats.ram_bytes, stats.allocated_bytes
        )
    }
}
