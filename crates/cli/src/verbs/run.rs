//! `vswap run`: everything around one run, from the checks before it to the summary after it.
//!
//! Order matters. Whatever can be refused is refused before the program starts. Signals are blocked before the first
//! thread is made. What this process gives up for good, it gives up when the program has been started, which must not
//! inherit that. The run's directory is removed last, when no process can need it.

pub mod family;
mod full;
mod bells;
pub mod parking;
mod idle;
pub mod auto_park;
mod program;
pub mod sampled;
pub mod report;
mod thrashing;
pub mod unmanaged;
pub mod strangers;
pub mod summary;
pub mod watch;
pub mod reports;
mod supervise;

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{
    Resource, Rlimit, Signal, getpid, getrlimit, set_child_subreaper, setrlimit,
};
use serde_json::Value;
use vswap_engine::{GroupLimits, Mapping};
use vswap_pager::config::RamRange;
use vswap_pager::page_run::PAGE_BYTES;
use vswap_pager::{Config, RunGroup, Sampled, Status};
use vswap_sys::confinement;
use vswap_sys::inject::Image;
use vswap_sys::patience;
use vswap_sys::process::pressure::Surroundings;
use vswap_sys::process::signals;
use vswap_sys::process::spawn::{InheritedDescriptors, Program, SpawnError};
use vswap_sys::ring::SOCKET_ENV;

use crate::args::on_full::OnFull;
use crate::args::size::{Available, PoolSize};
use crate::args::swaps::Swaps;
use crate::args::{ManageArgs, RunArgs};
use crate::control::{Asker, Detach, Request, Server};
use crate::failure::{Failure, OWN_ERROR};
use crate::host::{Host, confine};
use crate::metrics::Metrics;
use crate::output::figures::bytes;
use crate::output::warning;
use crate::record::Recording;
use crate::run_dir::{self, RunDir};
use crate::verbs::doctor;
use crate::verbs::run::auto_park::AutoPark;
use crate::verbs::run::family::Family;
use crate::verbs::run::parking::Parking;
use crate::verbs::run::report::{Ending, Identity};
use crate::verbs::run::reports::{Ended, Reports};
use crate::verbs::run::strangers::Strangers;
use crate::verbs::run::supervise::{End, Supervisor};
use crate::verbs::run::unmanaged::UnmanagedList;

/// A run that is over, and what is known of it.
#[derive(Debug)]
pub struct Finished {
    ending: Ending,
    /// How long it took.
    pub seconds: f64,
    /// Its last figures.
    pub status: Option<Status>,
    /// What sampling saw.
    pub sampled: Option<Sampled>,
}

impl Finished {
    /// Exits as the program did.
    pub fn exit(self) -> ExitCode {
        if let Ending::Signaled(signal) = self.ending {
            signals::die_by(signal);
        }
        ExitCode::from(self.ending.exit_status())
    }
}

/// Runs the program, waits for all its processes, reports, and exits as the program did.
pub fn run(
    args: &RunArgs,
    descriptors: InheritedDescriptors,
    environment: Environment,
) -> Result<ExitCode, Failure> {
    carry_out(args, None, descriptors, environment).map(Finished::exit)
}

/// Runs the program, perhaps with sampling at this pace, waits for all its processes, and reports.
pub fn carry_out(
    args: &RunArgs,
    sample_every: Option<Duration>,
    descriptors: InheritedDescriptors,
    environment: Environment,
) -> Result<Finished, Failure> {
    refuse_nested()?;
    let manage = &args.manage;
    refuse_direct_nowhere(manage)?;
    let ram = limit(manage)?;
    let name = args.command.first();
    let path = program::find(name.ok_or_else(|| Failure::own("no program was given"))?)?;
    let loads_agent = program::check(&path)?;
    let signals =
        signals::block().map_err(|error| Failure::own(format!("cannot block signals: {error}")))?;
    // After blocking signals: the probes have children of their own to wait for.
    doctor::require()?;
    let reports = Reports::create(manage, &args.command)?;
    become_reaper()?;
    let run_dir = RunDir::create()?;
    let config = config(manage, ram, std::process::id(), &run_dir);
    let host = Host::of(args, config.sampling(sample_every))?;
    let server = serve_at(&run_dir)?;
    let metrics = Metrics::open(manage.metrics.as_ref(), manage.quiet)?;

    let own = vswap_pager::environment(&run_dir.agent_path(), host.socket());
    let environment = with_own(environment, own);
    let program = program(&path, &args.command, environment)?.traced(!loads_agent);
    let unmanaged = UnmanagedList::default();
    let family = Family::Own;
    let mut strangers = strangers(&run_dir, &host, &family, &unmanaged)?
        .quiet(manage.quiet)
        .require_managed(args.require_managed);
    let started = Instant::now();
    let program_pid = program
        .spawn(signals.inherited())
        .map_err(|error| spawn_failure(&path, &error))?;
    if !loads_agent {
        strangers.attach_first(program_pid);
    }
    descriptors.release();
    raise_descriptor_limit();
    confine(manage.quiet, host.reach());
    let identity = Identity::new(&args.command, program_pid, started, &unmanaged);
    let parking = Parking::new(&host, &family);
    let supervisor = Supervisor::new(&signals, &host, &parking, program_pid, manage, strangers)
        .parking_itself(AutoPark::of(manage, run_dir.path()));
    let (end, record) = std::thread::scope(|scope| {
        let recording = reports.record(scope, started, &host);
        let served = server.serve_in(scope, |request, asker| match request {
            Request::Detach(asked) => let_go(&host, &parking, asked),
            Request::Park(order) => parking.park(order, asker),
            Request::Wake => parking.wake(),
            Request::Sample(seconds) => sampled::sample(&host, &parking, seconds, asker),
            request => answer(&host, &identity, &request, asker),
        });
        say_unserved(served);
        metrics.serve_in(scope, || identity.figures(&host, manage.codec));
        let end = supervisor.supervise();
        server.stop();
        metrics.stop();
        (end, recording.map(Recording::end))
    });
    drop(metrics);
    let seconds = identity.seconds();
    let sampled = host.sampled();
    let status = host.finish();
    let last = status.as_ref().ok().cloned();
    drop(run_dir);

    let ending = shown(end, manage.on_full);
    let ended = Ended::new(ending.to_string(), Some(ending), end.was_full);
    reports.write(manage, &identity, record, status, &ended)?;
    Ok(Finished {
        ending,
        seconds,
        status: last,
        sampled,
    })
}

