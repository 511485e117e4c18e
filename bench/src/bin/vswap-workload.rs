//! `vswap-workload`: runs the workloads of `vswap bench` alone, for tests and for other programs' measurements.

use std::process::ExitCode;

use clap::Parser;
use vswap_bench::workload::Workload;

#[derive(Parser)]
#[command(version, about = "Memory workloads that verify every byte they wrote")]
struct Command {
    #[command(subcommand)]
    workload: Workload,
}

fn main() -> ExitCode {
    Command::parse().workload.run()
}
