//! An arena, as Python has it.

use std::path::PathBuf;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use vswap_arena::{AreaStats, Arena as Inner, ArenaError, Limits, Packing, PackingNameError, Size};

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
    #[pyo3(signature = (*, ram, pool = None, swap = None, swap_size = None, codec = "auto", capacity = None,
                        areas = vec![], far_copies = 1, far_backup = None))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        ram: &Bound<'_, PyAny>,
        pool: Option<&Bound<'_, PyAny>>,
        swap: Option<PathBuf>,
        swap_size: Option<&Bound<'_, PyAny>>,
        codec: &str,
        capacity: Option<&Bound<'_, PyAny>>,
        areas: Vec<String>,
        far_copies: usize,
        far_backup: Option<PathBuf>,
    ) -> PyResult<Arena> {
        if !(1..=2).contains(&far_copies) {
            return Err(PyValueError::new_err(format!(
                "far_copies is {far_copies}: a store keeps 1 or 2 copies of a page"
            )));
        }
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
        builder = areas
            .into_iter()
            .fold(builder, |builder, area| builder.area(&area));
        builder = builder.far_copies(far_copies);
        if let Some(directory) = far_backup {
            builder = builder.far_backup(directory);
        }
        // A store may take a while to answer.
        let inner = py.detach(|| builder.build());
        let inner = inner.map_err(|error| raised(&error))?;
        Ok(Arena { inner })
    }

    /// A group of this arena: what is allocated by it may have only so much in pool and areas.
    #[pyo3(signature = (name, *, swap_max = None, pool_max = None, tier_max = None, writeback = true))]
    fn group(
        &self,
        name: &str,
        swap_max: Option<&Bound<'_, PyAny>>,
        pool_max: Option<&Bound<'_, PyAny>>,
        tier_max: Option<&Bound<'_, PyDict>>,
        writeback: bool,
    ) -> PyResult<Arena> {
        let mut limits = Limits::new();
        if let Some(most) = swap_max {
            limits = limits.swap_max(size(most)?);
        }
        if let Some(most) = pool_max {
            limits = limits.pool_max(size(most)?);
        }
        for (tier, most) in tier_max.into_iter().flatten() {
            limits = limits.tier_max(&tier.extract::<String>()?, size(&most)?);
        }
        if !writeback {
            limits = limits.no_writeback();
        }
        let inner = self.inner.group(name, &limits);
        let inner = inner.map_err(|error| raised(&error))?;
        Ok(Arena { inner })
    }

    /// What the group has now, as a dict. None for the arena itself.
    fn group_stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(group) = self.inner.group_stats() else {
            return Ok(None);
        };
        let dict = PyDict::new(py);
        dict.set_item("name", group.name)?;
        dict.set_item("pool_bytes", group.pool_bytes)?;
        dict.set_item("swap_bytes", group.swap_bytes)?;
        dict.set_item("refused_pages", group.refused_pages)?;
        Ok(Some(dict))
    }

    /// Figures of each swap area, as dicts.
    fn areas<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let described = |area: AreaStats| {
            let dict = PyDict::new(py);
            dict.set_item("name", area.name)?;
            dict.set_item("kind", area.kind)?;
            dict.set_item("tier", area.tier)?;
            dict.set_item("priority", area.priority)?;
            dict.set_item("size_bytes", area.size_bytes)?;
            dict.set_item("used_bytes", area.used_bytes)?;
            dict.set_item("pages_read", area.pages_read)?;
            dict.set_item("pages_written", area.pages_written)?;
            dict.set_item("errors", area.errors)?;
            Ok(dict)
        };
        self.inner.areas().into_iter().map(described).collect()
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