/// Processes of the run whose parents have ended become children of this one.
fn become_reaper() -> Result<(), Failure> {
    set_child_subreaper(Some(getpid()))
        .map_err(|error| Failure::own(format!("cannot become the reaper of the run: {error}")))
}

/// What the pager is told of the run.
pub fn config(args: &ManageArgs, ram: RamRange, root_pid: u32, run_dir: &RunDir) -> Config {
    Config {
        ram,
        pool_limit: args.pool.map(PoolSize::limit),
        mapping: if args.no_virtual {
            Mapping::Direct
        } else {
            Mapping::Virtual
        },
        group: group(args),
        root_pid,
        run_dir: run_dir.path().to_owned(),
        evict_all_every: args.debug_evict_every,
        sample_every: None,
        quiet: args.quiet,
        pressure_file: args.debug_pressure.clone(),
    }
}

/// The socket on which the run answers other commands.
pub fn serve_at(run_dir: &RunDir) -> Result<Server, Failure> {
    Server::bind(run_dir.path())
        .map_err(|error| Failure::own(format!("cannot make the socket for vswap status: {error}")))
}

/// The program runs already, and matters more than questions about it.
pub fn say_unserved(served: std::io::Result<()>) {
    if let Err(error) = served {
        warning(&format!(
            "this run answers neither `vswap status` nor any other command, because there is no thread for it: {error}"
        ));
    }
}

/// What puts the agent into the run's processes from outside.
pub fn strangers<'a>(
    run_dir: &RunDir,
    host: &Host,
    family: &'a Family,
    unmanaged: &'a UnmanagedList,
) -> Result<Strangers<'a>, Failure> {
    let socket = host.socket().display().to_string();
    let image = agent_image()?;
    confinement::start_threads(patience::prepare)
        .flatten()
        .map_err(|error| Failure::own(format!("cannot start a thread: {error}")))?;
    Ok(Strangers::new(
        image,
        run_dir.agent_path(),
        socket,
        family,
        unmanaged,
    ))
}

/// The agent, to be put into programs from outside.
fn agent_image() -> Result<Image, Failure> {
    Image::read(run_dir::AGENT)
        .map_err(|error| Failure::own(format!("the agent in this vswap is damaged: {error}")))
}

/// What those who wait for the run are to see. One that was ended because it was full has not ended as its program
/// would have it, whatever that made of SIGTERM.
fn shown(end: End, on_full: OnFull) -> Ending {
    match on_full {
        _ if !end.was_full => end.ending,
        OnFull::Fail(_) => Ending::Exited(OWN_ERROR),
        OnFull::Kill(_) | OnFull::Wait => Ending::Signaled(Signal::KILL.as_raw()),
    }
}

/// Names and values.
pub type Environment = Vec<(OsString, OsString)>;

/// The group of the run, if the user gave one.
fn group(args: &ManageArgs) -> Option<RunGroup> {
    let limits = GroupLimits {
        swap_max_bytes: args.swap_max.unwrap_or(GroupLimits::NO_LIMIT),
        pool_max_bytes: args.pool_max.unwrap_or(GroupLimits::NO_LIMIT),
        writeback: !args.no_writeback,
        ..GroupLimits::default()
    };
    Some(RunGroup {
        name: args.group.clone()?,
        limits,
        tiers: args.tier_max.clone(),
    })
}

