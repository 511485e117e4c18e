//! What is looked at every tick while a run goes on: whether everything is full, and whether it thrashes.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use vswap_sys::process::signals::send;

use crate::args::ManageArgs;
use crate::host::Host;
use crate::output::warning;
use crate::verbs::run::family::Family;
use crate::verbs::run::full::{Full, Measure};
use crate::verbs::run::thrashing::Thrashing;

/// How often the run is looked at when no signal comes: soon enough for a person who waits, rare enough to cost
/// nothing.
pub const TICK: Duration = Duration::from_secs(1);

/// Watches over a run.
#[derive(Debug)]
pub struct Watch<'a> {
    host: &'a Host,
    family: &'a Family,
    quiet: bool,
    full: Full,
    thrashing: Thrashing,
}

impl<'a> Watch<'a> {
    pub fn new(host: &'a Host, family: &'a Family, args: &ManageArgs) -> Watch<'a> {
        Watch {
            host,
            family,
            quiet: args.quiet,
            full: Full::new(args.on_full, TICK),
            thrashing: Thrashing::default(),
        }
    }

    /// Another tick has passed.
    pub fn look(&mut self) {
        let Some(status) = self.host.status() else {
            return;
        };
        match self.full.look(&status, self.host) {
            Measure::Nothing => {}
            Measure::Terminate => {
                self.signal_all(Signal::TERM.as_raw());
                self.host.allow_last();
            }
            Measure::Kill => self.kill_all(),
        }
        // A program that pages more than it works gets on so slowly that its user had better know.
        let full = status.pressure.full.avg10;
        let is_thrashing = status.pressure.is_thrashing();
        if self.thrashing.note(is_thrashing, Instant::now()) && !self.quiet {
            warning(&format!(
                "the program has spent {full:.0} % of the last seconds waiting for its pages and doing nothing else: \
                 `vswap set --run {} --ram SIZE` gives it more memory",
                std::process::id()
            ));
        }
    }

    /// The program is told to end. True if it is to be killed instead.
    pub fn is_told_once_more(&mut self) -> bool {
        self.full.told_to_end() == Measure::Kill
    }

    /// Was the run ended because everything was full?
    pub fn has_ended_run(&self) -> bool {
        self.full.has_ended_run()
    }

    /// Sends a signal to every process of the run.
    pub fn signal_all(&self, signal: i32) {
        for pid in self.family.living() {
            // The process may be gone already.
            let _ = send(pid, signal);
        }
    }

    /// SIGKILL to every process of the run.
    pub fn kill_all(&self) {
        self.signal_all(Signal::KILL.as_raw());
    }
}
