//! `vswap daemon`: one store for several runs of one user, with areas, pool and groups.
//!
//! The daemon starts no program. `vswap run` joins it over the control socket, and a run lives as long as its
//! connection (`joined.rs`). Each run has a thread here, which gives back everything of the run when the run ends.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, lstat};
use rustix::process::{Signal, geteuid};
use serde::Serialize;
use serde_json::Value;
use vswap_pager::config::SHARED_FRAMES;
use vswap_pager::{Pager, Store, StoreConfig, StoreStatus};
use vswap_sys::confinement;
use vswap_sys::process::procfs;
use vswap_sys::process::signals::{self, Blocked};

use crate::areas::{self, Opening};
use crate::args::DaemonArgs;
use crate::args::codec::Codec;
use crate::args::size::Available;
use crate::control::{Asker, Request, Server};
use crate::failure::Failure;
use crate::host::{confine, guarded, set_group};
use crate::join::Join;
use crate::metrics::Metrics;
use crate::metrics::figures::{Figures, RunFigures, StoreFigures};
use crate::output::{SCHEMA, notice, warning};
use crate::run_dir::{self, DaemonDir};
use crate::verbs::doctor;
use crate::verbs::run::{raise_descriptor_limit, refuse_nested};

/// How often the daemon looks whether the last run that it waits for has ended.
const TICK: Duration = Duration::from_millis(100);
/// How long runs that are being ended may take to say goodbye.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// What the threads of the daemon share.
#[derive(Debug)]
struct Daemon {
    store: Arc<Store>,
    /// How its areas are opened.
    opening: Opening,
    codec: Codec,
    runs: Mutex<Runs>,
    started: Instant,
}

/// The runs that have joined.
#[derive(Debug, Default)]
struct Runs {
    /// No more runs are taken.
    ending: bool,
    /// Each run under the process id that asked.
    list: Vec<(u32, Arc<Pager>)>,
}

