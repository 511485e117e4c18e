//! How little RAM is enough? `cargo xtask least-ram [PROGRAM...] [--list] [--codecs A,B] [--vswap PATH] [--rounds N]
//! [--swap SPEC] [--table FILE]`.
//!
//! For each program of `crate::programs` and each codec it looks for the least `--ram` with which the program ends in
//! twice its native time and prints what it prints natively. `search` halves, `runs` runs, `table` shows. The codecs
//! take turns, run by run, so that a machine that becomes busier makes all of them slower. There is no swap area
//! unless one is asked for: without one it is the density of the pool that decides, as with zram. Everything that is
//! written lies in `target/least-ram`.

mod runs;
mod search;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::programs::place::{keep, load};
use crate::programs::{self, Program};
use crate::{checks, command};
use runs::Bench;
use search::{Outcome, STEPS, Search};
use table::{Measured, Row};

const USAGE: &str = "usage: cargo xtask least-ram [PROGRAM...] [--list] [--codecs A,B] [--vswap PATH] [--rounds N] \
                     [--swap SPEC] [--table FILE]";
/// Where everything is written.
const PLACE: &str = "target/least-ram";
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
/// How many times its native time a program may take.
const SLOWER: f64 = 2.0;
/// Native runs whose time is taken; their median counts.
const NATIVE_RUNS: usize = 3;
const MIB: f64 = 1_048_576.0;

/// What the user asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    names: Vec<String>,
    list: bool,
    codecs: Vec<String>,
    vswap: Option<PathBuf>,
    rounds: usize,
    swap: String,
    table: Option<String>,
}

/// Searches, and prints the table. `Ok(false)`: a program failed, or printed something else than natively.
///
/// # Errors
/// The command line makes no sense, or vswap or the sampler does not build.
pub fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let options = read(arguments)?;
    let chosen = programs::choose(&options.names)?;
    if options.list {
        for program in chosen {
            println!("{:<10} {}", program.name, program.about);
        }
        return Ok(true);
    }
    let below = root.join(PLACE);
    let tools = Tools::new(root, &below, options.vswap.as_deref())?;
    let begun = Instant::now();
    let mut all = Vec::new();
    for program in chosen {
        println!("\n==> {}", program.about);
        let measured = match programs::missing(program) {
            Some(what) => Measured::Skipped(format!("{what} is not installed")),
            None => one(root, &below, &tools, &options, program)
                .map_or_else(Measured::Failed, Measured::Row),
        };
        match &measured {
            Measured::Row(_) => {}
            Measured::Skipped(why) => println!("SKIP: {}: {why}", program.name),
            Measured::Failed(why) => println!("FAILED: {}: {why}", program.name),
        }
        all.push((program.about, measured));
    }
    let text = table::markdown(&options.codecs, &all);
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    println!(
        "\n{text}\nIt took {minutes:.0} minutes. Load at the end: {:.1}.",
        load()
    );
    if let Some(path) = &options.table {
        fs::write(path, &text).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    let has_failed = |measured: &Measured| matches!(measured, Measured::Failed(_));
    Ok(!all.iter().any(|(_, measured)| has_failed(measured)))
}

/// The programs that run and watch the others.
#[derive(Debug)]
struct Tools {
    vswap: PathBuf,
    sampler: PathBuf,
}

impl Tools {
    /// Builds them, except a vswap that was given, and keeps copies.
    fn new(root: &Path, below: &Path, given: Option<&Path>) -> Result<Tools, String> {
        let build = |words: &[&str]| {
            let mut cargo = checks::cargo(root, &["build", "--release"]);
            command::run(cargo.args(words), BUILD_LIMIT)
        };
        build(&["--package", "vswap-bench", "--bin", "limit-sampler"])?;
        let from = match given {
            Some(path) => path.to_owned(),
            None => {
                build(&["--package", "vswap"])?;
                checks::built(root, "vswap")
            }
        };
        Ok(Tools {
            vswap: keep(&from, below)?,
            sampler: keep(&checks::built(root, "limit-sampler"), below)?,
        })
    }
}

