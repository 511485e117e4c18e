//! Swap for unmodified programs: spaces, faults, eviction, layout events, limits.
//!
//! [`Store`] is what runs can share, [`Pager`] is one run on it. Its threads: one that hears agents say hello
//! (`server`), one that samples memory (`governor`), one that looks how much of it is shared (`shares`), one a CPU that
//! compresses (`writeback`), one a filter that takes system calls in and one a space that answers them (`notify`), for
//! each active space a fault reader a CPU (`reader`) and an evictor (`evict`), and with physical areas a few that wait
//! for them (`area_reads`) and one that moves there what is cold in the pool (`shrink`).

mod advice;
mod agent;
mod area_reads;
pub mod areas;
mod bring_back;
mod buffers;
pub mod config;
mod core;
mod events;
mod evict;
mod fault;
mod fork;
mod gain;
mod governor;
pub mod groups;
pub mod hello;
mod kernel;
mod kin;
mod last_thread;
pub mod layout;
mod lifecycle;
mod lock;
mod marks;
mod memory;
mod moves;
mod notify;
pub mod pins;
mod pool_share;
pub mod ranges;
mod read_around;
mod reader;
mod regions;
mod rules;
pub mod run;
mod server;
mod shares;
mod shrink;
#[cfg(test)]
mod simulator;
mod space;
mod stats;
pub mod status;
mod store;
mod stream;
mod swap_in;
mod thread_exit;
mod threads;
mod usage;
mod watch;
pub mod words;
pub mod working_set;
mod writeback;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_sys::eventfd::EventFd;
use vswap_sys::memory::MemoryError;
use vswap_sys::ring::SOCKET_ENV;
use vswap_sys::sock::SockError;
use vswap_sys::{guardian, process, process::procfs};

pub use areas::{AreaStatus, GiveUpError, SwapOn};
pub use config::{Config, RunGroup, StoreConfig};
pub use groups::GroupStatus;
pub use status::{Status, StoreStatus};
pub use store::Store;

use crate::core::Core;

/// How often it is looked whether a run has gone that is to end.
const END_PACE: Duration = Duration::from_millis(5);
/// How long a run that ends waits for its own threads to let go of its last pages.
const LEAVE_PATIENCE: Duration = Duration::from_secs(5);

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

/// The pager of one run: its threads and spaces, on a store.
#[derive(Debug)]
pub struct Pager {
    store: Arc<Store>,
    core: Arc<Core>,
    stop: Arc<EventFd>,
    socket: PathBuf,
}

impl Pager {
    /// Start the threads and listen for agents in `config.run_dir`.
    ///
    /// # Errors
    /// `StartError`; nothing is left behind then.
    pub fn start(store: &Arc<Store>, config: Config) -> Result<Pager, StartError> {
        let socket_error = |source| StartError::Socket {
            dir: config.run_dir.display().to_string(),
            source,
        };
        let listener = server::Listeners::bind(&config.run_dir).map_err(socket_error)?;
        let socket = listener.path().to_owned();
        let stop = Arc::new(EventFd::new().map_err(std::io::Error::from)?);
        let joined = Arc::new(EventFd::new().map_err(std::io::Error::from)?);
        let core = store.join(config)?;
        let pager = Pager {
            store: Arc::clone(store),
            core,
            stop,
            socket,
        };
        match pager.start_threads(listener, joined) {
            Ok(()) => Ok(pager),
            Err(error) => {
                // Those that were started end.
                pager.finish();
                Err(StartError::Thread(error))
            }
        }
    }

    fn start_threads(
        &self,
        listener: server::Listeners,
        joined: Arc<EventFd>,
    ) -> std::io::Result<()> {
        writeback::start(&self.core)?;
        let governed = Arc::clone(&self.core);
        threads::try_spawn("governor", move || governor::run(&governed))?;
        shares::start(&self.core)?;
        server::start(&self.core, listener, joined, Arc::clone(&self.stop))
    }

    /// Where agents say hello.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Figures of this moment.
    pub fn status(&self) -> Status {
        let mut status = Status::of(&self.core);
        match &self.core.own_group {
            None => (status.areas, status.groups) = (self.store.areas(), self.store.groups()),
            Some(name) => status.groups = groups::status_of(&self.core.engine, name),
        }
        status
    }

    /// SIGKILL every process of the run that has said hello, and what descends from it; also those that have no agent,
    /// whoever their parents are by now.
    pub fn kill_all(&self) {
        let spaces = self.core.spaces();
        if spaces.iter().any(|space| space.pid().is_none()) {
            guardian::kill_callers(&self.socket);
        }
        for pid in spaces.iter().filter_map(|space| space.pid()) {
            for descendant in procfs::descendants(pid).unwrap_or_default() {
                // It may be gone already.
                let _ = process::kill(descendant);
            }
            let _ = process::kill(pid);
        }
    }

    /// Stop the threads and return the last figures. Processes that still live are killed first: nobody would serve
    /// their faults. A shared store gets everything back that the run had of it, for which the kernel has to be done
    /// with the processes.
    pub fn finish(&self) -> Status {
        self.kill_all();
        let status = self.status();
        if self.core.own_group.is_some() {
            while !self.core.spaces().is_empty() {
                std::thread::sleep(END_PACE);
                self.kill_all();
            }
        }
        self.core.governor.stop();
        self.core.watch.stop();
        self.core.writeback.stop();
        self.core.area_reads.stop();
        self.core.shrinker.stop();
        // The threads end with the process at the latest.
        let _ = self.stop.signal();
        let since = Instant::now();
        // Threads that were at a page of the run let go of it.
        while !self.store.leave(&self.core) && since.elapsed() < LEAVE_PATIENCE {
            std::thread::sleep(END_PACE);
        }
        status
    }
}

/// What a program's environment must have beside what it has: the agent first in LD_PRELOAD, and the socket on which it
/// says hello.
pub fn environment(agent: &Path, socket: &Path) -> Vec<(OsString, OsString)> {
    let mut preload = agent.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    vec![
        ("LD_PRELOAD".into(), preload),
        (SOCKET_ENV.into(), socket.as_os_str().to_owned()),
    ]
}
