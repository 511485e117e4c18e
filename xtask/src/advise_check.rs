//! Checks the advice of `vswap advise` against real runs: `cargo xtask advise-check [PROGRAM...] [--list] [--rounds N]
//! [--asks N] [--minutes N] [--table FILE]`.
//!
//! Each program of `crate::programs` is asked about, and then runs with ample RAM and with sizes around the advised
//! one, in turn, so that a machine that becomes busier makes all of them slower. Where the sizes do not enclose the
//! loss of 5 %, more are tried. `verdict` says what the runs tell of the advice. Everything that is written lies in
//! `target/advise-check`; vswap is copied there first, so that a build meanwhile changes nothing.

mod runs;
mod verdict;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::programs;
use crate::programs::place::{keep, load};
use crate::{checks, command};
use runs::{Bench, Run};
use verdict::{Measured, Series};

const USAGE: &str = "usage: cargo xtask advise-check [PROGRAM...] [--list] [--rounds N] [--asks N] [--minutes N] \
                     [--table FILE]";
/// Where everything is written.
const PLACE: &str = "target/advise-check";
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
/// Sizes that are tried, as shares of the advised one.
const SHARES: [f64; 3] = [0.9, 1.0, 1.1];
/// How much further the next size lies where more are needed, and how many of them are tried.
const FURTHER: f64 = 0.12;
const FURTHER_MAX: usize = 3;
/// More than any of these programs needs: memory is not even watched there.
const AMPLE: f64 = 2.0;
const AMPLE_MORE_BYTES: f64 = 128.0 * MIB;
const MIB: f64 = 1_048_576.0;

/// What the user asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    names: Vec<String>,
    list: bool,
    rounds: usize,
    asks: usize,
    minutes: u64,
    table: Option<String>,
}

/// Asks, measures and compares. `Ok(false)`: advice was wrong, or a program could not be measured.
///
/// # Errors
/// The command line makes no sense, or vswap does not build.
pub fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let options = read(arguments)?;
    let chosen = programs::choose(&options.names)?;
    if options.list {
        for program in chosen {
            println!("{:<10} {}", program.name, program.about);
        }
        return Ok(true);
    }
    let words = ["build", "--release", "--package", "vswap"];
    command::run(&mut checks::cargo(root, &words), BUILD_LIMIT)?;
    let below = root.join(PLACE);
    let vswap = keep(&checks::built(root, "vswap"), &below)?;
    let until = Instant::now() + Duration::from_secs(options.minutes * 60);
    let mut all = Vec::new();
    for program in chosen {
        println!("\n==> {}", program.about);
        let measured = match programs::missing(program) {
            Some(what) => Err(format!("{what} is not installed")),
            None => Bench::new(root, &below, &vswap, program)
                .and_then(|bench| measure(&bench, &options, until)),
        };
        if let Err(why) = &measured {
            println!("SKIP: {}: {why}", program.name);
        }
        all.push((program.about, measured));
    }
    let text = verdict::markdown(&all);
    println!("\n{text}");
    if let Some(path) = &options.table {
        fs::write(path, &text).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    Ok(all
        .iter()
        .all(|(_, measured)| measured.as_ref().is_ok_and(Measured::is_right)))
}

/// Asks about one program, and runs it.
fn measure(bench: &Bench, options: &Options, until: Instant) -> Result<Measured, String> {
    let mut asked = Vec::new();
    for _ in 0..options.asks {
        in_time(until)?;
        asked.push(bench.ask()?);
    }
    let ram: f64 = asked.iter().map(|advice| advice.ram_bytes).sum::<f64>() / asked.len() as f64;
    let peak = asked
        .iter()
        .map(|advice| advice.peak_bytes)
        .fold(0.0, f64::max);
    let mut sizes: Vec<Series> = SHARES.map(|share| Series::new(ram * share)).into();
    let ample = peak * AMPLE + AMPLE_MORE_BYTES;
    let mut natives = Vec::new();
    for more in 0..=FURTHER_MAX {
        for _ in 0..options.rounds {
            if in_time(until).is_err() && sizes.iter().all(|size| !size.ratios.is_empty()) {
                break;
            }
            round(bench, ample, &mut sizes, more > 0, &mut natives)?;
        }
        // What was tried too little is no size.
        sizes.retain(|size| !size.ratios.is_empty());
        let Some(next) = verdict::next_size(&sizes, ram * FURTHER).filter(|_| more < FURTHER_MAX)
        else {
            break;
        };
        sizes.push(Series::new(next));
    }
    sizes.sort_by(|a, b| a.ram_bytes.total_cmp(&b.ram_bytes));
    Ok(Measured {
        asked,
        natives,
        sizes,
        load: load(),
    })
}

/// One run with ample RAM, and one with each size, or with the last one alone.
fn round(
    bench: &Bench,
    ample: f64,
    sizes: &mut [Series],
    last_alone: bool,
    natives: &mut Vec<f64>,
) -> Result<(), String> {
    let native = match bench.go(ample)? {
        Run::Ended { seconds, .. } => seconds,
        Run::TooLong => return Err("it takes too long even with ample RAM".to_owned()),
    };
    natives.push(native);
    let first = if last_alone { sizes.len() - 1 } else { 0 };
    for size in &mut sizes[first..] {
        size.ratios.push(match bench.go(size.ram_bytes)? {
            Run::Ended { seconds, pages_in } => {
                println!(
                    "{:>7.0} MiB {:.3} x {native:.2} s, {pages_in} pages in",
                    size.ram_bytes / MIB,
                    seconds / native
                );
                seconds / native
            }
            Run::TooLong => f64::INFINITY,
        });
    }
    Ok(())
}

fn in_time(until: Instant) -> Result<(), String> {
    if Instant::now() < until {
        return Ok(());
    }
    Err("the time is over (--minutes)".to_owned())
}

fn read(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        names: Vec::new(),
        list: false,
        rounds: 3,
        asks: 2,
        minutes: 30,
        table: None,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| USAGE.to_owned());
        match word.as_str() {
            "--list" => options.list = true,
            "--rounds" => options.rounds = count(word, value()?)?,
            "--asks" => options.asks = count(word, value()?)?,
            "--minutes" => options.minutes = count(word, value()?)? as u64,
            "--table" => options.table = Some(value()?.clone()),
            option if option.starts_with('-') => return Err(USAGE.to_owned()),
            name => options.names.push(name.to_owned()),
        }
    }
    Ok(options)
}

fn count(option: &str, word: &str) -> Result<usize, String> {
    let count = word.parse().ok().filter(|count| (1..=1000).contains(count));
    count.ok_or_else(|| format!("{option} {word}: expected a number from 1 to 1000; {USAGE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_nonsense_refused() {
        let words = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let options = read(&words(&["redis", "--rounds", "5", "--minutes", "9"])).unwrap();
        assert_eq!((options.rounds, options.minutes, options.asks), (5, 9, 2));
        assert_eq!(options.names, ["redis"]);
        for bad in [
            &["--rounds"][..],
            &["--rounds", "0"],
            &["--asks", "x"],
            &["--fast"],
        ] {
            assert!(read(&words(bad)).unwrap_err().contains("usage"), "{bad:?}");
        }
    }
}
