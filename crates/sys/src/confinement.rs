//! What vswap takes away from itself, so that a mistake in it is worth less to whoever finds one.
//!
//! A pager reads what hostile programs write, and it may do much: trace processes, read their memory, kill them. Once
//! it has started its program it needs few system calls and few capabilities. It gives up the others for good
//! (`capabilities.rs`, `filter.rs`, with the list in `calls.rs`).
//!
//! The program must not inherit any of this. It runs before the filter is there, and what it has got by then stays as
//! it is. Nothing of vswap that is confined makes a process or executes a file.
//!
//! Capabilities belong to a thread, and a filter can be put on all threads at once. So what starts threads before the
//! program runs does so on a thread that has given its capabilities up (`start_threads`).

mod calls;
mod capabilities;
mod filter;
mod rule;

use std::io;
use std::thread::Builder;

pub use capabilities::{kept, reduce};
pub use filter::{FilterError, install};

/// Whom vswap may begin to talk to from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Processes of this machine.
    Machine,
    /// Others as well: an area is there.
    Network,
}

/// Does `work` on a new thread with few capabilities, and waits for it. Threads that it starts have no more.
///
/// # Errors
/// There is no thread (EAGAIN).
pub fn start_threads<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let confined = move || {
            reduce();
            work()
        };
        let thread = Builder::new().spawn_scoped(scope, confined)?;
        Ok(thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Gives up what is not needed any more: capabilities of the calling thread, and system calls of all threads of the
/// process. From here on it makes no process.
///
/// # Errors
/// The filter cannot be installed; the capabilities are gone all the same.
pub fn confine(reach: Reach) -> Result<(), FilterError> {
    reduce();
    install(reach)
}
