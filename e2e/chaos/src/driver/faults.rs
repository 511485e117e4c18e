//! What goes wrong around a run while it runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use vswap_drive::processes;
use vswap_drive::random::Random;

use crate::driver::attempt::Bench;
use crate::driver::shortage::{Of, Shortage};
use crate::plan::Plan;
use crate::program::log::Wrong;
use crate::step::Step;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    None,
    /// All processes of the program are stopped and continued, again and again.
    StopAndContinue,
    /// An area comes and goes.
    Areas,
    /// vswap is killed.
    KillVswap,
    /// Writes to the area fail, or are short; writes and reads are slow, and reads are short.
    FailingWrites,
    /// Reads from the area fail.
    FailingReads,
    /// Now and then vswap gets no descriptors.
    NoDescriptors,
    /// Now and then vswap can start no threads.
    NoThreads,
    /// Now and then vswap gets no memory.
    NoMemory,
}

/// The fault of a round, and the seed that says when and how it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
}

impl Fault {
    pub(crate) const NONE: Self = Self {
        kind: Kind::None,
        seed: 0,
    };

    /// Chooses the fault of a round. Most rounds have none, so that only calls can be to blame.
    pub(crate) fn choose(random: &mut Random) -> Self {
        let seed = random.next();
        let kind = match random.below(18) {
            0 => Kind::StopAndContinue,
            1 => Kind::Areas,
            2..=3 => Kind::KillVswap,
            4..=5 => Kind::FailingWrites,
            6 => Kind::FailingReads,
            7 => Kind::NoDescriptors,
            8 => Kind::NoThreads,
            9 => Kind::NoMemory,
            _ => Kind::None,
        };
        Self { kind, seed }
    }

    /// May the fault end processes of the run? Then only two things count: nobody has read a wrong byte, and nothing is
    /// left.
    pub(crate) const fn may_end_the_run(self) -> bool {
        matches!(
            self.kind,
            Kind::KillVswap | Kind::FailingReads | Kind::NoMemory
        )
    }

    /// Is this finding a permitted effect of the fault? If a page cannot be read, whoever touches it gets SIGBUS, and a
    /// call that touches it fails. But nobody may ever see bytes other than its own.
    pub(crate) fn explains(self, finding: &str) -> bool {
        self.kind == Kind::FailingReads && finding != Wrong::name(Wrong::Content as u32)
    }

    /// A child whose fork is under way needs descriptors that were there when the fork began. So if the program forks,
    /// a shortage leaves some descriptors.
    fn shortage(self, plan: &Plan) -> Option<Of> {
        let forks = plan
            .lines
            .iter()
            .any(|line| matches!(line.step, Step::Fork { .. }));
        match self.kind {
            Kind::NoDescriptors if forks => Some(Of::DescriptorsForForks),
            Kind::NoDescriptors => Some(Of::Descriptors),
            Kind::NoThreads => Some(Of::Threads),
            Kind::NoMemory => Some(Of::Memory),
            _ => None,
        }
    }
}

/// Pause between two acts, in milliseconds.
const ACT_EVERY_MS: (u32, u32) = (5, 60);
/// When vswap is killed.
const KILL_AFTER_MS: (u32, u32) = (100, 900);
/// How long a command about areas may take before it counts as stuck. The watchdog watches the run.
const COMMAND_SECONDS: &str = "20";

/// Makes the fault happen.
#[derive(Debug)]
pub(crate) struct Injector {
    kind: Kind,
    random: Random,
    vswap: PathBuf,
    bench: Bench,
    next: Instant,
    on: bool,
    stopped: Vec<u32>,
    shortage: Option<Shortage>,
}

impl Injector {
    pub(crate) fn new(fault: Fault, plan: &Plan, vswap: &Path, bench: &Bench) -> Self {
        let mut random = Random::new(fault.seed);
        let (least, most) = match fault.kind {
            Kind::KillVswap => KILL_AFTER_MS,
            _ => ACT_EVERY_MS,
        };
        let first = random.between(least, most);
        Self {
            kind: fault.kind,
            random,
            vswap: vswap.to_owned(),
            bench: bench.clone(),
            next: Instant::now() + Duration::from_millis(first.into()),
            on: false,
            stopped: Vec::new(),
            shortage: fault.shortage(plan).map(Shortage::of),
        }
    }

    /// Called often. `run` is the process of vswap.
    pub(crate) fn act(&mut self, run: u32) {
        if Instant::now() < self.next {
            return;
        }
        match self.kind {
            // The disk does that by itself.
            Kind::None | Kind::FailingWrites | Kind::FailingReads => {}
            Kind::StopAndContinue => self.stop_or_continue(run),
            Kind::Areas => self.area(run),
            Kind::KillVswap => {
                processes::signal(run, libc::SIGKILL);
                self.kind = Kind::None;
            }
            Kind::NoDescriptors | Kind::NoThreads | Kind::NoMemory => {
                if let Some(shortage) = &mut self.shortage {
                    shortage.begin_or_end(run, &mut self.random);
                }
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
        // It is no failure that nobody answers before the run is there and after its end.
        let _status = Command::new("timeout")
            .arg(COMMAND_SECONDS)
            .arg(&self.vswap)
            .args([what, "--run", &pid])
            .arg(self.bench.place.join("area"))
            .env("XDG_RUNTIME_DIR", &self.bench.run_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }

    /// The run has ended: continues all stopped processes.
    pub(crate) fn finish(mut self) {
        for pid in self.stopped.drain(..) {
            processes::signal(pid, libc::SIGCONT);
        }
    }
}