/// What the daemon says of itself.
#[derive(Serialize)]
struct Report {
    schema: u32,
    version: &'static str,
    pid: u32,
    daemon: bool,
    command: [&'static str; 2],
    wall_seconds: f64,
    /// Process ids of the runs that have joined.
    runs: Vec<u32>,
    /// Memory of this process: pool, tables, frames, and the threads of all runs.
    total_bytes: u64,
    #[serde(flatten)]
    status: StoreStatus,
}

/// Serves runs until a signal tells it to end.
pub fn daemon(args: &DaemonArgs) -> Result<ExitCode, Failure> {
    refuse_nested()?;
    refuse_second()?;
    let signals =
        signals::block().map_err(|error| Failure::own(format!("cannot block signals: {error}")))?;
    doctor::require_for_daemon()?;
    // The probes were the last to make a process, but for the guardian.
    confinement::reduce();
    let guardian = guarded()?;
    let store = Store::new(&StoreConfig {
        frames: SHARED_FRAMES,
        codec: args.codec.into(),
        repacks: args.codec.repacks(),
        pool_limit_bytes: pool_limit(args)?,
        checksums: args.debug_checksums,
        shared: true,
    });
    let store = Arc::new(store.map_err(Failure::of)?);
    let named = args.areas();
    let opening = Opening::new(args.no_encrypt, &args.far, &named);
    areas::begin(&store, &opening, &named, 0, args.quiet)?;
    raise_descriptor_limit();
    let dir = DaemonDir::create()?;
    let server = Server::bind(dir.path())
        .map_err(|error| Failure::own(format!("cannot make the daemon's socket: {error}")))?;
    let metrics = Metrics::open(args.metrics.as_ref(), args.quiet)?;
    confine(args.quiet, opening.reach);
    let daemon = Daemon {
        store: Arc::clone(&store),
        opening,
        codec: args.codec,
        runs: Mutex::default(),
        started: Instant::now(),
    };
    std::thread::scope(|scope| {
        server
            .serve_in(scope, |request, asker| daemon.answer(&request, asker))
            .map_err(|error| {
                Failure::own(format!(
                    "cannot start the thread that takes runs in: {error}; allow more threads (ulimit -u, or the limit \
                     of the container)"
                ))
            })?;
        if !args.quiet {
            let pid = std::process::id();
            notice(&format!("the daemon is ready (process {pid})"));
        }
        metrics.serve_in(scope, || Some(daemon.figures()));
        daemon.wait_for_the_end(&signals, args.quiet);
        server.stop();
        metrics.stop();
        Ok::<_, Failure>(())
    })?;
    store.retire();
    drop(guardian);
    drop(dir);
    Ok(ExitCode::SUCCESS)
}

impl Daemon {
    /// Does what a run or another command asks.
    fn answer(&self, request: &Request, asker: &Asker<'_>) -> Result<Value, String> {
        match request {
            Request::Status => Ok(self.report()),
            Request::SwapOn(_) | Request::SwapOff(_) => {
                areas::change(&self.store, &self.opening, request, asker)
            }
            Request::Join(join) => self.host(join, asker),
            Request::RunStatus(pid) => {
                let pager = self.runs().find(*pid);
                let pager = pager.ok_or_else(|| format!("process {pid} has no run here"))?;
                value(&pager.status())
            }
            Request::RunMap(pid, query) => {
                let pager = self.runs().find(*pid);
                let pager = pager.ok_or_else(|| format!("process {pid} has no run here"))?;
                value(&pager.memory_map(*query))
            }
            Request::AllowLast(pid) => {
                let pager = self.runs().find(*pid);
                let pager = pager.ok_or_else(|| format!("process {pid} has no run here"))?;
                pager.allow_last();
                Ok(Value::Null)
            }
            Request::RunSet(pid, settings) => {
                let pager = self.runs().find(*pid);
                let pager = pager.ok_or_else(|| format!("process {pid} has no run here"))?;
                let done = pager.set(settings);
                done.map(|()| Value::Null)
                    .map_err(|error| error.to_string())
            }
            Request::RunPark(pid, step) => {
                let pager = self.runs().find(*pid);
                let pager = pager.ok_or_else(|| format!("process {pid} has no run here"))?;
                value(&pager.park(*step).map_err(|error| error.to_string())?)
            }
            Request::RunDetach(run, pid) => {
                let pager = self.runs().find(*run);
                let pager = pager.ok_or_else(|| format!("process {run} has no run here"))?;
                let done = pager.let_go(*pid);
                done.map(|()| Value::Null)
                    .map_err(|error| error.to_string())
            }
            Request::SetGroup(name, change) => set_group(&self.store, name, change),
            Request::Detach(_) => Err("this is the daemon: its runs have the processes".to_owned()),
            Request::Park(_) | Request::Wake | Request::Sample(_) => Err(
                "this is the daemon: name one of its runs, which `vswap status` lists".to_owned(),
            ),
            Request::Set(_) => Err(
                "this is the daemon: say which of its runs with --run PID, or which group with --group NAME".to_owned(),
            ),
            Request::Finish => Err("no run was joined by this connection".to_owned()),
        }
    }

    fn report(&self) -> Value {
        let report = Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            daemon: true,
            command: ["vswap", "daemon"],
            wall_seconds: self.started.elapsed().as_secs_f64(),
            runs: self.runs().list.iter().map(|(pid, _)| *pid).collect(),
            total_bytes: procfs::own_resident_bytes().unwrap_or_default(),
            status: self.store.status(),
        };
        // Only strings, numbers and flags: JSON has a form for everything in a report.
        serde_json::to_value(&report).unwrap_or_default()
    }

    /// What the endpoint for Prometheus tells.
    fn figures(&self) -> Figures {
        // Not under the lock: runs come and go meanwhile.
        let runs = self.runs().list.clone();
        let runs = runs.into_iter().map(|(pid, pager)| RunFigures {
            pid,
            program: None,
            started: None,
            status: pager.status(),
        });
        Figures {
            runs: runs.collect(),
            store: Some(StoreFigures {
                codec: self.codec.to_string(),
                status: self.store.status(),
            }),
        }
    }

