//! `vswap-engine-bench`: what the engine's operations cost without the rest, and what each design choice is worth.

use std::process::ExitCode;

use clap::Parser;
use vswap_bench::engine_bench::Command;

#[derive(Parser)]
#[command(
    version,
    about = "Measure the swap engine by itself and beside the designs it leaves behind"
)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    Options::parse().command.run()
}
