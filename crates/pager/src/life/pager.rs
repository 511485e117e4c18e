//! The pager of one run: its start, its figures, its end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use vswap_sys::eventfd::EventFd;
use vswap_sys::guardian;
use vswap_sys::patience;
use vswap_sys::ring::SOCKET_ENV;

use crate::base::kernel::process;
use crate::base::threads;
use crate::evict::{repack, write_out};
use crate::life::connections::Connections;
use crate::life::leave::{self, NotManaged};
use crate::life::memory_map::{self, MapQuery, MemoryMap};
use crate::life::park::{self, OutOfStep, ParkStep, Parked};
use crate::life::run::Run;
use crate::life::sampling::{self, NotSampled, Sampling};
use crate::life::settings::{self, SetError, Settings};
use crate::life::start_error::StartError;
use crate::life::status::Status;
use crate::life::store::Store;
use crate::life::{governor, pressure_watch, server, share_watch};
use crate::run::samples::Sampled;
use crate::store::config::Config;
use crate::store::groups;

/// How often an ending run checks whether its processes are gone.
const END_PACE: Duration = Duration::from_millis(5);
/// How often it checks whether its server has ended, which takes a moment.
const HEAR_PACE: Duration = Duration::from_micros(100);
/// How long an ending run waits for its own threads to let go of its last pages.
const LEAVE_PATIENCE: Duration = Duration::from_secs(5);

/// The pager of one run: its threads and spaces, on a store.
#[derive(Debug)]
pub struct Pager {
    store: Arc<Store>,
    run: Arc<Run>,
    stop: Arc<EventFd>,
    socket: PathBuf,
    /// The server's, once it was started, and of every thread to which it has handed a hello.
    connections: OnceLock<Weak<Connections>>,
}

impl Pager {
    /// Start the threads and listen for agents in `config.run_dir`.
    ///
    /// # Errors
    /// `StartError`. Nothing is left behind then.
    pub fn start(store: &Arc<Store>, config: Config) -> Result<Pager, StartError> {
        let socket_error = |source| StartError::Socket {
            dir: config.run_dir.display().to_string(),
            source,
        };
        let listener = server::Listeners::bind(&config.run_dir).map_err(socket_error)?;
        let socket = listener.path().to_owned();
        let stop = Arc::new(EventFd::new().map_err(std::io::Error::from)?);
        let run = store.join(config)?;
        let pager = Pager {
            store: Arc::clone(store),
            run,
            stop,
            socket,
            connections: OnceLock::new(),
        };
        match pager.start_threads(listener) {
            Ok(()) => Ok(pager),
            Err(error) => {
                // The threads that were started end.
                pager.finish();
                Err(StartError::Thread(error))
            }
        }
    }

    fn start_threads(&self, listener: server::Listeners) -> std::io::Result<()> {
        patience::prepare()?;
        write_out::start(&self.run.evicting, &self.run.cpus)?;
        if self.store.repacks() {
            self.run.serving.packing.begin();
            repack::start(&self.run.evicting);
        }
        let governed = Arc::clone(&self.run);
        threads::try_spawn("governor", move || governor::run(&governed))?;
        share_watch::start(&self.run.listening, self.run.config.root_pid)?;
        pressure_watch::start(&self.run)?;
        let connections = server::start(&self.run, listener, &self.stop)?;
        // This is called once.
        let _ = self.connections.set(connections);
        Ok(())
    }

    /// The socket on which agents say hello.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Figures of this moment.
    pub fn status(&self) -> Status {
        let mut status = Status::of(&self.run);
        match &self.run.part.own_group {
            None => {
                status.areas = self.store.areas();
                status.tiers = self.store.tiers();
                status.groups = self.store.groups();
            }
            Some(name) => {
                status.groups =
                    groups::status_of(&self.run.serving.engine, &self.run.serving.areas, name);
            }
        }
        status
    }

    /// What of a process's memory is where, and how old what is out is. None if the process is not managed. Takes the
    /// lock of its space for moments, and 200 ms at most in all.
    pub fn memory_map(&self, query: MapQuery) -> Option<MemoryMap> {
        memory_map::look(&self.run, query)
    }

    /// What sampling has seen so far.
    pub fn sampled(&self) -> Sampled {
        self.run.serving.samples.all()
    }

