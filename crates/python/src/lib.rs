//! The interface for Python of an arena: `python/vswap_arena/__init__.pyi` says what each call does.
//!
//! A call does as little as it can here: `vswap-arena` does the work. No lock is held while Python is called, and
//! whatever may wait for an area lets other threads of Python run, but for a touch: Python does not know of it.
//!
//! Unsafe is needed here because buffers, and what numpy asks for, are addresses.

// The floors, lowest first.

// What Python is told that went wrong.
mod failure;
// Memory of other objects that is kept in RAM; system calls on it.
mod pinned;
mod io;
// Memory with a buffer, and numpy's arrays.
mod memory;
mod numpy;
mod arena;

use pyo3::prelude::*;

/// The part of `vswap_arena` that is written in Rust.
#[pymodule]
fn _vswap_arena(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ArenaError", module.py().get_type::<failure::ArenaError>())?;
    module.add_class::<arena::Arena>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<pinned::Pinned>()?;
    module.add_class::<numpy::NumpyArrays>()?;
    module.add_function(wrap_pyfunction!(pinned::pinned, module)?)?;
    module.add_function(wrap_pyfunction!(io::write, module)?)?;
    module.add_function(wrap_pyfunction!(io::read_into, module)?)
}