/// Lets go of a process of the run, which stays in it. False if there is none of this id.
fn let_go(host: &Host, parking: &Parking<'_>, asked: Detach) -> Result<Value, String> {
    if !parking.family().living().contains(&asked.pid) {
        return Ok(Value::Bool(false));
    }
    room_for_swap(host, asked)?;
    // A stopped agent cannot be let go of.
    parking.wake()?;
    host.let_go(asked.pid).map(|_| Value::Bool(true))
}

/// Refuses if what is in swap may find no room in memory.
pub fn room_for_swap(host: &Host, asked: Detach) -> Result<(), String> {
    let status = host.status().ok_or("the daemon does not answer")?;
    let needed = (status.swapped_pages * PAGE_BYTES).saturating_sub(status.pool_bytes);
    let memory = Surroundings::of(asked.pid).memory();
    let available = memory.map_or(u64::MAX, |memory| memory.available_bytes);
    if asked.force || needed <= available {
        return Ok(());
    }
    Err(format!(
        "what is in swap needs {} more memory, and {} are to be had: free some, or do it all the same with --force",
        bytes(needed),
        bytes(available)
    ))
}

/// Does what another command asks of this run.
pub fn answer(
    host: &Host,
    identity: &Identity<'_>,
    request: &Request,
    asker: &Asker<'_>,
) -> Result<Value, String> {
    match request {
        Request::Status => {
            let status = host.status().ok_or("the daemon does not answer")?;
            Ok(identity.report(&status, None, false))
        }
        Request::SwapOn(_) | Request::SwapOff(_) => host.change_areas(request, asker),
        Request::Set(_) | Request::SetGroup(..) => host.set(request),
        Request::Join(_)
        | Request::RunStatus(_)
        | Request::RunSet(..)
        | Request::RunDetach(..)
        | Request::RunMap(..)
        | Request::AllowLast(_)
        | Request::RunPark(..)
        | Request::Park(_)
        | Request::Wake
        | Request::Sample(_)
        | Request::Finish
        | Request::Detach(_) => Err("this is a run, and no daemon".to_owned()),
    }
}

/// Pages that are directly mapped can go nowhere else than to areas.
pub fn refuse_direct_nowhere(args: &ManageArgs) -> Result<(), Failure> {
    match Swaps::of(&args.areas()).map_err(Failure::own)? {
        Swaps::Named(areas) if areas.is_empty() && args.no_virtual => Err(Failure::own(
            "--no-virtual wants swap areas, and --swap none says that there are none: name one, or leave --no-virtual \
             out",
        )),
        _ => Ok(()),
    }
}

/// Each process of a run costs vswap some descriptors. Raised only once the program has its own limit.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Never refused: every process may raise its limit up to the hard limit.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

/// Refuses a run inside a run: one pager would manage the memory of another pager.
pub fn refuse_nested() -> Result<(), Failure> {
    match std::env::var_os(SOCKET_ENV) {
        Some(socket) if Path::new(&socket).exists() => Err(Failure::own(
            "this is already running under vswap, and one run cannot hold another: \
             start the program without `vswap run`; it is within the limit of the run around it",
        )),
        _ => Ok(()),
    }
}

pub fn limit(args: &ManageArgs) -> Result<RamRange, Failure> {
    let available = Available::here()?;
    let ram = args.ram.resolve(available)?;
    if ram.most_bytes > available.whole() && !args.quiet {
        warning(&format!(
            "--ram {} is more than the {} there are here: memory will run out before vswap has anything to do; \
             --ram auto fits",
            bytes(ram.most_bytes),
            bytes(available.whole())
        ));
    }
    Ok(ram)
}

fn program(
    path: &Path,
    command: &[OsString],
    environment: Vec<(OsString, OsString)>,
) -> Result<Program, Failure> {
    let arguments = command
        .iter()
        .cloned()
        .map(c_string)
        .collect::<Result<_, _>>()?;
    let environment = environment
        .into_iter()
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            c_string(name)
        })
        .collect::<Result<_, _>>()?;
    Ok(Program::new(
        c_string(path.as_os_str().to_owned())?,
        arguments,
        environment,
    ))
}

fn c_string(text: OsString) -> Result<CString, Failure> {
    CString::new(text.into_vec()).map_err(|_| Failure::own("an argument has a zero byte in it"))
}

/// The given environment in its order. The pager's own variables replace those of the same name or are added at the
/// end.
fn with_own(mut all: Environment, own: Environment) -> Environment {
    for (name, value) in own {
        match all.iter_mut().find(|(existing, _)| *existing == name) {
            Some((_, existing)) => *existing = value,
            None => all.push((name, value)),
        }
    }
    all
}

fn spawn_failure(path: &Path, error: &SpawnError) -> Failure {
    match error {
        SpawnError::Fork(_) => Failure::own(error.to_string()),
        SpawnError::Exec(source) => {
            let message = format!("cannot execute {}: {source}", path.display());
            if source.kind() == std::io::ErrorKind::NotFound {
                Failure::not_found(message)
            } else {
                Failure::cannot_execute(message)
            }
        }
    }
}
