//! `vswap-compare`: the same command natively, on the kernel's swap and on vswap, side by side.
//!
//! Rounds alternate, so that a machine that slows down slows all sides. vswap gets as much memory
//! as the kernel's side used in total, compressed pool included. A command that prints a JSON
//! object per phase (as `vswap-workload --json` does) is compared phase by phase; any other by
//! wall time and CPU time.
//!
//! A second vswap, another build of it or the same with other options, is another side: `--other`,
//! `--other-option`.
//!
//! The kernel's side is a script given by `--kernel-script`. It is called with `--ram SIZE
//! [--backend NAME] -- COMMAND…`, runs the command on the kernel's swap under that limit, passes its
//! standard output and status through, cleans up when it ends or gets SIGTERM, and says
//! `total_peak_mib=NUMBER` in a line on standard error.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use vswap_bench::command::{Ended, RunError, Supervisor};
use vswap_bench::size::parse_bytes;

#[path = "vswap-compare/table.rs"]
mod table;

use table::{Side, Table};

/// Bytes of the unit that `--ram` of vswap is given in.
const KIB: usize = 1024;

#[derive(Parser)]
#[command(
    version,
    about = "Run a command on vswap and on the kernel's swap, side by side"
)]
struct Options {
    /// Memory limit of the kernel's side, and of vswap's where there is no kernel's side.
    #[arg(long, value_parser = parse_bytes)]
    ram: usize,
    /// Rounds; each runs every side once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Script that runs a command on the kernel's swap.
    #[arg(long)]
    kernel_script: Option<PathBuf>,
    /// What the script's `--backend` is set to, such as zram:lz4.
    #[arg(long)]
    backend: Option<String>,
    /// The vswap program.
    #[arg(long)]
    vswap: Option<PathBuf>,
    /// An option to pass to `vswap run`, such as --codec=lz4; may be given several times.
    #[arg(long = "vswap-option", allow_hyphen_values = true)]
    vswap_options: Vec<String>,
    /// The vswap program of another side; the same one if only its options differ.
    #[arg(long)]
    other: Option<PathBuf>,
    /// An option for the other side alone, such as --no-virtual; may be given several times.
    #[arg(long = "other-option", allow_hyphen_values = true)]
    other_options: Vec<String>,
    /// Run without any limit too.
    #[arg(long)]
    native: bool,
    /// Seconds that one run may take.
    #[arg(long, default_value_t = 900)]
    timeout: u64,
    /// File for all samples as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let supervisor = Supervisor::new();
    let mut compare = Compare {
        options,
        supervisor,
        table: Table::default(),
        vswap_ram: None,
    };
    let complete = match compare.run() {
        Ok(complete) => complete,
        Err(error) => {
            eprintln!("vswap-compare: {error}");
            false
        }
    };
    print!("{}", compare.table);
    if let Some(path) = &compare.options.json
        && let Err(error) = std::fs::write(path, compare.table.to_json())
    {
        eprintln!("vswap-compare: cannot write {}: {error}", path.display());
        return ExitCode::from(2);
    }
    if complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}

struct Compare {
    options: Options,
    supervisor: Supervisor,
    table: Table,
    /// Bytes that the kernel's side used when it last ran.
    vswap_ram: Option<usize>,
}

impl Compare {
    /// Runs all rounds; false when a run failed.
    fn run(&mut self) -> Result<bool, RunError> {
        let mut sides = Vec::new();
        if self.options.native {
            sides.push(Side::Native);
        }
        if self.options.kernel_script.is_some() {
            sides.push(Side::Kernel);
        }
        if self.options.vswap.is_some() {
            sides.push(Side::Vswap);
        }
        if self.options.other.is_some() || !self.options.other_options.is_empty() {
            sides.push(Side::Other);
        }
        let mut complete = true;
        for round in 0..self.options.rounds {
            // The first round must have the kernel before vswap, to know how much it used.
            if round > 0 {
                sides.reverse();
            }
            for &side in &sides {
                complete &= self.run_side(round, side)?;
            }
        }
        Ok(complete)
    }

