//! Swap for unmodified programs: spaces, faults, eviction, layout events, limits.
//!
//! [`Pager`] is one run. Its threads: one that hears agents say hello (`server`), one that samples memory
//! (`governor`), one that looks how much of it is shared (`shares`), one a CPU that compresses (`writeback`), one a
//! filter that takes system calls in and one a space that answers them (`notify`), for each active space a fault
//! reader a CPU (`reader`) and an evictor (`evict`), and with physical areas a few that wait for them (`area_reads`)
//! and one that moves there what is cold in the pool (`shrink`).

mod agent;
mod area_reads;
pub mod areas;
pub mod config;
mod core;
mod evict;
mod fault;
mod fork;
mod governor;
pub mod groups;
pub mod hello;
mod kin;
pub mod layout;
mod lifecycle;
mod lock;
mod memory;
mod notify;
pub mod ranges;
mod read_around;
mod reader;
mod regions;
mod rules;
pub mod run;
mod server;
mod shares;
mod shrink;
mod space;
mod stats;
pub mod status;
mod stream;
mod swap_in;
mod threads;
pub mod words;
pub mod working_set;
mod writeback;

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use vswap_engine::{Engine, SwapOnError};
use vswap_sys::eventfd::EventFd;
use vswap_sys::memory::MemoryError;
use vswap_sys::ring::SOCKET_ENV;
use vswap_sys::sock::SockError;
use vswap_sys::{cpu, process, procfs};

pub use areas::{AreaStatus, GiveUpError, SwapOn};
pub use config::{Config, RunGroup};
pub use groups::GroupStatus;
pub use status::Status;

