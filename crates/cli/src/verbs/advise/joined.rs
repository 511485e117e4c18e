//! `vswap advise --run`: has a run that is under way sampled for a while. The run does that (`run/sampled.rs`), and
//! this collects what it saw, and reckons.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use vswap_pager::Sampled;
use vswap_sys::process::signals::{self, Blocked};

use crate::advice::paged::Paged;
use crate::advice::{Measured, advise as reckon};
use crate::args::advise::AdviseArgs;
use crate::control::{self, Answers, Connection, Request};
use crate::failure::Failure;
use crate::output::warning;
use crate::page::Heading;
use crate::run_dir::{self, Kind, Living};
use crate::verbs::advise::{Files, latencies_us};
use crate::verbs::run::sampled::{Bit, Reason};
use crate::verbs::swap::only;

/// How long it takes until a signal is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A run answers twice a second. One that has been silent for so many looks has stopped, or its machine is very busy.
const SILENT_MAX: u32 = 300;

/// What was seen of a run.
#[derive(Debug, Default)]
struct Seen {
    sampled: Sampled,
    /// The first figures and the last ones.
    paged: Option<(Paged, Paged)>,
    seconds: f64,
    limit_bytes: u64,
    end: Option<Reason>,
}

/// Watches the run of this process, and says how much RAM it needs.
pub fn advise(pid: u32, args: &AdviseArgs) -> Result<ExitCode, Failure> {
    let signals =
        signals::block().map_err(|error| Failure::own(format!("cannot block signals: {error}")))?;
    let mut living = run_dir::living();
    living.retain(|one| one.kind == Kind::Run);
    let run = only(living, Some(pid))?;
    let failed = |error: io::Error| {
        let pid = run.pid;
        Failure::own(format!(
            "the run (process {pid}) cannot be watched: {error}"
        ))
    };
    // It may have ended by the time of the advice.
    let report = control::ask(&run.path, &Request::Status).map_err(failed)?;
    let command = command(&report);
    let files = Files::create(args, Heading::of_run("advise", &command, run.pid))?;
    let answers = Connection::open(&run.path)
        .and_then(|kept| kept.listen(&Request::Sample(args.time.as_secs_f64())))
        .map_err(failed)?;
    let seen = collect(answers, &signals).map_err(failed)?;
    say_end(&run, &seen);
    let advice = seen.paged.and_then(|(first, last)| {
        reckon(&Measured {
            sampled: &seen.sampled,
            paged: last.since(&first),
            wall_seconds: seen.seconds,
            joined: Some(seen.limit_bytes),
            latencies_us: &latencies_us(args),
        })
    });
    let nothing = "nothing of the run's memory could be watched: its processes have less than 4 MiB each, or cannot \
                   be managed, or it was watched for too short a time; there is no advice";
    files.tell(args, &command, advice.as_ref().ok_or(nothing));
    Ok(ExitCode::SUCCESS)
}

/// Takes in what the run says until it says no more, or a signal comes.
fn collect(mut answers: Answers, signals: &Blocked) -> io::Result<Seen> {
    let (mut seen, mut silent) = (Seen::default(), 0);
    while seen.end.is_none() {
        let answer = match answers.next(LOOK_EVERY) {
            Ok(answer) => answer,
            // The run has ended, or was killed.
            Err(_) if seen.paged.is_some() => {
                seen.end = Some(Reason::Gone);
                return Ok(seen);
            }
            Err(error) => return Err(error),
        };
        silent = if answer.is_some() { 0 } else { silent + 1 };
        if let Some(answer) = answer {
            seen.take(&serde_json::from_value(answer)?);
        }
        let is_told = signals
            .take(Duration::ZERO)
            .is_some_and(|taken| is_end(taken.signal));
        if is_told || (silent > SILENT_MAX && seen.paged.is_some()) {
            return Ok(seen);
        }
        if silent > SILENT_MAX {
            return Err(io::Error::other("it does not answer: is it stopped?"));
        }
    }
    Ok(seen)
}

impl Seen {
    fn take(&mut self, bit: &Bit) {
        self.sampled.append(&bit.sampled);
        let first = self.paged.map_or(bit.paged, |(first, _)| first);
        self.paged = Some((first, bit.paged));
        self.seconds = bit.seconds;
        // The last answer of a run that ends may know no limit any more.
        if bit.limit_bytes > 0 {
            self.limit_bytes = bit.limit_bytes;
        }
        self.end = bit.end;
    }
}

fn say_end(run: &Living, seen: &Seen) {
    let why = match seen.end {
        Some(Reason::Gone) => "has ended",
        Some(Reason::Parked) => "is being parked",
        Some(Reason::Time) | None => return,
    };
    let (pid, seconds) = (run.pid, seen.seconds);
    warning(&format!(
        "the run (process {pid}) {why}: this is the advice of {seconds:.1} s"
    ));
}

fn command(report: &Value) -> Vec<String> {
    let words = report["command"].as_array().into_iter().flatten();
    words
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect()
}

fn is_end(signal: i32) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT]
        .iter()
        .any(|end| end.as_raw() == signal)
}
