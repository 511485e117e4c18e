//! System calls that stop at the filter, carried out for the program.

pub mod advice;
pub mod moves;
pub mod notify;
pub mod thread_exit;
