//! Who manages the memory of a run: this process with its own store, or the daemon of the user.

pub mod joined;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use vswap_pager::{
    Config, GroupChange, MapQuery, MemoryMap, Pager, ParkStep, Parked, Sampled, Sampling, Status,
    Store, StoreConfig, StoreStatus,
};
use vswap_sys::confinement::{self, Reach};
use vswap_sys::guardian::Guardian;

use crate::areas::{self, Opening};
use crate::args::{ManageArgs, RunArgs, tiers};
use crate::control::{Asker, Request};
use crate::failure::Failure;
use crate::host::joined::Joined;
use crate::output::{notice, warning};
use crate::run_dir::{self, Living};

/// The host of a run.
#[derive(Debug)]
pub enum Host {
    /// This process.
    Own {
        /// Swap tables, pool and areas.
        store: Arc<Store>,
        /// How its areas are opened.
        opening: Opening,
        /// The run.
        pager: Pager,
        /// Stops the programs if this process is killed. Declared after the pager because it holds the pager's
        /// descriptors too.
        guardian: Option<Guardian>,
    },
    /// The daemon.
    Daemon(Joined),
}

impl Host {
    /// The daemon if there is one and the user did not forbid it, else this process.
    pub fn of(args: &RunArgs, config: Config) -> Result<Host, Failure> {
        let daemon = run_dir::daemon().filter(|_| !args.no_daemon);
        match daemon {
            Some(daemon) => {
                refuse_what_is_the_daemons(&args.manage, &daemon)?;
                if !args.manage.quiet {
                    notice(&format!(
                        "this run is in the daemon (process {}), with its areas and its pool; --no-daemon runs alone",
                        daemon.pid
                    ));
                }
                Joined::join(&daemon, &config).map(Host::Daemon)
            }
            None => Host::own(&args.manage, config),
        }
    }

    /// A store, and a run on it, in this process. The caller keeps its capabilities. The threads of the run have only
    /// those that they need.
    pub fn own(args: &ManageArgs, config: Config) -> Result<Host, Failure> {
        let guardian = guarded()?;
        confinement::start_threads(|| Host::begin(args, config, guardian))
            .map_err(|error| Failure::own(format!("cannot start a thread: {error}")))?
    }

    fn begin(
        args: &ManageArgs,
        config: Config,
        guardian: Option<Guardian>,
    ) -> Result<Host, Failure> {
        let store = Store::new(&StoreConfig {
            frames: config.frames(),
            codec: args.codec.unwrap_or_default().into(),
            repacks: args.codec.unwrap_or_default().repacks(),
            pool_limit_bytes: config
                .pool_limit
                .map_or(config.ram.most_bytes, |pool| pool.of(config.ram.most_bytes)),
            checksums: args.debug_checksums,
            shared: false,
        });
        let store = Arc::new(store.map_err(Failure::of)?);
        let limit_bytes = config.ram.most_bytes;
        let named = args.areas();
        // The limits of the run's group may name them.
        let expected = store.expect_tiers(tiers::names(&named));
        expected.map_err(Failure::of)?;
        let pager = Pager::start(&store, config).map_err(Failure::of)?;
        let opening = Opening::new(args.no_encrypt, &args.far, &named);
        areas::begin(&store, &opening, &named, limit_bytes, args.quiet)?;
        Ok(Host::Own {
            store,
            opening,
            pager,
            guardian,
        })
    }

    /// Whom this process may begin to talk to.
    pub fn reach(&self) -> Reach {
        match self {
            Host::Own { opening, .. } => opening.reach,
            Host::Daemon(_) => Reach::Machine,
        }
    }

    /// The socket where agents say hello.
    pub fn socket(&self) -> &Path {
        match self {
            Host::Own { pager, .. } => pager.socket(),
            Host::Daemon(joined) => joined.socket(),
        }
    }

