//! Swap for any Linux program, from user space.
//!
//! Reads the arguments and calls the module of the subcommand. vswap's own errors are one or two lines on standard
//! error, with the exit statuses that `env` and `timeout` use for theirs.

#![forbid(unsafe_code)]

// Floors, lowest first: a module names only modules above it in this list (`cargo xtask tidy`).

// Why a command ends, and with which status.
mod failure;
// What people read.
mod output;
// What people write.
mod args;
// Where a run and the daemon keep their files.
mod run_dir;
// What a run tells the daemon.
mod join;
// How a command asks a run or the daemon.
mod control;
// The figures for Prometheus.
mod metrics;
// Opens what the user names as a swap area.
mod areas;
// Who manages the memory of a run.
mod host;
// Looking at the living runs again and again.
mod watching;
// How much memory a program needs.
mod advice;
// What a run was like from its start to its end.
mod record;
// The page that is made of a record.
mod page;
// One module for each subcommand.
mod verbs;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;

use args::{Args, Command};
use failure::Failure;
use vswap_sys::machine::check_page_size;
use vswap_sys::memory::heap;
use vswap_sys::process::spawn::{InheritedDescriptors, without_backtraces};

fn main() -> ExitCode {
    let environment = std::env::vars_os().collect();
    without_backtraces();
    heap::give_large_blocks_back();
    let descriptors = InheritedDescriptors::at_start();
    if let Err(failure) = output::log::begin() {
        return end(&failure);
    }
    match Args::read() {
        Ok(Args { command }) => {
            carry_out(command, descriptors, environment).unwrap_or_else(|failure| end(&failure))
        }
        Err(error) => usage(error),
    }
}

fn carry_out(
    command: Command,
    descriptors: InheritedDescriptors,
    environment: Vec<(OsString, OsString)>,
) -> Result<ExitCode, Failure> {
    if command.needs_pages() {
        check_page_size().map_err(Failure::of)?;
    }
    match command {
        Command::Run(args) => verbs::run::run(&args, descriptors, environment),
        Command::Advise(args) => verbs::advise::advise(&args, descriptors, environment),
        Command::Attach(args) => verbs::attach::attach(&args),
        Command::Detach(args) => verbs::detach::detach(&args),
        Command::Daemon(args) => verbs::daemon::daemon(&args),
        Command::Status(args) => verbs::status::status(&args),
        Command::Top(args) => verbs::top::top(&args),
        Command::Set(args) => verbs::set::set(&args),
        Command::Park(args) => verbs::park::park(&args),
        Command::Wake(args) => verbs::park::wake(&args),
        Command::Swapon(args) => verbs::swap::swap_on(&args),
        Command::Swapoff(args) => verbs::swap::swap_off(&args),
        Command::Mkswap(args) => verbs::mkswap::mkswap(&args),
        Command::Bench(options) => verbs::bench::bench(&options),
        Command::BenchWorkload(workload) => Ok(workload.run()),
        Command::Far(command) => verbs::far::far(&command),
        Command::Doctor => verbs::doctor::doctor(),
        Command::Completions(args) => verbs::completions::completions(&args),
        Command::Man(args) => verbs::man::man(&args),
    }
}

fn end(failure: &Failure) -> ExitCode {
    output::error(&failure.to_string());
    ExitCode::from(failure.exit_status)
}

/// Help and version go to standard output and are no failure. Anything else is one of vswap's own errors.
fn usage(mut error: clap::Error) -> ExitCode {
    let subcommand = std::env::args_os().nth(1);
    let subcommand = subcommand.as_deref().and_then(|name| name.to_str());
    args::similar::suggest(&mut error, &mut Args::command(), subcommand);
    // If standard output or error is gone, there is nobody left to tell.
    let _ = error.print();
    if error.use_stderr() {
        ExitCode::from(failure::OWN_ERROR)
    } else {
        ExitCode::SUCCESS
    }
}