use crate::core::Core;
use crate::memory::MappedPages;

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
    Group(#[from] vswap_engine::GroupError),
    /// A descriptor could not be made.
    #[error("cannot make an event descriptor: {0}")]
    Descriptor(#[from] std::io::Error),
}

/// The pager of one run: its threads, spaces and engine.
#[derive(Debug)]
pub struct Pager {
    core: Arc<Core>,
    stop: Arc<EventFd>,
    socket: std::path::PathBuf,
}

impl Pager {
    /// Start the threads and listen for agents in `config.run_dir`.
    ///
    /// # Errors
    /// `StartError`; nothing is left behind then.
    pub fn start(config: Config) -> Result<Pager, StartError> {
        let socket_error = |source| StartError::Socket {
            dir: config.run_dir.display().to_string(),
            source,
        };
        let listener = server::Listeners::bind(&config.run_dir).map_err(socket_error)?;
        let socket = listener.path().to_owned();
        let engine_config = vswap_engine::Config {
            frames: usize::try_from(config.frames()).unwrap_or(usize::MAX),
            cpus: cpu::bound(),
            codec: config.codec,
            pool_limit_bytes: config.pool_limit_bytes.unwrap_or(config.limit_bytes),
            checksums: config.checksums,
        };
        let engine = Engine::new(&engine_config, Arc::new(MappedPages::new()?))?;
        let stop = Arc::new(EventFd::new().map_err(std::io::Error::from)?);
        let group = groups::make(&engine, config.group.as_ref())?;
        let core = Arc::new(Core::new(config, engine, group));
        server::start(&core, listener, Arc::clone(&stop));
        writeback::start(&core);
        let governed = Arc::clone(&core);
        threads::spawn("governor", move || governor::run(&governed));
        shares::start(&core);
        Ok(Pager { core, stop, socket })
    }

    /// What the program's environment must have beside what it has: the agent first in LD_PRELOAD, and the socket.
    pub fn environment(&self, agent: &Path) -> Vec<(OsString, OsString)> {
        let mut preload = agent.as_os_str().to_owned();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        vec![
            ("LD_PRELOAD".into(), preload),
            (SOCKET_ENV.into(), self.socket.clone().into_os_string()),
        ]
    }

    /// Begin to use a physical area.
    ///
    /// # Errors
    /// [`SwapOnError`]; nothing has changed, and the disk is closed.
    pub fn swap_on(&self, area: SwapOn) -> Result<(), SwapOnError> {
        area_reads::start(&self.core);
        shrink::start(&self.core);
        self.core.areas.swap_on(&self.core.engine, area)
    }

    /// Give a physical area up while the program runs: each of its pages comes back to the pool or goes to another
    /// area. Returns when it is empty; `cancel` is asked in between.
    ///
    /// # Errors
    /// [`GiveUpError`]; the area is then in use as before, with its old priority.
    pub fn swap_off(&self, name: &str, cancel: &dyn Fn() -> bool) -> Result<(), GiveUpError> {
        self.core.areas.swap_off(&self.core, name, cancel)
    }

    /// The physical areas, in the order in which they came.
    pub fn areas(&self) -> Vec<AreaStatus> {
        self.core.areas.status(&self.core.engine)
    }

    /// Living processes of the run, managed or not.
    pub fn processes(&self) -> Vec<u32> {
        procfs::descendants(std::process::id()).unwrap_or_default()
    }

    /// Figures of this moment.
    pub fn status(&self) -> Status {
        let (core, stats) = (&self.core, &self.core.stats);
        let engine = core.engine.stats();
        let latency = stats.latency();
        let spaces = core.spaces();
        let mut status = Status {
            pool_bytes: engine.pool_bytes,
            processes_managed: spaces.iter().filter(|space| space.pid().is_some()).count() as u64,
            swapped_pages: engine.slots_used,
            alloc_reject: engine.alloc_reject,
            zero_pages: engine.zero,
            compressed_pages: engine.compressed,
            raw_pages: engine.raw,
            payload_bytes: engine.payload_bytes,
            metadata_bytes: engine.table_bytes,
            pages_out: stats.pages_out.get(),
            pages_in: stats.pages_in.get(),
            pages_early: stats.pages_early.get(),
            pages_spared: stats.pages_spared.get(),
            pages_read_ahead: stats.pages_read_ahead.get(),
            read_ahead_hits: stats.read_ahead_hits.get(),
            pages_dropped_clean: stats.pages_dropped_clean.get(),
            pages_out_zero: stats.pages_out_zero.get(),
            compressed_in_bytes: stats.compressed_pages.get() * run::PAGE_BYTES,
            compressed_out_bytes: stats.compressed_out_bytes.get(),
            faults: stats.faults.get(),
            faults_first_touch: stats.faults_first_touch.get(),
            faults_deferred: stats.faults_deferred.get(),
            faults_unprotect: stats.faults_unprotect.get(),
            pages_busy: stats.pages_busy.get(),
            moved_unsaid: stats.moved_unsaid.get(),
            retries: stats.retries.get(),
            areas: self.areas(),
            groups: groups::status(&core.engine, &engine),
            physical_pages: engine.physical,
            pages_lost: core.areas.pages_lost(),
            pages_in_areas: stats.pages_in_areas.get(),
            pages_in_areas_early: stats.pages_in_areas_early.get(),
            pages_written_back: stats.pages_written_back.get(),
            pages_demoted: stats.pages_demoted.get(),
            write_back_failures: stats.write_back_failures.get(),
            pool_limit_hits: engine.pool_reject,
            fault_us_p50: latency.p50_us,
            fault_us_p99: latency.p99_us,
            fault_us_max: latency.max_us,
            active: stats.was_active(),
            ..Status::default()
        };
        core.governor.fill(&mut status);
        status
    }

    /// SIGKILL every process of the run.
    pub fn kill_all(&self) {
        for pid in self.processes() {
            // It may be gone already.
            let _ = process::kill(pid);
        }
    }

    /// Stop the threads and return the last figures. Processes that still live are killed first: nobody would serve
    /// their faults.
    pub fn finish(self) -> Status {
        self.kill_all();
        let status = self.status();
        self.core.governor.stop();
        self.core.writeback.stop();
        self.core.area_reads.stop();
        self.core.shrinker.stop();
        // The threads end with the process at the latest.
        let _ = self.stop.signal();
        status
    }
}