    fn run_side(&mut self, round: usize, side: Side) -> Result<bool, RunError> {
        let ram = self.vswap_ram.unwrap_or(self.options.ram);
        let summary = std::env::temp_dir().join(format!("vswap-compare-{}", std::process::id()));
        let mut command = self.command(side, ram, &summary);
        let timeout = Duration::from_secs(self.options.timeout);
        let result = self.supervisor.run(&mut command, timeout);
        let said = std::fs::read_to_string(&summary).ok();
        // The file is there only after a run of vswap that got to its end.
        let _ = std::fs::remove_file(&summary);
        if side == Side::Kernel {
            check_swap_is_off();
        }
        let ended = match result {
            Err(RunError::TimedOut(after)) => {
                eprintln!(
                    "round {round}: {side}: did not end within {} s",
                    after.as_secs()
                );
                self.table.failed(side);
                return Ok(false);
            }
            result => result?,
        };
        let mut ram_mib = matches!(side, Side::Vswap | Side::Other).then(|| mib(ram));
        if side == Side::Kernel {
            ram_mib = total_peak_mib(&ended.stderr);
            // A failed run was ended early and says little about what the command needs.
            if ended.status.success()
                && let Some(peak) = ram_mib
            {
                self.vswap_ram = parse_bytes(&format!("{peak:.1}M")).ok();
            }
        }
        self.record(round, side, ram_mib, &ended, said);
        Ok(ended.status.success())
    }

    fn record(
        &mut self,
        round: usize,
        side: Side,
        ram_mib: Option<f64>,
        ended: &Ended,
        summary: Option<String>,
    ) {
        let total = ram_mib.map_or_else(String::new, |mib| format!(", {mib:.0} MiB in total"));
        let wall_s = ended.wall_s;
        eprintln!(
            "round {round}: {side}: {wall_s:.2} s, {}{total}",
            ended.status
        );
        if ended.status.success() {
            self.table.add(side, ended, ram_mib, summary);
        } else {
            eprintln!("{}", ended.stderr.trim_end());
            self.table.failed(side);
        }
    }

    fn command(&self, side: Side, ram: usize, summary: &Path) -> Command {
        let options = &self.options;
        let command = &options.command;
        let other = options.other.as_ref().or(options.vswap.as_ref());
        match (side, &options.kernel_script, &options.vswap, other) {
            (Side::Kernel, Some(script), ..) => {
                let mut run = Command::new(script);
                run.arg("--ram").arg(options.ram.to_string());
                if let Some(backend) = &options.backend {
                    run.args(["--backend", backend]);
                }
                run.arg("--").args(command);
                run
            }
            (Side::Vswap, _, Some(vswap), _) => self.vswap(vswap, ram, summary, &[]),
            (Side::Other, .., Some(vswap)) => {
                self.vswap(vswap, ram, summary, &options.other_options)
            }
            _ => {
                let mut run = Command::new(&command[0]);
                run.args(&command[1..]);
                run
            }
        }
    }

    fn vswap(&self, vswap: &Path, ram: usize, summary: &Path, more: &[String]) -> Command {
        let mut run = Command::new(vswap);
        run.arg("run").arg("--ram").arg(format!("{}K", ram / KIB));
        run.arg("--summary").arg(summary);
        run.args(&self.options.vswap_options).args(more);
        run.arg("--").args(&self.options.command);
        run
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "memory sizes are far below 2^53"
)]
fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1u32 << 20)
}

/// What the script said its side used, in MiB.
fn total_peak_mib(stderr: &str) -> Option<f64> {
    let (_, rest) = stderr.rsplit_once("total_peak_mib=")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// A side that leaves swap on would slow or help every run after it.
fn check_swap_is_off() {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    for line in swaps.lines().skip(1) {
        eprintln!("vswap-compare: the kernel's side left swap on; turn it off: swapoff {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::total_peak_mib;

    #[test]
    fn reads_the_last_total() {
        let said = "noise total_peak_mib=1.0\nkernel-swap rc=0 total_peak_mib=1185.3\n";
        assert_eq!(total_peak_mib(said), Some(1185.3));
        assert_eq!(total_peak_mib("nothing"), None);
    }
}