/// Natively, and then all searches in turn.
fn one(
    root: &Path,
    below: &Path,
    tools: &Tools,
    options: &Options,
    program: &'static Program,
) -> Result<Row, String> {
    let with = (tools.vswap.as_path(), tools.sampler.as_path());
    let bench = Bench::new((root, below), with, &options.swap, program)?;
    let native = bench.natively(NATIVE_RUNS)?;
    let limit = Duration::from_secs_f64(table::median(&native.seconds) * SLOWER);
    println!(
        "natively {:.2} s, {:.0} MiB; at most {:.2} s",
        limit.as_secs_f64() / SLOWER,
        native.peak_bytes / MIB,
        limit.as_secs_f64()
    );
    let mut searches: Vec<(&String, Search)> = options
        .codecs
        .iter()
        .map(|codec| (codec, Search::new(options.rounds)))
        .collect();
    loop {
        let mut is_done = true;
        for (codec, search) in &mut searches {
            let Some(size) = search.next() else { continue };
            is_done = false;
            let ram_bytes = native.peak_bytes * f64::from(size) / f64::from(STEPS);
            let (outcome, seconds) = bench.go(&native, codec, ram_bytes, limit)?;
            // More RAM would not help: a codec that this vswap does not know, or a machine on which it does not work.
            if outcome == Outcome::Refused && size >= STEPS {
                return Err(format!(
                    "vswap refuses all of the peak: {}",
                    bench.refusal()
                ));
            }
            println!(
                "{codec:<5} {:>5.0} MiB, {:>3} %: {:<8} {seconds:>6.2} s",
                ram_bytes / MIB,
                size * 100 / STEPS,
                table::worded(outcome)
            );
            search.tell(size, outcome);
        }
        if is_done {
            break;
        }
    }
    Ok(Row {
        seconds: native.seconds,
        peak_bytes: native.peak_bytes,
        found: searches.iter().map(|(_, search)| search.found()).collect(),
    })
}

fn read(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        names: Vec::new(),
        list: false,
        codecs: ["lz4", "auto"].map(str::to_owned).into(),
        vswap: None,
        rounds: 2,
        swap: "none".to_owned(),
        table: None,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| USAGE.to_owned());
        match word.as_str() {
            "--list" => options.list = true,
            "--codecs" => options.codecs = codecs(&value()?)?,
            "--vswap" => options.vswap = Some(value()?.into()),
            "--rounds" => options.rounds = rounds(&value()?)?,
            "--swap" => options.swap = value()?,
            "--table" => options.table = Some(value()?),
            option if option.starts_with('-') => return Err(USAGE.to_owned()),
            name => options.names.push(name.to_owned()),
        }
    }
    Ok(options)
}

/// Each once: a vswap that knows one of them not says so itself.
fn codecs(list: &str) -> Result<Vec<String>, String> {
    let codecs: Vec<String> = list.split(',').map(str::to_owned).collect();
    let is_single = |codec: &String| codecs.iter().filter(|other| *other == codec).count() == 1;
    if codecs
        .iter()
        .all(|codec| !codec.is_empty() && is_single(codec))
    {
        return Ok(codecs);
    }
    Err(format!(
        "--codecs {list}: expected names with commas between them; {USAGE}"
    ))
}

fn rounds(word: &str) -> Result<usize, String> {
    let most = search::RUNS_MAX / 4;
    let count = word.parse().ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("--rounds {word}: expected a number from 1 to {most}; {USAGE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_nonsense_refused() {
        let words = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let options = read(&words(&[])).unwrap();
        assert_eq!(options.codecs, ["lz4", "auto"]);
        assert_eq!((options.rounds, options.swap.as_str()), (2, "none"));
        let options = read(&words(&[
            "node", "--codecs", "zstd", "--rounds", "3", "gcc",
        ]))
        .unwrap();
        assert_eq!(options.codecs, ["zstd"]);
        assert_eq!(options.names, ["node", "gcc"]);
        assert_eq!(options.rounds, 3);
        for bad in [
            &["--rounds"][..],
            &["--rounds", "0"],
            &["--rounds", "6"],
            &["--codecs", "lz4,,auto"],
            &["--codecs", "lz4,lz4"],
            &["--fast"],
        ] {
            assert!(read(&words(bad)).unwrap_err().contains("usage"), "{bad:?}");
        }
    }
}
