//! What goes wrong around a run while it runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::driver::processes;
use crate::random::Random;

/// A fault by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Wanted {
    None,
    StopAndContinue,
    Areas,
    KillVswap,
}

impl Wanted {
    pub(crate) fn fault(self, seed: u64) -> Fault {
        match self {
            Self::None => Fault::None,
            Self::StopAndContinue => Fault::StopAndContinue(seed),
            Self::Areas => Fault::Areas(seed),
            Self::KillVswap => Fault::KillVswap(seed),
        }
    }
}

/// The fault of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// All processes of the program are stopped and go on, again and again.
    StopAndContinue(u64),
    /// An area comes and goes.
    Areas(u64),
    /// vswap is killed. Then nobody may have read a wrong byte, and nothing may be left.
    KillVswap(u64),
}

/// Times between two acts, in milliseconds.
const ACT_EVERY_MS: (u32, u32) = (5, 60);
/// When vswap is killed.
const KILL_AFTER_MS: (u32, u32) = (100, 900);
/// How long a command about areas may take before it counts as stuck; the watchdog looks at the run.
const COMMAND_SECONDS: &str = "20";

/// Makes the fault happen.
#[derive(Debug)]
pub(crate) struct Injector {
    fault: Fault,
    random: Random,
    vswap: PathBuf,
    place: PathBuf,
    next: Instant,
    on: bool,
    stopped: Vec<u32>,
}

impl Injector {
    pub(crate) fn new(fault: Fault, vswap: &Path, place: &Path) -> Self {
        let seed = match fault {
            Fault::None => 0,
            Fault::StopAndContinue(seed) | Fault::Areas(seed) | Fault::KillVswap(seed) => seed,
        };
        let mut random = Random::new(seed);
        let first = match fault {
            Fault::KillVswap(_) => random.between(KILL_AFTER_MS.0, KILL_AFTER_MS.1),
            _ => random.between(ACT_EVERY_MS.0, ACT_EVERY_MS.1),
        };
        Self {
            fault,
            random,
            vswap: vswap.to_owned(),
            place: place.to_owned(),
            next: Instant::now() + Duration::from_millis(first.into()),
            on: false,
            stopped: Vec::new(),
        }
    }

    /// Called often; `run` is the process of vswap.
    pub(crate) fn act(&mut self, run: u32) {
        if Instant::now() < self.next {
            return;
        }
        match self.fault {
            Fault::None => {}
            Fault::StopAndContinue(_) => self.stop_or_continue(run),
            Fault::Areas(_) => self.area(run),
            Fault::KillVswap(_) => {
                processes::signal(run, libc::SIGKILL);
                self.fault = Fault::None;
            }
        }
        let pause = self.random.between(ACT_EVERY_MS.0, ACT_EVERY_MS.1);
        self.next = Instant::now() + Duration::from_millis(pause.into());
    }

    fn stop_or_continue(&mut self, run: u32) {
        if self.stopped.is_empty() {
            self.stopped = processes::below(run);
            for pid in &self.stopped {
                processes::signal(*pid, libc::SIGSTOP);
            }
        } else {
            for pid in self.stopped.drain(..) {
                processes::signal(pid, libc::SIGCONT);
            }
        }
    }

    fn area(&mut self, run: u32) {
        let what = if self.on { "swapoff" } else { "swapon" };
        self.on = !self.on;
        let pid = run.to_string();
        // Before the run is there and after its end there is nobody to ask: not a failure.
        let _status = Command::new("timeout")
            .arg(COMMAND_SECONDS)
            .arg(&self.vswap)
            .args([what, "--run", &pid])
            .arg(self.place.join("area"))
            .env("XDG_RUNTIME_DIR", self.place.join("run"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }

    /// The run has ended: nobody stays stopped.
    pub(crate) fn finish(mut self) {
        for pid in self.stopped.drain(..) {
            processes::signal(pid, libc::SIGCONT);
        }
    }
}
