//! `vswap run`: everything around one run, from the checks before it to the summary after it.
//!
//! Order matters. Whatever can be refused is refused before the program starts. Signals are blocked before the first
//! thread is made. The run's directory is removed last, when no process can need it.

mod full;
mod program;
mod report;
mod strangers;
mod thrashing;
mod unmanaged;
mod supervise;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use rustix::process::{
    Resource, Rlimit, Signal, getpid, getrlimit, set_child_subreaper, setrlimit,
};
use serde_json::Value;
use vswap_engine::{GroupLimits, Mapping};
use vswap_pager::config::RamRange;
use vswap_pager::{Config, RunGroup, Status};
use vswap_sys::inject::Image;
use vswap_sys::process::signals;
use vswap_sys::process::spawn::{InheritedDescriptors, Program, SpawnError};
use vswap_sys::ring::SOCKET_ENV;

use crate::args::RunArgs;
use crate::args::on_full::OnFull;
use crate::args::size::{Available, PoolSize};
use crate::args::swap_spec::Swaps;
use crate::control::{Asker, Request, Server};
use crate::failure::{Failure, OWN_ERROR};
use crate::host::Host;
use crate::output::figures::bytes;
use crate::output::notice;
use crate::output::summary::summary_line;
use crate::run_dir::{self, RunDir};
use crate::verbs::doctor;
use crate::verbs::run::full::Full;
use crate::verbs::run::report::{Ending, Identity};
use crate::verbs::run::strangers::Strangers;
use crate::verbs::run::supervise::{End, Supervisor, TICK};
use crate::verbs::run::unmanaged::UnmanagedList;

/// Runs the program, waits for all its processes, reports, and exits as the program did.
pub fn run(
    args: &RunArgs,
    descriptors: InheritedDescriptors,
    environment: Environment,
) -> Result<ExitCode, Failure> {
    refuse_nested()?;
    refuse_direct_nowhere(args)?;
    let ram = limit(args)?;
    let name = args
        .command
        .first()
        .ok_or_else(|| Failure::own("no program was given"))?;
    let path = program::find(name)?;
    let loads_agent = program::check(&path)?;
    let signals =
        signals::block().map_err(|error| Failure::own(format!("cannot block signals: {error}")))?;
    // After blocking signals: the probes have children of their own to wait for.
    doctor::require()?;
    let summary = args
        .summary
        .as_deref()
        .map(|path| Ok((path, create_summary(path)?)))
        .transpose()?;
    set_child_subreaper(Some(getpid()))
        .map_err(|error| Failure::own(format!("cannot become the reaper of the run: {error}")))?;
    let run_dir = RunDir::create()?;
    let host = Host::of(args, config(args, ram, &run_dir))?;
    let server = Server::bind(run_dir.path()).map_err(|error| {
        Failure::own(format!("cannot make the socket for vswap status: {error}"))
    })?;

    let own = vswap_pager::environment(&run_dir.agent_path(), host.socket());
    let environment = with_own(environment, own);
    let program = program(&path, &args.command, environment)?.traced(!loads_agent);
    let unmanaged = UnmanagedList::default();
    let mut strangers = Strangers::new(
        agent_image()?,
        run_dir.agent_path(),
        host.socket().display().to_string(),
        args,
        &unmanaged,
    );
    let started = Instant::now();
    let program_pid = program
        .spawn(signals.inherited())
        .map_err(|error| spawn_failure(&path, &error))?;
    if !loads_agent {
        strangers.attach_first(program_pid);
    }
    descriptors.release();
    raise_descriptor_limit();
    let identity = Identity::new(&args.command, program_pid, started, &unmanaged);
    let full = Full::new(args.on_full, TICK);
    let supervisor = Supervisor::new(&signals, &host, program_pid, args.quiet, full, strangers);
    let end = std::thread::scope(|scope| {
        let served = server.serve_in(scope, |request, asker| {
            answer(&host, &identity, &request, asker)
        });
        say_unserved(served);
        let end = supervisor.supervise();
        server.stop();
        end
    });
    let status = host.finish();
    drop(run_dir);

    let ending = shown(end, args.on_full);
    let end = End { ending, ..end };
    report(args, summary, &identity, &status?, end);
    if let Ending::Signaled(signal) = ending {
        signals::die_by(signal);
    }
    Ok(ExitCode::from(ending.exit_status()))
}

/// What the pager is told of the run.
fn config(args: &RunArgs, ram: RamRange, run_dir: &RunDir) -> Config {
    Config {
        ram,
        pool_limit: args.pool.map(PoolSize::limit),
        mapping: if args.no_virtual {
            Mapping::Direct
        } else {
            Mapping::Virtual
        },
        group: group(args),
        root_pid: std::process::id(),
        run_dir: run_dir.path().to_owned(),
        evict_all_every: args.debug_evict_every,
        quiet: args.quiet,
        pressure_file: args.debug_pressure.clone(),
    }
}

/// The program runs already, and matters more than questions about it.
fn say_unserved(served: std::io::Result<()>) {
    if let Err(error) = served {
        notice(&format!(
            "this run answers neither `vswap status` nor any other command, because there is no thread for it: {error}"
        ));
    }
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
fn group(args: &RunArgs) -> Option<RunGroup> {
    let limits = GroupLimits {
        swap_max_bytes: args.swap_max.unwrap_or(GroupLimits::NO_LIMIT),
        pool_max_bytes: args.pool_max.unwrap_or(GroupLimits::NO_LIMIT),
        writeback: !args.no_writeback,
    };
    let name = args.group.clone()?;
    Some(RunGroup { name, limits })
}

/// Does what another command asks of this run.
fn answer(
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
        | Request::AllowLast(_)
        | Request::Finish => Err("this is a run, and no daemon".to_owned()),
    }
}

/// Pages that are directly mapped can go nowhere else than to areas.
fn refuse_direct_nowhere(args: &RunArgs) -> Result<(), Failure> {
    match Swaps::of(&args.swap).map_err(Failure::own)? {
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

fn limit(args: &RunArgs) -> Result<RamRange, Failure> {
    let available = Available::here()?;
    let ram = args.ram.resolve(available)?;
    if ram.most_bytes > available.whole() && !args.quiet {
        notice(&format!(
            "--ram {} is more than the {} there are here: memory will run out before vswap has anything to do; \
             --ram auto fits",
            bytes(ram.most_bytes),
            bytes(available.whole())
        ));
    }
    Ok(ram)
}

/// Makes the file before the run, so that a wrong path is not found out after hours. For standard output vswap keeps a
/// descriptor of its own, which the program cannot close.
fn create_summary(path: &Path) -> Result<File, Failure> {
    let made = if path == Path::new("-") {
        std::io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map(File::from)
    } else {
        File::create(path)
    };
    made.map_err(|error| {
        Failure::own(format!(
            "cannot write the summary to {}: {error}",
            path.display()
        ))
    })
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

/// Writes the summary line and the JSON summary. The program has ended and its own status counts. So a file that can no
/// longer be written is reported and changes nothing.
fn report(
    args: &RunArgs,
    summary: Option<(&Path, File)>,
    identity: &Identity<'_>,
    status: &Status,
    end: End,
) {
    if !args.quiet {
        notice(&summary_line(status, end.was_full));
    }
    if let Some((path, mut file)) = summary {
        let report = identity.report(status, Some(end.ending), end.was_full);
        if let Err(error) = writeln!(file, "{report:#}") {
            notice(&format!(
                "cannot write the summary to {}: {error}",
                path.display()
            ));
        }
    }
}