    /// Manages a run from beginning to end. Returns its last figures.
    fn host(&self, join: &Join, asker: &Asker<'_>) -> Result<Value, String> {
        let (pid, uid) = asker.peer();
        if uid != geteuid().as_raw() {
            return Err(format!(
                "the daemon belongs to user {}, and the run to user {uid}: every user has a daemon of their own",
                geteuid().as_raw()
            ));
        }
        let pager = self.begin(join, pid)?;
        let socket = value(&pager.socket());
        // Any request but the end is ignored: there is nothing else to ask on this connection.
        if asker.send(&socket).is_ok() {
            while asker
                .next()
                .is_some_and(|request| request != Request::Finish)
            {}
        }
        let status = pager.finish();
        self.runs().list.retain(|(other, _)| *other != pid);
        // A run that was killed has left its directory behind. This removes it.
        run_dir::living();
        value(&status)
    }

    fn begin(&self, join: &Join, pid: u32) -> Result<Arc<Pager>, String> {
        let config = join.config(pid)?;
        must_be_own_directory(&config.run_dir)?;
        let mut runs = self.runs();
        if runs.ending {
            return Err("it is ending and takes no more runs".to_owned());
        }
        if runs.find(pid).is_some() {
            return Err(format!("process {pid} has a run here already"));
        }
        let pager = Pager::start(&self.store, config).map_err(|error| error.to_string())?;
        let pager = Arc::new(pager);
        runs.list.push((pid, Arc::clone(&pager)));
        Ok(pager)
    }

    /// After the first ending signal no more runs are taken, and those that are here may finish. The second signal ends
    /// them.
    fn wait_for_the_end(&self, signals: &Blocked, quiet: bool) {
        let mut killed: Option<Instant> = None;
        loop {
            let taken = signals.take(TICK).is_some_and(|taken| ends(taken.signal));
            let mut runs = self.runs();
            if taken && !runs.ending {
                runs.ending = true;
                if !quiet && !runs.list.is_empty() {
                    let count = runs.list.len();
                    notice(&format!(
                        "waiting for {count} runs to end; a second signal ends them"
                    ));
                }
            } else if taken {
                killed.get_or_insert_with(Instant::now);
                runs.list.iter().for_each(|(_, pager)| pager.kill_all());
            }
            if runs.ending && runs.list.is_empty() {
                return;
            }
            if killed.is_some_and(|since| since.elapsed() > END_PATIENCE) {
                // A process that does not go, or a stopped `vswap run`: what is left of it ends with the daemon.
                warning("some runs do not end; ending without them");
                std::process::exit(i32::from(crate::failure::OWN_ERROR));
            }
        }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runs {
    fn find(&self, pid: u32) -> Option<Arc<Pager>> {
        let found = self.list.iter().find(|(other, _)| *other == pid);
        found.map(|(_, pager)| Arc::clone(pager))
    }
}

fn ends(signal: i32) -> bool {
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT]
        .iter()
        .any(|ending| ending.as_raw() == signal)
}

fn value(of: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(of).map_err(|error| error.to_string())
}

/// A socket will be made in this directory, so it must not be a link, nor belong to somebody else.
fn must_be_own_directory(path: &Path) -> Result<(), String> {
    let found = lstat(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    if path.is_absolute() && is_directory && found.st_uid == geteuid().as_raw() {
        return Ok(());
    }
    Err(format!("{} is no directory of the user", path.display()))
}

fn refuse_second() -> Result<(), Failure> {
    match run_dir::daemon() {
        None => Ok(()),
        Some(daemon) => Err(Failure::own(format!(
            "a daemon of yours is there already (process {}), and there can be one: add areas to it with `vswap \
             swapon`, or end it first",
            daemon.pid
        ))),
    }
}

/// What the pool may take for all runs together. Besides, each run is limited by its own --ram.
fn pool_limit(args: &DaemonArgs) -> Result<u64, Failure> {
    let available = Available::here()?;
    let whole = available.whole();
    Ok(args.pool.map_or(whole, |pool| pool.resolve(whole)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_made_in_own_directories_alone() {
        let own = std::env::temp_dir().join(format!("vswap-daemon-{}", std::process::id()));
        std::fs::create_dir(&own).expect("directory");
        let link = own.join("link");
        std::os::unix::fs::symlink("/tmp", &link).expect("link");
        assert!(must_be_own_directory(&own).is_ok());
        for path in [
            link.as_path(),
            Path::new("."),
            Path::new("/dev/null"),
            &own.join("none"),
        ] {
            assert!(must_be_own_directory(path).is_err(), "{}", path.display());
        }
        std::fs::remove_dir_all(&own).expect("removed");
    }
}
