//! `vswap bench`: workloads on vswap and on the kernel's own swap, side by side, with the same total memory.
//!
//! Rounds alternate, so that a machine that slows down slows all sides. The kernel's side runs under a group limit.
//! vswap gets what the group and the compressed pages outside it then took together. A workload that prints a JSON
//! object for each phase is compared phase by phase, any other command by wall time and CPU time. A run that fails or
//! finds a wrong byte has no figures and makes the whole bench fail.
//!
//! Nothing here knows how vswap works: it is a program with a command line and a summary. Nor is an arena more than an
//! option of a workload, which then says what its process took.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::command::{Ended, RunError, Supervisor};
use crate::content::Kind;
use crate::kernel_swap::{Backing, Host, KernelSwap, Limits, WithoutSwap};
use crate::workload::memory_in;

mod html;
mod jobs;
mod options;
mod plot;
mod report;
mod result;
mod samples;
mod side;
mod table;
mod targets;

use jobs::{Job, Unable};
pub use options::{On, Options};
use result::{LeftOut, Machine, Report, WorkloadResult};
use samples::{Samples, Without};
use side::Side;

/// The unit of the `--ram` that vswap gets, in bytes.
const KIB: usize = 1024;
/// Size of the kernel's swap for a command with unknown memory needs.
const AREA_BYTES: u64 = 12 << 30;
/// The least compression ratio of content, assumed when vswap's memory has to be guessed.
const COMPRESSION_AT_LEAST: usize = 2;
/// Keeping incompressible pages takes this fraction of them in addition.
const RANDOM_TABLES_SHARE: usize = 20;

/// Runs what `options` ask for, prints the result and writes the files. `program` is this program. False if a run
/// failed.
///
/// # Errors
/// Something that was asked for does not exist, a file cannot be written, or the bench was interrupted. Then the
/// measurements so far are printed all the same.
pub fn run(options: &Options, program: &Path) -> Result<bool, String> {
    if options.list {
        for named in jobs::NAMED {
            println!("{:<18} {}", named.name, named.about);
        }
        return Ok(true);
    }
    let wanted = jobs::wanted(options)?;
    // Opened first: a file that cannot be written should not be found out after an hour.
    let json = options.json.as_deref().map(create).transpose()?;
    let html = options.html.as_deref().map(create).transpose()?;
    let mut bench = Bench {
        options,
        program,
        supervisor: Supervisor::new(),
        host: Host::default(),
        report: Report {
            arguments: std::env::args_os()
                .skip(1)
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            rounds: options.rounds(),
            machine: Machine::here(),
            ..Report::default()
        },
    };
    let ended = bench.run_all(&wanted);
    print!("{}", bench.report);
    if let Some(file) = json {
        write(file, &bench.report.to_json().to_string())?;
    }
    if let Some(file) = html {
        write(file, &html::page(&bench.report))?;
    }
    ended.map_err(|error| format!("the benchmark {error}"))?;
    Ok(bench.report.is_complete())
}

fn create(name: &Path) -> Result<(&Path, File), String> {
    let file = File::create(name);
    file.map(|file| (name, file))
        .map_err(|error| format!("cannot write {}: {error}", name.display()))
}

fn write((name, mut file): (&Path, File), text: &str) -> Result<(), String> {
    file.write_all(text.as_bytes())
        .map_err(|error| format!("cannot write {}: {error}", name.display()))
}

struct Bench<'a> {
    options: &'a Options,
    program: &'a Path,
    supervisor: Supervisor,
    host: Host,
    report: Report,
}

/// What the runs of one workload have shown so far.
struct Progress {
    samples: Samples,
    sides: Vec<Side>,
    /// The total memory of each kernel side in its last run.
    totals: BTreeMap<Backing, usize>,
}

