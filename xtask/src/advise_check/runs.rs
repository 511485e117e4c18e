//! Runs a program under vswap: once to ask for advice, and with a given size to see how long it takes.
//!
//! Time is the processor time of the program and all its children, as its shell tells it (`times`), and the time in
//! which it waited for pages and did nothing else. So other programs on the machine matter little.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::programs::Program;
use crate::programs::place::{Place, bounded};

/// A run that takes longer is given up.
const RUN_SECONDS: u64 = 240;
/// The exit status of `timeout` when it had to end the command.
const TIMED_OUT: i32 = 124;

/// What one asking said.
#[derive(Debug, Clone, Copy)]
pub struct Advice {
    /// The size for a loss of 5 %.
    pub ram_bytes: f64,
    /// The range that it gives itself.
    pub between: (f64, f64),
    /// The most memory that the program had.
    pub peak_bytes: f64,
}

/// How a run went.
#[derive(Debug, Clone, Copy)]
pub enum Run {
    /// It came to its end.
    Ended {
        /// How long it took.
        seconds: f64,
        /// Pages that came in.
        pages_in: u64,
    },
    /// It was given up.
    TooLong,
}

/// A program in its directory, and the vswap that runs it.
#[derive(Debug)]
pub struct Bench {
    place: Place,
    vswap: PathBuf,
}

impl Bench {
    /// Prepares a program.
    ///
    /// # Errors
    /// It cannot be prepared.
    pub fn new(
        root: &Path,
        below: &Path,
        vswap: &Path,
        program: &'static Program,
    ) -> Result<Bench, String> {
        Ok(Bench {
            place: Place::new(root, below, program)?,
            vswap: vswap.to_owned(),
        })
    }

    /// Asks for advice.
    ///
    /// # Errors
    /// There is none.
    pub fn ask(&self) -> Result<Advice, String> {
        let mut command = bounded(RUN_SECONDS);
        command.arg(&self.vswap);
        command.args(["advise", "--json", "advice.json", "--quiet", "--"]);
        command.args(["sh", "-c", &self.script()]);
        self.must(command, "vswap advise")?;
        let advice = self.place.json("advice.json")?;
        let size = &advice["sizes"][0];
        let bytes = |value: &Value| value.as_f64().ok_or("the advice has no sizes");
        let advice = Advice {
            ram_bytes: bytes(&size["ram_bytes"])?,
            between: (bytes(&size["low_bytes"])?, bytes(&size["high_bytes"])?),
            peak_bytes: bytes(&advice["peak_bytes"])?,
        };
        println!("{:>7.0} MiB advised", advice.ram_bytes / 1_048_576.0);
        Ok(advice)
    }

    /// Runs the program with this `--ram`.
    ///
    /// # Errors
    /// It fails.
    pub fn go(&self, ram_bytes: f64) -> Result<Run, String> {
        let mut command = bounded(RUN_SECONDS);
        command.arg(&self.vswap);
        command.args(["run", "--quiet", "--no-daemon", "--summary", "summary.json"]);
        command.arg("--ram").arg(format!("{:.0}", ram_bytes));
        command.args(["--", "sh", "-c", &self.script()]);
        match self.place.finish(command)? {
            0 => {}
            TIMED_OUT => return Ok(Run::TooLong),
            status => return Err(format!("it ended with {status}: {}", self.place.said())),
        }
        let summary = self.place.json("summary.json")?;
        let waited = summary["pressure"]["full"]["total_seconds"].as_f64();
        let text = fs::read_to_string(self.place.file("times")).unwrap_or_default();
        let worked = processor_seconds(&text).ok_or("the shell told no times")?;
        Ok(Run::Ended {
            seconds: worked + waited.ok_or("the summary tells no time of waiting")?,
            pages_in: summary["pages_in"].as_u64().unwrap_or(0),
        })
    }

    /// The program, and what tells how long it has worked.
    fn script(&self) -> String {
        format!("{{ {}\n}} && times >times", self.place.program.run)
    }

    fn must(&self, command: Command, what: &str) -> Result<(), String> {
        match self.place.finish(command)? {
            0 => Ok(()),
            status => Err(format!("{what} ended with {status}: {}", self.place.said())),
        }
    }
}

/// What `times` of a shell tells: two lines of user and system time, its own and its children's.
fn processor_seconds(text: &str) -> Option<f64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let seconds = |word: &&str| {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let all: Option<Vec<f64>> = words.iter().map(seconds).collect();
    all.filter(|all| all.len() == 4).map(|all| all.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_shell_are_added() {
        let text = "0m0.010000s 0m0.02s\n1m2.5s 0m0.5s\n";
        let seconds = processor_seconds(text).unwrap();
        assert!((seconds - 63.03).abs() < 1e-9, "{seconds}");
        for bad in ["", "0m1s", "a b c d", "1s 1s 1s 1s"] {
            assert_eq!(processor_seconds(bad), None, "{bad}");
        }
    }
}