    /// Current figures. `None` if the daemon does not answer.
    pub fn status(&self) -> Option<Status> {
        match self {
            Host::Own { pager, .. } => Some(pager.status()),
            Host::Daemon(joined) => joined.status().ok(),
        }
    }

    /// What sampling has seen. `None` for a run in the daemon.
    pub fn sampled(&self) -> Option<Sampled> {
        match self {
            Host::Own { pager, .. } => Some(pager.sampled()),
            Host::Daemon(_) => None,
        }
    }

    /// Samples the run for as long as the result lives.
    pub fn sample(&self, every: Duration) -> Result<Sampling<'_>, String> {
        match self {
            Host::Own { pager, .. } => pager.sample(every).map_err(|error| error.to_string()),
            Host::Daemon(joined) => Err(format!(
                "the run is in the daemon (process {}), which cannot sample it: start it with --no-daemon, or let \
                 `vswap advise -- CMD` run the program",
                joined.daemon_pid()
            )),
        }
    }

    /// What of a process's memory is where. `None` if it is not managed, or the daemon does not answer.
    pub fn memory_map(&self, query: MapQuery) -> Option<MemoryMap> {
        match self {
            Host::Own { pager, .. } => pager.memory_map(query),
            Host::Daemon(joined) => joined.memory_map(query).ok().flatten(),
        }
    }

    /// Pool, areas and groups, unless they are the daemon's.
    pub fn store_status(&self) -> Option<StoreStatus> {
        match self {
            Host::Own { store, .. } => Some(store.status()),
            Host::Daemon(_) => None,
        }
    }

    /// The run is told to end, perhaps while it waits for memory: it may take some more for that.
    pub fn allow_last(&self) {
        match self {
            Host::Own { pager, .. } => pager.allow_last(),
            // Where the daemon does not answer, the run ends with it.
            Host::Daemon(joined) => drop(joined.allow_last()),
        }
    }

    /// The process that `vswap swapon --run` has to name.
    pub fn areas_pid(&self) -> u32 {
        match self {
            Host::Own { .. } => std::process::id(),
            Host::Daemon(joined) => joined.daemon_pid(),
        }
    }

    /// Has the daemon ended before the run?
    pub fn is_lost(&self) -> bool {
        match self {
            Host::Own { .. } => false,
            Host::Daemon(joined) => joined.is_lost(),
        }
    }

    /// Changes the run's areas as another command asks.
    pub fn change_areas(&self, request: &Request, asker: &Asker<'_>) -> Result<Value, String> {
        match self {
            Host::Own { store, opening, .. } => areas::change(store, opening, request, asker),
            Host::Daemon(joined) => {
                let pid = joined.daemon_pid();
                Err(format!(
                    "the run is in the daemon, whose areas it uses: leave --run out, or say --run {pid}"
                ))
            }
        }
    }

    /// Gives the run, or a group of its store, other limits.
    pub fn set(&self, request: &Request) -> Result<Value, String> {
        match (self, request) {
            (Host::Own { pager, .. }, Request::Set(settings)) => pager
                .set(settings)
                .map(|()| Value::Null)
                .map_err(|error| error.to_string()),
            (Host::Own { store, .. }, Request::SetGroup(name, change)) => {
                set_group(store, name, change)
            }
            (Host::Daemon(joined), Request::Set(settings)) => joined.set(settings),
            (Host::Daemon(joined), Request::SetGroup(..)) => {
                let pid = joined.daemon_pid();
                Err(format!(
                    "the run is in the daemon, which has the groups: leave --run out, or say --run {pid}"
                ))
            }
            _ => Err("this is no request for limits".to_owned()),
        }
    }

    /// Does a step of parking the run.
    pub fn park(&self, step: ParkStep) -> Result<Parked, String> {
        match self {
            Host::Own { pager, .. } => pager.park(step).map_err(|error| error.to_string()),
            Host::Daemon(joined) => joined.park(step).map_err(|error| error.to_string()),
        }
    }

    /// The processes that vswap manages, and whether there are any or will be. For a run in the daemon nobody knows.
    pub fn managed(&self) -> (Vec<u32>, bool) {
        match self {
            Host::Own { pager, .. } => pager.managed(),
            Host::Daemon(_) => (Vec::new(), false),
        }
    }

    /// Lets go of a process, which stays in the run.
    pub fn let_go(&self, pid: u32) -> Result<Value, String> {
        match self {
            Host::Own { pager, .. } => pager
                .let_go(pid)
                .map(|()| Value::Null)
                .map_err(|error| error.to_string()),
            Host::Daemon(joined) => joined.let_go(pid),
        }
    }

    /// Leaves the processes of the run alive, without vswap, and returns the last figures. Call it just before this
    /// process ends: the guardian stays, and answers the calls that still stop at the processes' filters.
    pub fn leave(self, say_stopped: impl FnMut(u32)) -> Result<Status, Failure> {
        match self {
            Host::Own {
                store,
                pager,
                guardian,
                ..
            } => {
                pager.leave(say_stopped);
                let status = pager.finish();
                store.retire();
                if let Some(guardian) = guardian {
                    guardian.stay();
                }
                Ok(status)
            }
            Host::Daemon(_) => Err(Failure::own("a run in the daemon cannot be left")),
        }
    }

    /// The run has ended: returns its last figures.
    pub fn finish(self) -> Result<Status, Failure> {
        match self {
            Host::Own {
                store,
                pager,
                guardian,
                ..
            } => {
                let status = pager.finish();
                store.retire();
                drop(guardian);
                Ok(status)
            }
            Host::Daemon(mut joined) => joined.finish(),
        }
    }
}

