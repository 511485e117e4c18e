//! Measures what the engine's operations cost without the rest, and what each design choice is worth.
//!
//! It prints figures and does not judge them, so a busy or slow machine makes no test fail. Every measurement is
//! repeated in rounds. A round runs all variants in turn. The result is shown as median and range. `--json` keeps all
//! samples, and `plot` draws them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;

use crate::size::parse_bytes;

mod ablation;
mod areas;
mod cell;
mod metadata;
mod operations;
mod pages;
mod phases;
mod plan;
mod plot;
mod record;
mod setup;
mod tables;
mod variants;

use plan::Plan;
use record::{About, Results};

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure everything, in about four minutes.
    All(Measure),
    /// Measure single operations.
    Operations(Measure),
    /// Compare the engine's design with a global tree, a count map and a slot cache.
    Ablation(Measure),
    /// Compare four areas that take turns with the same four one after the other.
    Areas(Measure),
    /// Measure what an area's tables cost.
    Metadata(Measure),
    /// Draw the samples that `--json` has kept.
    Plot {
        /// The file.
        results: PathBuf,
        /// Directory for the charts.
        #[arg(long)]
        out: PathBuf,
    },
    /// Print the tables of the samples that `--json` has kept.
    Show {
        /// The file.
        results: PathBuf,
    },
}

/// How to measure it.
#[derive(clap::Args, Debug)]
pub struct Measure {
    /// Run one short round, to see that everything works.
    #[arg(long)]
    quick: bool,
    /// How often everything is measured.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Size of the area that is filled to weigh its tables, such as 1T (which takes 7 GiB and some minutes).
    #[arg(long, value_parser = parse_bytes)]
    fill: Option<usize>,
    /// Only operations, or loads and variants, whose names contain this, such as "mixed: engine".
    #[arg(long, default_value = "")]
    only: String,
    /// File for all samples.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Print areas and metadata as lines of JSON, like the phases of workloads.
    #[arg(long)]
    phases: bool,
}

/// Why a measurement failed, worded for people.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    fn new(what: impl Into<String>) -> Failure {
        Failure(what.into())
    }

    /// Puts what was being done in front of the error.
    fn of<E: std::fmt::Display>(doing: &str) -> impl Fn(E) -> Failure + use<'_, E> {
        move |error| Failure(format!("{doing}: {error}"))
    }
}

impl Command {
    /// Runs the command and prints the result.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        match run(self) {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure(what)) => {
                eprintln!("{what}");
                ExitCode::FAILURE
            }
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Plot { results, out } => {
            for file in plot::write(&read(results)?, out)? {
                println!("{}", file.display());
            }
            Ok(())
        }
        Command::Show { results } => {
            print!("{}", read(results)?);
            Ok(())
        }
        Command::All(options)
        | Command::Operations(options)
        | Command::Ablation(options)
        | Command::Areas(options)
        | Command::Metadata(options) => measure(command, options),
    }
}

fn measure(command: &Command, options: &Measure) -> Result<(), Failure> {
    let plan = plan(options);
    let wants = |part: fn(&Command) -> bool| matches!(command, Command::All(_)) || part(command);
    // Opened first: a file that cannot be written should not be found out after five minutes.
    let kept = options.json.as_deref().map(create).transpose()?;
    let mut results = Results {
        about: About::now(plan.quick),
        ..Results::default()
    };
    // Runs first. Otherwise the memory that other parts leave in the process would be weighed too.
    if wants(|command| matches!(command, Command::Metadata(_))) {
        eprintln!("metadata ...");
        results.metadata = metadata::run(&plan)?;
    }
    if wants(|command| matches!(command, Command::Operations(_))) {
        eprintln!("operations ...");
        results.samples.extend(operations::run(&plan)?);
    }
    if wants(|command| matches!(command, Command::Ablation(_))) {
        eprintln!("ablation ...");
        results.samples.extend(ablation::run(&plan)?);
    }
    if wants(|command| matches!(command, Command::Areas(_))) {
        eprintln!("areas ...");
        results.areas = areas::run(&plan)?;
    }
    if let Some((name, mut file)) = kept {
        let text = results
            .to_json()
            .map_err(Failure::of("cannot write JSON"))?;
        file.write_all(text.as_bytes())
            .map_err(Failure::of(&format!("cannot write {}", name.display())))?;
    }
    if options.phases {
        print!("{}", phases::lines(&results));
    } else {
        print!("{results}");
    }
    Ok(())
}

fn plan(options: &Measure) -> Plan {
    let mut plan = if options.quick {
        Plan::QUICK
    } else {
        Plan::FULL
    };
    plan.only.clone_from(&options.only);
    plan.rounds = options.rounds.map_or(plan.rounds, usize::from);
    if let Some(bytes) = options.fill {
        plan.filled_slots = (bytes / vswap_engine::PAGE_BYTES).max(1) as u64;
    }
    plan
}

fn create(name: &Path) -> Result<(&Path, File), Failure> {
    let file = File::create(name);
    Ok((
        name,
        file.map_err(Failure::of(&format!("cannot write {}", name.display())))?,
    ))
}

fn read(file: &Path) -> Result<Results, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(Failure::of(&format!("cannot read {}", file.display())))?;
    serde_json::from_str(&text).map_err(Failure::of(&format!(
        "{} does not hold what --json writes",
        file.display()
    )))
}
