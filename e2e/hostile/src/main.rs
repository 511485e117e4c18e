//! `vswap-hostile`: programs that lie to vswap as their own agent, beside honest programs that must not notice.
//!
//! `agent` is one process that lies, `honest` one that verifies its memory, `crew` the first program of a run, which
//! starts both. `drive` makes runs and judges them. `cargo xtask hostile` calls it.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "numbers of lies are cut and bent on purpose, and answers of system calls are passed on as they are"
)]

mod numbers;
mod process;
mod secret;
mod honest;
mod liar;
mod crew;
mod driver;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    version,
    about = "Programs that lie to vswap, beside honest ones that must not notice"
)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Lie, as the agent of this process.
    Agent(liar::Wishes),
    /// Write, verify and fork.
    Honest(honest::Wishes),
    /// Start honest and lying programs. The first program of a run.
    Crew(crew::Wishes),
    /// Make runs and judge them.
    Drive(driver::Wishes),
    /// Print the names of all lies.
    Lies,
}

fn main() -> ExitCode {
    let done = match Command::parse().what {
        What::Agent(wishes) => liar::run(&wishes),
        What::Honest(wishes) => honest::run(&wishes),
        What::Crew(wishes) => crew::run(&wishes),
        What::Drive(wishes) => driver::drive(&wishes),
        What::Lies => {
            println!("{}", liar::names().join("\n"));
            Ok(true)
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vswap-hostile: {error}");
            ExitCode::from(2)
        }
    }
}