/// Gives a group of a store other limits.
pub fn set_group(store: &Store, name: &str, change: &GroupChange) -> Result<Value, String> {
    let name = name.parse().map_err(|error| format!("{name}: {error}"))?;
    let done = store.set_group(&name, change);
    done.map(|()| Value::Null)
        .map_err(|error| error.to_string())
}

/// Starts the guardian of this process, which has only one thread so far. `None` if the test of rule P7 leaves the rule
/// out.
pub fn guarded() -> Result<Option<Guardian>, Failure> {
    if cfg!(feature = "break-rules")
        && std::env::var_os("VSWAP_BREAK_RULE").is_some_and(|r| r == "P7")
    {
        return Ok(None);
    }
    Guardian::start().map(Some).map_err(|error| {
        Failure::own(format!(
            "cannot make the process that stops the programs if vswap is killed: {error}; allow one more process and \
             descriptor (ulimit -u, ulimit -n)"
        ))
    })
}

/// Gives up what this process does not need any more. Call it when it makes no process any more, on the thread that
/// lives longest: the others have no more capabilities than they need.
pub fn confine(quiet: bool, reach: Reach) {
    match confinement::confine(reach) {
        Err(error) if !quiet => warning(&format!(
            "this process runs without a filter for its own system calls: {error}"
        )),
        Ok(()) | Err(_) => {}
    }
}

/// Refuses options for areas, pool and codec: all runs of a daemon share these.
fn refuse_what_is_the_daemons(args: &ManageArgs, daemon: &Living) -> Result<(), Failure> {
    let given = [
        ("--swap", !args.swap.is_empty()),
        ("--tier", !args.tier.is_empty()),
        ("--pool", args.pool.is_some()),
        ("--codec", args.codec.is_some()),
        ("--no-encrypt", args.no_encrypt),
        (
            args.far.given().unwrap_or_default(),
            args.far.given().is_some(),
        ),
        ("--debug-checksums", args.debug_checksums),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::own(format!(
            "{option} is for a run by itself, and a daemon of yours is there (process {}), whose areas, pool and codec \
             its runs share: leave {option} out, or give --no-daemon as well",
            daemon.pid
        ))),
    }
}
