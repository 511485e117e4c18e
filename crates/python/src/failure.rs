//! What went wrong, as Python says it: ValueError, MemoryError, or ArenaError.

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use vswap_arena::ArenaError as Error;

create_exception!(
    vswap_arena,
    ArenaError,
    PyRuntimeError,
    "An arena could not be made, or could not do what it was asked to do."
);

/// The exception for an error of the arena.
pub fn raised(error: &Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Size(_)
        | Error::TooLittleRam { .. }
        | Error::Empty
        | Error::NotOurs
        | Error::AreaName(_)
        | Error::UnknownTier { .. }
        | Error::GroupName(_)
        | Error::TierName(_) => PyValueError::new_err(text),
        Error::NoAddresses { .. } | Error::Full | Error::TooMuchPinned { .. } => {
            PyMemoryError::new_err(text)
        }
        _ => ArenaError::new_err(text),
    }
}
