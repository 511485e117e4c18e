//! What everything stands on: bare calls of kernel and libc, limits, the end of the process, the switch of a rule, what
//! the compiler calls.

pub mod kernel;
pub mod uffd;
pub mod limits;
pub mod libc;
pub mod die;
pub mod rules;
mod runtime;
