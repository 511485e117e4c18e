//! Why a run does not start.

use vswap_sys::memory::MemoryError;
use vswap_sys::sock::SockError;

use crate::store::groups;

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The socket for the agents could not be made.
    #[error("cannot make the agents' socket in {dir}: {source}")]
    Socket {
        /// The run's directory.
        dir: String,
        /// What the kernel said.
        source: SockError,
    },
    /// Memory for the engine could not be reserved.
    #[error("cannot reserve memory for swapped pages: {0}")]
    Memory(#[from] MemoryError),
    /// The engine refused its configuration.
    #[error("cannot set the swap engine up: {0}")]
    Engine(#[from] vswap_engine::ConfigError),
    /// The run's group could not be made.
    #[error("cannot make the group of the run: {0}")]
    Group(#[from] groups::MakeError),
    /// A thread could not be started.
    #[error(
        "cannot start the threads of the run: {0} (see `ulimit -u`, and pids.max of the group)"
    )]
    Thread(std::io::Error),
    /// A descriptor could not be made.
    #[error("cannot make an event descriptor: {0}")]
    Descriptor(#[from] std::io::Error),
}