impl Bench<'_> {
    fn run_all(&mut self, wanted: &[&jobs::Named]) -> Result<(), RunError> {
        if !self.options.command.is_empty() {
            return self.run_job(&jobs::of_command(self.options));
        }
        for named in wanted {
            match named.job(self.program, self.options, &self.supervisor) {
                Ok(job) => self.run_job(&job)?,
                Err(Unable::Missing(reason)) => self.leave_out(named.name, None, reason),
                Err(Unable::Interrupted) => return Err(RunError::Interrupted),
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, workload: &str, side: Option<Side>, reason: String) {
        let left_out = LeftOut {
            workload: workload.to_owned(),
            side,
            reason,
        };
        eprintln!("left out: {left_out}");
        self.report.left_out.push(left_out);
    }

    fn run_job(&mut self, job: &Job) -> Result<(), RunError> {
        let mut progress = Progress {
            samples: Samples::default(),
            sides: if job.is_alone {
                vec![Side::Native]
            } else {
                self.options.sides(job.sides)
            },
            totals: BTreeMap::new(),
        };
        let ended = self.run_rounds(job, &mut progress);
        self.report.workloads.push(WorkloadResult {
            name: job.name.clone(),
            command: job.line(),
            ram_bytes: job.ram_bytes,
            samples: progress.samples,
        });
        ended
    }

    fn run_rounds(&mut self, job: &Job, progress: &mut Progress) -> Result<(), RunError> {
        for round in 0..self.options.rounds() {
            // In the first round the kernel must run before vswap, to show how much memory it took.
            if round > 0 {
                progress.sides.reverse();
            }
            for side in progress.sides.clone() {
                let ended = match side {
                    Side::Kernel(backing) => self.run_kernel(job, backing, progress),
                    Side::Arena => self.run_arena(job, progress),
                    Side::Mapped => self.run_mapped(job, progress),
                    _ => Ok(self.run_program(job, side, progress)),
                };
                match ended {
                    Ok((ended, total, summary)) => {
                        let who = format!("{} round {round} {side}", job.name);
                        record(&who, side, ended, total, summary, progress)?;
                    }
                    Err(reason) => {
                        progress.sides.retain(|&other| other != side);
                        self.leave_out(&job.name, Some(side), reason);
                    }
                }
            }
        }
        Ok(())
    }

    fn run_kernel(
        &self,
        job: &Job,
        backing: Backing,
        progress: &mut Progress,
    ) -> Result<Run, String> {
        let limits = Limits {
            group_bytes: job.ram_bytes,
            area_bytes: job.needs_bytes.map_or(AREA_BYTES, |bytes| 2 * bytes as u64),
            dir: &self.options.swap_dir,
        };
        let kernel = KernelSwap::new(&self.host, backing, limits)?;
        let mut command = Command::new(&job.command[0]);
        command.args(&job.command[1..]);
        kernel.contain(&mut command)?;
        let ended = self.run_command(job, &mut command);
        let total = usize::try_from(kernel.peak()?.total_bytes()).unwrap_or(usize::MAX);
        // A failed run ended early and says little about what the command needs.
        if ended.as_ref().is_ok_and(|ended| ended.status.success()) {
            progress.totals.insert(backing, total);
        }
        Ok((ended, Some(total), None))
    }

    fn run_arena(&self, job: &Job, progress: &Progress) -> Result<Run, String> {
        let ram = self.ram_beside(job, Backing::Zram, progress);
        let words = job.in_arena(ram)?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let ended = self.run_command(job, &mut command);
        let memory = ended
            .as_ref()
            .ok()
            .and_then(|ended| memory_in(&ended.stdout));
        Ok((ended, Some(ram), memory))
    }

    fn run_mapped(&self, job: &Job, progress: &Progress) -> Result<Run, String> {
        let ram = self.ram_beside(job, Backing::Zram, progress);
        let words = job.in_file(&self.options.swap_dir)?;
        let group = WithoutSwap::new(&self.host, ram)?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        group.contain(&mut command)?;
        let ended = self.run_command(job, &mut command);
        let total = usize::try_from(group.peak_bytes()?).unwrap_or(usize::MAX);
        Ok((ended, Some(total), None))
    }

    /// What vswap or an arena beside this side of the kernel may take: the total of its last run, if it has run.
    fn ram_beside(&self, job: &Job, backing: Backing, progress: &Progress) -> usize {
        let known = progress.totals.get(&backing).copied();
        known.unwrap_or_else(|| guessed_total(job, self.options.content))
    }

    fn run_program(&self, job: &Job, side: Side, progress: &Progress) -> Run {
        let Some(backing) = side.backing() else {
            let mut command = Command::new(&job.command[0]);
            command.args(&job.command[1..]);
            let ended = self.run_command(job, &mut command);
            return (ended, None, None);
        };
        let ram = self.ram_beside(job, backing, progress);
        let summary = std::env::temp_dir().join(format!("vswap-bench-{}", std::process::id()));
        let mut command = self.vswap(side, ram, &summary);
        command.arg("--").args(&job.command);
        let ended = self.run_command(job, &mut command);
        let said = std::fs::read_to_string(&summary).ok();
        // The file exists only after a run of vswap that got to its end.
        let _ = std::fs::remove_file(&summary);
        (
            ended,
            Some(ram),
            said.and_then(|text| serde_json::from_str(&text).ok()),
        )
    }

    /// Runs a side's command, and the job's driver if there is one.
    fn run_command(&self, job: &Job, command: &mut Command) -> Result<Ended, RunError> {
        let mut driver = job.driver.as_ref().map(|words| {
            let mut driver = Command::new(&words[0]);
            driver.args(&words[1..]);
            driver
        });
        let ended = self
            .supervisor
            .run_driven(command, driver.as_mut(), self.timeout());
        job.tidy();
        ended
    }

    /// `vswap run` with the side's program and options, up to the command.
    fn vswap(&self, side: Side, ram: usize, summary: &Path) -> Command {
        let options = self.options;
        let is_other = matches!(side, Side::Other(_));
        let program: PathBuf = match &options.other {
            Some(other) if is_other => other.clone(),
            _ => self.program.to_owned(),
        };
        let mut run = Command::new(program);
        // Without the user's daemon, because then the daemon's options would count.
        run.args(["run", "--no-daemon", "--ram"])
            .arg(format!("{}K", ram / KIB));
        run.arg("--summary").arg(summary);
        if matches!(side.backing(), Some(Backing::Zswap | Backing::File)) {
            run.arg("--swap").arg(&options.swap_dir);
        } else if !is_other && !self.names_swap() {
            // Memory alone is compared: what does not fit must not go to a disk. Another vswap may not know the word.
            run.args(["--swap", "none"]);
        }
        if side.backing() == Some(Backing::File) {
            run.args(["--pool", "off"]);
        }
        run.args(&options.vswap_options);
        if is_other {
            run.args(&options.other_options);
        }
        run
    }

    /// Does the user say where vswap swaps to?
    fn names_swap(&self) -> bool {
        let mut options = self.options.vswap_options.iter();
        options.any(|option| option == "--swap" || option.starts_with("--swap="))
    }

    const fn timeout(&self) -> Duration {
        Duration::from_secs(self.options.timeout)
    }
}

/// How a run ended, how many bytes it took or was given, and vswap's summary.
type Run = (Result<Ended, RunError>, Option<usize>, Option<Value>);

/// Records the figures of a run, or counts it as failed.
fn record(
    who: &str,
    side: Side,
    ended: Result<Ended, RunError>,
    total: Option<usize>,
    summary: Option<Value>,
    progress: &mut Progress,
) -> Result<(), RunError> {
    let ended = match ended {
        Err(RunError::Interrupted) => return Err(RunError::Interrupted),
        Err(error) => {
            eprintln!("{who}: {error}");
            progress.samples.add_without(side, Without::Failed);
            return Ok(());
        }
        Ok(ended) => ended,
    };
    let total_mib = total.map(mib);
    let memory = total_mib.map_or_else(String::new, |mib| format!(", {mib:.0} MiB in all"));
    eprintln!("{who}: {:.2} s, {}{memory}", ended.wall_s, ended.status);
    if ended.status.success() {
        progress.samples.add(side, &ended, total_mib, summary);
    } else {
        eprintln!("{}", ended.stderr.trim_end());
        let is_kernel = matches!(side, Side::Kernel(_));
        let was_killed = ended.status.signal() == Some(Signal::KILL.as_raw());
        let why = match is_kernel && was_killed {
            true => Without::Killed,
            false => Without::Failed,
        };
        progress.samples.add_without(side, why);
    }
    Ok(())
}

/// What vswap gets if no side of the kernel has run: the limit plus the compressed size of what exceeds it. A command
/// with unknown needs gets the limit.
fn guessed_total(job: &Job, content: Kind) -> usize {
    let needs = job.needs_bytes.unwrap_or(0);
    let beside = needs.saturating_sub(job.ram_bytes);
    job.ram_bytes
        + match content {
            // This content does not shrink at all, and keeping track of it takes memory too.
            Kind::Random => beside + beside / RANDOM_TABLES_SHARE,
            _ => beside / COMPRESSION_AT_LEAST,
        }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "memory sizes are far below 2^53"
)]
fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1u32 << 20)
}
