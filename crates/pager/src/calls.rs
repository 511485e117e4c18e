//! System calls that stop at the filter, carried out for the program.

pub mod tags;
pub mod confine;
pub mod handlers;
pub mod advice;
pub mod moves;
pub mod thread_exit;
pub mod followed_fork;
pub mod copied_fork;
pub mod forks;
pub mod notify;
pub mod earlier_calls;
pub mod unknown;
