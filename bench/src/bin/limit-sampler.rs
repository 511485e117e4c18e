//! `limit-sampler`: does a tree of processes stay within its memory limit?
//!
//! It shares no code and no idea with the program that it judges. In every interval it walks the descendants of a
//! process and adds up `/proc/PID/smaps_rollup`, where private anonymous memory counts in proportion to its sharers
//! (`Pss_Anon`). If the root process is vswap itself, everything resident in it counts (`Rss`), including shared memory
//! and program text. Reading smaps walks page tables. So it is skipped if the sum of the counters in `status`, which
//! can only be larger, shows that this sample is neither a new peak nor over the limit.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use serde::Serialize;
use vswap_bench::command::{Supervisor, kill_group};
use vswap_bench::size::parse_bytes;

#[path = "limit-sampler/processes.rs"]
mod processes;

use processes::Tree;

/// The least time between two samples, however long a sample takes.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Exit status for a tree that was over its limit, with `--strict`.
const EXIT_OVER: u8 = 4;

#[derive(Parser)]
#[command(version, about = "Sample the memory of a process tree against a limit")]
struct Options {
    /// The limit, such as 256M.
    #[arg(long, value_parser = parse_bytes)]
    limit: usize,
    /// Percent over the limit that are tolerated.
    #[arg(long, default_value_t = 5)]
    tolerance_percent: usize,
    /// Bytes over the limit that are never tolerated.
    #[arg(long, value_parser = parse_bytes, default_value = "32M")]
    over_max: usize,
    /// Milliseconds between samples.
    #[arg(long, default_value_t = 20)]
    interval_ms: u64,
    /// The root process is vswap although its program has another name.
    #[arg(long)]
    root_is_vswap: bool,
    /// File for the result, instead of standard error.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Exit with status 4 if the tree was over its limit.
    #[arg(long)]
    strict: bool,
    /// A running process to watch until it ends.
    #[arg(long, conflicts_with = "command", required_unless_present = "command")]
    pid: Option<u32>,
    /// A command to run and watch; its exit status is passed on.
    #[arg(last = true)]
    command: Vec<String>,
}

/// The result.
#[derive(Debug, Default, Serialize)]
struct Verdict {
    limit_bytes: usize,
    /// Highest sum of all processes.
    peak_bytes: usize,
    /// Seconds from the start to the peak.
    peak_at_s: f64,
    /// Share of vswap's own process in the peak.
    peak_vswap_bytes: usize,
    /// Most processes in a sample.
    processes_max: usize,
    samples: usize,
    /// Samples above the limit plus tolerance, or above the most that is ever tolerated.
    samples_over: usize,
    /// Longest time between two samples: shorter peaks may have been missed.
    gap_max_ms: f64,
    /// Longest time that a sample took.
    sample_max_ms: f64,
}

impl Verdict {
    fn line(&self) -> String {
        #[expect(
            clippy::cast_precision_loss,
            reason = "memory sizes are far below 2^53"
        )]
        let mib = |bytes: usize| bytes as f64 / f64::from(1u32 << 20);
        format!(
            "limit-sampler: peak {:.1} MiB of {:.1} MiB at {:.2} s (vswap itself {:.1} MiB), \
             over in {} of {} samples, longest gap {:.0} ms",
            mib(self.peak_bytes),
            mib(self.limit_bytes),
            self.peak_at_s,
            mib(self.peak_vswap_bytes),
            self.samples_over,
            self.samples,
            self.gap_max_ms
        )
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let supervisor = Supervisor::new();
    let result = match options.pid {
        Some(pid) => Ok(watch(&options, &supervisor, pid, false)),
        None => start(&options, &supervisor),
    };
    let (verdict, status) = match result {
        Ok(result) => result,
        Err(error) => {
            eprintln!(
                "limit-sampler: cannot start {}: {error}",
                options.command[0]
            );
            return ExitCode::from(127);
        }
    };
    if let Err(error) = report(&options, &verdict) {
        eprintln!("limit-sampler: cannot write the result: {error}");
        return ExitCode::from(2);
    }
    match status {
        _ if options.strict && verdict.samples_over > 0 => ExitCode::from(EXIT_OVER),
        Some(status) => ExitCode::from(status),
        None => ExitCode::SUCCESS,
    }
}

fn report(options: &Options, verdict: &Verdict) -> std::io::Result<()> {
    let json = serde_json::to_string(verdict)?;
    match &options.output {
        Some(path) => writeln!(File::create(path)?, "{json}"),
        None => {
            eprintln!("{}\n{json}", verdict.line());
            Ok(())
        }
    }
}

fn start(options: &Options, supervisor: &Supervisor) -> std::io::Result<(Verdict, Option<u8>)> {
    // Orphans of the tree become children of this process and stay in view.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut command = Command::new(&options.command[0]);
    command.args(&options.command[1..]);
    supervisor.prepare(&mut command);
    let child = command.spawn()?;
    Ok(watch(options, supervisor, child.id(), true))
}

/// Samples until the root has ended. Returns the root's exit status if it is a child of this process.
fn watch(
    options: &Options,
    supervisor: &Supervisor,
    root: u32,
    child: bool,
) -> (Verdict, Option<u8>) {
    let mut verdict = Verdict {
        limit_bytes: options.limit,
        ..Verdict::default()
    };
    let tolerated = options.limit + options.limit * options.tolerance_percent / 100;
    let tolerated = tolerated.min(options.limit + options.over_max);
    let interval = Duration::from_millis(options.interval_ms);
    let mut tree = Tree::new(root, options.root_is_vswap, child);
    let start = Instant::now();
    let mut last = start;
    loop {
        let begun = Instant::now();
        let ended = if child { reap(root) } else { None };
        if ended.is_some() || !tree.look() {
            return (verdict, ended);
        }
        let quiet = verdict.peak_bytes.min(tolerated);
        if tree.upper_bound_bytes() > quiet {
            let (bytes, vswap_bytes) = tree.exact_bytes();
            if bytes > verdict.peak_bytes {
                verdict.peak_bytes = bytes;
                verdict.peak_vswap_bytes = vswap_bytes;
                verdict.peak_at_s = start.elapsed().as_secs_f64();
            }
            verdict.samples_over += usize::from(bytes > tolerated);
        }
        verdict.samples += 1;
        verdict.processes_max = verdict.processes_max.max(tree.len());
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        verdict.gap_max_ms = verdict.gap_max_ms.max(ms(begun - last));
        verdict.sample_max_ms = verdict.sample_max_ms.max(ms(begun.elapsed()));
        last = begun;
        // Adding up a large tree takes long. The tree must get more done than being measured.
        let took = begun.elapsed();
        let pause = interval.saturating_sub(took).max(took / 2).max(PAUSE_MIN);
        if pause_or_end(supervisor, pause) {
            if child {
                kill_group(root.cast_signed(), libc::SIGTERM);
            } else {
                return (verdict, None);
            }
        }
    }
}

/// Waits. True if this process was asked to end. The end of a child cuts the wait short.
fn pause_or_end(supervisor: &Supervisor, pause: Duration) -> bool {
    supervisor.asked_to_end(pause)
}

/// Reaps ended children. Returns the exit status of `root` if it is among them.
fn reap(root: u32) -> Option<u8> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid <= 0 {
            return None;
        }
        if pid == root.cast_signed() {
            let status = std::process::ExitStatus::from_raw(status);
            let code = status
                .code()
                .or_else(|| status.signal().map(|signal| 128 + signal));
            return Some(
                code.and_then(|code| u8::try_from(code).ok())
                    .unwrap_or(u8::MAX),
            );
        }
    }
}
