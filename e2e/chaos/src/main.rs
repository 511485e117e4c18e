//! `vswap-chaos`: generates programs that create, change, share, protect, discard, pin and end memory. It runs each
//! natively and under vswap while everything is evicted again and again, and compares every answer and every byte.
//!
//! `program` runs one plan, `drive` makes plans and runs them, `plan` prints one. `cargo xtask chaos` calls it.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "pages of a small arena, lines of a plan, and answers of system calls as they are"
)]

mod driver;
mod generate;
mod plan;
mod program;
mod step;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    version,
    about = "Generated programs, run natively and under vswap, and compared"
)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run a plan, or only one actor of it.
    Program {
        plan: PathBuf,
        #[arg(long)]
        log: PathBuf,
        #[arg(long)]
        only: Option<u32>,
        /// Leave pauses out.
        #[arg(long)]
        fast: bool,
    },
    /// Make plans and run them.
    Drive(driver::Wishes),
    /// Print the plan of a seed.
    Plan { seed: u64 },
}

fn main() -> ExitCode {
    let done = match Command::parse().what {
        What::Program {
            plan,
            log,
            only,
            fast,
        } => program::run(&plan, &log, only, fast),
        What::Drive(wishes) => driver::drive(&wishes).map(|good| i32::from(!good)),
        What::Plan { seed } => {
            print!("{}", generate::plan(seed, &[]).text());
            Ok(0)
        }
    };
    match done {
        Ok(status) => ExitCode::from(status as u8),
        Err(error) => {
            eprintln!("vswap-chaos: {error}");
            ExitCode::from(2)
        }
    }
}
