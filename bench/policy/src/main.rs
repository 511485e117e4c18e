//! `vswap-policy`: models of what cannot be measured on the machine at hand. How good is the choice of the pages that
//! leave? And how many faults can one process have on many processors?
//!
//! `record` runs a program under vswap with everything evicted every few milliseconds, so that each page's first touch
//! in each of these intervals is a fault, and keeps the order of the faults. `compare` plays such traces with a few
//! policies, among them the best there can be (Belady's MIN, which knows the future), and counts misses. `faults` plays
//! the lock of a space with times that are given. Docs: `docs/where-time-goes.md`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

mod faults;
mod policies;
mod record;
mod replay;
mod table;
mod trace;

const EXAMPLES: &str = "\
Examples:
  vswap-policy record --out python.trace -- python3 job.py
  vswap-policy compare python.trace
  vswap-policy compare --room 20 --room 40 *.trace
  vswap-policy faults --between 8 --read 1 --fetch 2 --give 1.5 --word 0.3";

#[derive(Parser)]
#[command(
    version,
    about = "Compare vswap's choice of what leaves with LRU, CLOCK and the best there can be, and model its faults",
    after_help = EXAMPLES
)]
enum Verb {
    /// Record which pages a program touches. Needs `perf` (linux-perf) and the right to use it on page faults.
    Record(record::Args),
    /// Count what each policy would miss, for traces that were recorded.
    Compare(CompareArgs),
    /// Model how many faults of one process are served, by the number of its threads.
    Faults(faults::Args),
}

#[derive(clap::Args)]
struct CompareArgs {
    /// What `record` has written.
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// How much of the pages fits, in hundredths; may be given again and again.
    #[arg(long, value_name = "PERCENT", default_values_t = [20, 33, 50, 75],
          value_parser = clap::value_parser!(u8).range(1..100))]
    room: Vec<u8>,
}

fn main() -> ExitCode {
    let done = match Verb::parse() {
        Verb::Record(args) => record::run(&args),
        Verb::Compare(args) => compare(&args),
        Verb::Faults(args) => faults::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("vswap-policy: {why}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &CompareArgs) -> Result<(), String> {
    for (number, path) in args.traces.iter().enumerate() {
        let trace = trace::read(path)?;
        if number == 0 {
            println!("{}", table::HEAD);
        }
        for percent in &args.room {
            println!("{}", table::row(path, &trace, *percent));
        }
    }
    Ok(())
}