    /// Sample the run for as long as the result lives.
    ///
    /// # Errors
    /// [`NotSampled`]; nothing has changed.
    pub fn sample(&self, every: Duration) -> Result<Sampling<'_>, NotSampled> {
        sampling::begin(&self.run, every)
    }

    /// The program is told to end, perhaps while it waits because everything is full: let it take some more once, so
    /// that it can.
    pub fn allow_last(&self) {
        self.run.serving.limit.allow_last();
    }

    /// Change limits of the run. A higher limit of memory holds at once, a lower one is approached: `status` says how
    /// far.
    ///
    /// # Errors
    /// [`SetError`]; nothing has changed.
    pub fn set(&self, settings: &Settings) -> Result<(), SetError> {
        settings::set(&self.run, settings)
    }

    /// Park the run, step by step, or wake it.
    ///
    /// # Errors
    /// [`OutOfStep`]; nothing has changed.
    pub fn park(&self, step: ParkStep) -> Result<Parked, OutOfStep> {
        park::step(&self.run, step)
    }

    /// The processes of the run that have an agent, and whether the run has memory of any process. That is so before
    /// a forked child has said hello and is in the list.
    pub fn managed(&self) -> (Vec<u32>, bool) {
        let spaces = self.run.listening.spaces.all();
        let pids = spaces.iter().filter_map(|space| space.pid()).collect();
        (pids, !spaces.is_empty())
    }

    /// Let go of one process of the run, which goes on without swap. Returns when all that it had in swap is in memory
    /// again, whatever the limit says.
    ///
    /// # Errors
    /// [`NotManaged`].
    pub fn let_go(&self, pid: u32) -> Result<(), NotManaged> {
        leave::let_go(&self.run, pid)
    }

    /// Let go of all processes, which live on without vswap: bring back what they have in swap, whatever the limit
    /// says, and have their agents leave. Call `finish` next. From then on somebody else has to answer the calls that
    /// stop at their filters, by the listeners, which stay open. A stopped process has to be continued first, which
    /// `say_stopped` is told.
    pub fn leave(&self, say_stopped: impl FnMut(u32)) {
        leave::leave(&self.run, say_stopped);
    }

    /// SIGKILL every process of the run that has said hello, and what descends from it; also those that have no agent,
    /// whoever their parents are by now.
    pub fn kill_all(&self) {
        let spaces = self.run.listening.spaces.all();
        if spaces.iter().any(|space| space.pid().is_none()) {
            guardian::kill_callers(&self.socket);
        }
        let processes = spaces.iter().filter_map(|space| space.process.get());
        let members: Vec<_> = processes.map(|it| (it.pid, &it.pidfd)).collect();
        process::kill_family(&members);
    }

    /// Stop the threads and return the last figures. Processes that still live are killed first, because nobody would
    /// serve their faults. A shared store gets back all that the run had of it. For that the kernel has to be done with
    /// the processes.
    pub fn finish(&self) -> Status {
        self.kill_all();
        let status = self.status();
        if !self.run.part.is_all() {
            let listening = &self.run.listening;
            while !listening.spaces.all().is_empty() || !listening.remains.are_gone() {
                std::thread::sleep(END_PACE);
                self.kill_all();
            }
        }
        self.run.serving.limit.stop();
        self.run.listening.watch.stop();
        self.run.evicting.write_queue.stop();
        self.run.evicting.stored.stop();
        self.run.serving.area_queues.stop();
        self.run.serving.shrinker.stop();
        // If this fails, the threads end with the process.
        let _ = self.stop.signal();
        let since = Instant::now();
        // A hello that was read and not answered yet holds userfaultfds. Were they open when this process ends, the
        // guardian would take their memory for memory that nobody serves any more.
        while self.hears() && since.elapsed() < LEAVE_PATIENCE {
            std::thread::sleep(HEAR_PACE);
        }
        // Threads that were working on a page of the run let go of it.
        while !self.store.leave(&self.run) && since.elapsed() < LEAVE_PATIENCE {
            std::thread::sleep(END_PACE);
        }
        status
    }

    /// Does some thread still deal with what agents have said?
    fn hears(&self) -> bool {
        let connections = self.connections.get();
        connections.is_some_and(|connections| connections.strong_count() > 0)
    }
}

/// What a program's environment needs in addition: the agent first in LD_PRELOAD, and the socket on which the agent
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
