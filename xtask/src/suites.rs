//! Other people's tests: `cargo xtask suites [NAME...] [--list] [--ram SIZE] [--evict-every PAUSE] [--table FILE]`.
//!
//! Each suite of `suites/table.rs` runs natively and under `vswap run` with too little memory. The results are compared
//! case by case. Only a case with the same outcome on both sides counts as equal. A suite that cannot run says why, and
//! never counts as a pass. Everything that is built and written lies in `target/suites`.

mod cases;
mod compare;
mod side;
mod table;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{checks, command};
use cases::Reading;
use compare::Row;

const USAGE: &str = "usage: cargo xtask suites [NAME...] [--list] [--ram SIZE] [--evict-every PAUSE] [--table FILE]";
/// The most time for building vswap, on two slow processors that others use as well.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// A suite of other people, and how to run it.
#[derive(Debug)]
pub struct Suite {
    /// Its name on the command line and in the table.
    pub name: &'static str,
    /// The part of the suite that is run, if not all of it.
    pub part: &'static str,
    /// Debian packages that must be installed.
    pub packages: &'static [&'static str],
    /// The Debian package whose source is unpacked to `src`.
    pub source: Option<&'static str>,
    /// A shell script that runs once, in the directory of the suite.
    pub prepare: &'static str,
    /// The shell script that runs the suite. `$SCRIPTS` is where the scripts of this repository are.
    pub run: &'static str,
    /// How its output is read.
    pub reading: Reading,
    /// The limit under vswap.
    pub ram: &'static str,
    /// The pause between evictions of everything. Without it only the limit evicts.
    pub evict: Option<&'static str>,
    /// The longest time of each side.
    pub minutes: u64,
}

/// What the user asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    names: Vec<String>,
    list: bool,
    ram: Option<String>,
    evict: Option<String>,
    table: Option<String>,
}

/// The memory options for vswap: the suite's own, unless the user asked for others.
#[derive(Debug)]
struct Limits<'a> {
    ram: &'a str,
    evict: Option<&'a str>,
}

impl<'a> Limits<'a> {
    fn new(suite: &Suite, options: &'a Options) -> Self {
        Self {
            ram: options.ram.as_deref().unwrap_or(suite.ram),
            evict: options.evict.as_deref().or(suite.evict),
        }
    }

    fn shown(&self) -> String {
        let evict = self.evict.map(|pause| format!(", all out every {pause}"));
        format!("{}{}", self.ram, evict.unwrap_or_default())
    }
}

/// Runs the named suites, or all. `Ok(false)`: one did something else under vswap, or could not run.
///
/// # Errors
/// The command line makes no sense, or vswap does not build.
pub fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let options = read(arguments)?;
    let chosen = choose(&options.names)?;
    if options.list {
        for suite in chosen {
            println!("{:<14} {}", suite.name, suite.part);
        }
        return Ok(true);
    }
    let words = ["build", "--release", "--package", "vswap"];
    command::run(&mut checks::cargo(root, &words), BUILD_LIMIT)?;
    let mut rows = Vec::new();
    for suite in chosen {
        println!("\n==> {}: {}", suite.name, suite.part);
        let row = one(root, suite, &options);
        println!("{}", row.differences());
        rows.push(row);
    }
    let text = compare::markdown(&rows);
    println!("\n{text}");
    if let Some(path) = &options.table {
        std::fs::write(path, text).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    Ok(rows.iter().all(Row::is_equal))
}

/// Prepares one suite and runs both sides of it.
fn one(root: &Path, suite: &Suite, options: &Options) -> Row {
    let limits = Limits::new(suite, options);
    let with = limits.shown();
    let missing = missing(suite.packages);
    if !missing.is_empty() {
        let reason = format!("not installed: {}", missing.join(" "));
        return Row::not_run(suite, &with, &reason);
    }
    let place = side::Place::new(root, suite);
    let both = place
        .prepare()
        .and_then(|()| place.natively())
        .and_then(|native| Ok((native, place.under_vswap(&limits)?)));
    match both {
        Ok((native, vswap)) => Row::new(suite, &with, &native, &vswap),
        Err(reason) => Row::not_run(suite, &with, &reason),
    }
}

/// Those of the packages that are not installed.
fn missing(packages: &[&'static str]) -> Vec<&'static str> {
    let is_there = |package: &str| {
        Command::new("dpkg-query")
            .args(["--show", "--showformat=${db:Status-Status}", package])
            .output()
            .is_ok_and(|output| output.stdout == b"installed")
    };
    packages
        .iter()
        .copied()
        .filter(|package| !is_there(package))
        .collect()
}

fn choose(names: &[String]) -> Result<Vec<&'static Suite>, String> {
    if names.is_empty() {
        return Ok(table::SUITES.iter().collect());
    }
    let known = |name: &String| {
        table::SUITES
            .iter()
            .find(|suite| suite.name == name)
            .ok_or_else(|| format!("there is no suite {name:?}; --list lists them"))
    };
    names.iter().map(known).collect()
}

fn read(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| USAGE.to_string());
        match word.as_str() {
            "--list" => options.list = true,
            "--ram" => options.ram = Some(value()?),
            "--evict-every" => options.evict = Some(value()?),
            "--table" => options.table = Some(value()?),
            option if option.starts_with('-') => return Err(USAGE.to_string()),
            name => options.names.push(name.to_string()),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_nonsense_refused() {
        let words = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let options = read(&words(&["redis", "--ram", "64M", "fio", "--list"])).unwrap();
        assert_eq!(options.names, ["redis", "fio"]);
        assert_eq!(options.ram.as_deref(), Some("64M"));
        assert!(options.list);
        for bad in [&["--ram"][..], &["--fast"]] {
            assert!(read(&words(bad)).unwrap_err().contains("usage"), "{bad:?}");
        }
        assert!(
            choose(&words(&["no-such"]))
                .unwrap_err()
                .contains("no-such")
        );
    }

    #[test]
    fn each_suite_has_a_name_of_its_own_and_says_what_is_run() {
        for suite in table::SUITES {
            let same = table::SUITES
                .iter()
                .filter(|other| other.name == suite.name);
            assert_eq!(same.count(), 1, "{}", suite.name);
            assert!(
                !suite.part.is_empty() && suite.minutes > 0,
                "{}",
                suite.name
            );
        }
    }
}
