//! Swap for any Linux program, from user space.
//!
//! Reads the arguments and hands over to one module for each subcommand. Errors of vswap itself are one or two lines
//! on standard error and the exit statuses that `env` and `timeout` use for theirs.

#![forbid(unsafe_code)]

mod area_file;
mod areas;
mod args;
mod bench;
mod control;
mod daemon;
mod doctor;
mod failure;
mod host;
mod join;
mod joined;
mod mkswap;
mod output;
mod program;
mod report;
mod run;
mod run_dir;
mod size;
mod status;
mod supervise;
mod swap;
mod swap_spec;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use vswap_sys::spawn::{InheritedDescriptors, without_backtraces};

fn main() -> ExitCode {
    let environment = std::env::vars_os().collect();
    without_backtraces();
    let descriptors = InheritedDescriptors::at_start();
    let done = match Args::try_parse() {
        Ok(Args {
            command: Command::Run(args),
        }) => run::run(&args, descriptors, environment),
        Ok(Args {
            command: Command::Daemon(args),
        }) => daemon::daemon(&args),
        Ok(Args {
            command: Command::Status(args),
        }) => status::status(&args),
        Ok(Args {
            command: Command::Swapon(args),
        }) => swap::swap_on(&args),
        Ok(Args {
            command: Command::Swapoff(args),
        }) => swap::swap_off(&args),
        Ok(Args {
            command: Command::Mkswap(args),
        }) => mkswap::mkswap(&args),
        Ok(Args {
            command: Command::Bench(options),
        }) => bench::bench(&options),
        Ok(Args {
            command: Command::BenchWorkload(workload),
        }) => Ok(workload.run()),
        Ok(Args {
            command: Command::Doctor,
        }) => doctor::doctor(),
        Err(error) => return usage(&error),
    };
    done.unwrap_or_else(|failure| {
        output::notice(&failure.to_string());
        ExitCode::from(failure.exit_status)
    })
}

/// Help and version go to standard output and are no failure; anything else is one of vswap's own errors.
fn usage(error: &clap::Error) -> ExitCode {
    // Nothing is left to report to where standard output or error is gone.
    let _ = error.print();
    if error.use_stderr() {
        ExitCode::from(failure::OWN_ERROR)
    } else {
        ExitCode::SUCCESS
    }
}
