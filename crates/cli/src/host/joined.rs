//! A run in the daemon, seen from the run. The run lives as long as its connection.
//!
//! The connection stays open from `Join` to `Finish`. If it closes without `Finish`, the process of the run was killed,
//! and the daemon ends what is left of the run. If the daemon closes it, the agents have ended the run's programs.
//! Figures in between are asked for on other connections, so that nobody waits for a daemon that does not answer.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use vswap_pager::{Config, MapQuery, MemoryMap, ParkStep, Parked, Settings, Status};

use crate::control::{self, Connection, Request};
use crate::failure::Failure;
use crate::join::Join;
use crate::run_dir::Living;

/// How long a starting daemon may take until it listens.
const START_PATIENCE: Duration = Duration::from_millis(500);
const START_PACE: Duration = Duration::from_millis(10);

/// A run in the daemon, seen from the run.
#[derive(Debug)]
pub struct Joined {
    daemon_pid: u32,
    daemon_dir: PathBuf,
    life: Connection,
    socket: PathBuf,
}

impl Joined {
    /// Joins the daemon.
    pub fn join(daemon: &Living, config: &Config) -> Result<Joined, Failure> {
        let refused = |error: &io::Error| {
            Failure::own(format!(
                "the daemon (process {}) does not take the run: {error}; `vswap run --no-daemon` does without it",
                daemon.pid
            ))
        };
        let mut life = connect(&daemon.path).map_err(|error| refused(&error))?;
        let answer = life.ask(&Request::Join(Join::new(config)), None);
        let answer = answer.map_err(|error| refused(&error))?;
        let socket = answer.as_str().map(PathBuf::from);
        let socket = socket.ok_or_else(|| refused(&io::ErrorKind::InvalidData.into()))?;
        Ok(Joined {
            daemon_pid: daemon.pid,
            daemon_dir: daemon.path.clone(),
            life,
            socket,
        })
    }

    /// The socket where agents say hello.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The daemon's process.
    pub fn daemon_pid(&self) -> u32 {
        self.daemon_pid
    }

    /// Current figures.
    pub fn status(&self) -> io::Result<Status> {
        let answer = control::ask(&self.daemon_dir, &Request::RunStatus(std::process::id()))?;
        Ok(serde_json::from_value(answer)?)
    }

    /// What of a process's memory is where. None if it is not managed.
    pub fn memory_map(&self, query: MapQuery) -> io::Result<Option<MemoryMap>> {
        let request = Request::RunMap(std::process::id(), query);
        let answer = control::ask(&self.daemon_dir, &request)?;
        Ok(serde_json::from_value(answer)?)
    }

    /// The run is told to end: it may take some more for that.
    pub fn allow_last(&self) -> io::Result<()> {
        let request = Request::AllowLast(std::process::id());
        control::ask(&self.daemon_dir, &request).map(drop)
    }

    /// Give the run other limits.
    pub fn set(&self, settings: &Settings) -> Result<Value, String> {
        let request = Request::RunSet(std::process::id(), settings.clone());
        control::ask(&self.daemon_dir, &request).map_err(|error| error.to_string())
    }

    /// Do a step of parking the run.
    pub fn park(&self, step: ParkStep) -> io::Result<Parked> {
        let request = Request::RunPark(std::process::id(), step);
        let answer = control::ask(&self.daemon_dir, &request)?;
        Ok(serde_json::from_value(answer)?)
    }

    /// Let go of a process of the run.
    pub fn let_go(&self, pid: u32) -> Result<Value, String> {
        let request = Request::RunDetach(std::process::id(), pid);
        control::ask(&self.daemon_dir, &request).map_err(|error| error.to_string())
    }

    /// Has the daemon ended?
    pub fn is_lost(&self) -> bool {
        self.life.has_gone()
    }

    /// Ends the run in the daemon and returns its last figures. Call it when the processes have ended.
    pub fn finish(&mut self) -> Result<Status, Failure> {
        let answer = self.life.ask(&Request::Finish, None);
        let status = answer.and_then(|status| Ok(serde_json::from_value(status)?));
        status.map_err(|error| {
            Failure::own(format!(
                "the daemon (process {}) has ended before the run, and the run's programs with it: what they had in \
                 swap is gone ({error}). Start the daemon again, or run with --no-daemon",
                self.daemon_pid
            ))
        })
    }
}

/// Connects to a daemon that may still be starting.
fn connect(dir: &Path) -> io::Result<Connection> {
    let since = Instant::now();
    loop {
        match Connection::open(dir) {
            Err(error)
                if since.elapsed() < START_PATIENCE
                    && matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                    ) =>
            {
                std::thread::sleep(START_PACE);
            }
            done => return done,
        }
    }
}
