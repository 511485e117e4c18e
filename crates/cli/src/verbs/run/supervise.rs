//! Stands between the program and whoever started vswap: passes signals on, stops when the program stops, reaps every
//! process of the run, and says how the program ended once all of them are gone.
//!
//! One thread, the only one that takes signals; all of them are blocked everywhere else in the process. vswap is in the
//! program's process group, so what the terminal sends reaches the program without help and must not be sent twice.
//! vswap is the reaper of the program's orphans: no children left means that no process of the run is left.

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, WaitStatus, getpgrp, getpid, getsid, wait};
use rustix::termios::tcgetpgrp;
use vswap_pager::Status;
use vswap_sys::process::procfs;
use vswap_sys::process::signals::{Blocked, Taken, send};

use crate::host::Host;
use crate::output::notice;
use crate::verbs::run::report::Ending;
use crate::verbs::run::thrashing::Thrashing;

/// How often the run is looked at when no signal comes: soon enough for a person who waits, rare enough to cost
/// nothing.
const TICK: Duration = Duration::from_secs(1);
/// Most names of left over processes in a notice: it shall stay one line.
const LEFTOVERS_NAMED_MAX: usize = 4;
/// Longest chain of parents followed upwards: a chain that long is no family of the run's.
const ANCESTORS_MAX: usize = 1024;

const HUP: i32 = Signal::HUP.as_raw();
const INT: i32 = Signal::INT.as_raw();
const QUIT: i32 = Signal::QUIT.as_raw();
const TERM: i32 = Signal::TERM.as_raw();
const CHLD: i32 = Signal::CHILD.as_raw();
const CONT: i32 = Signal::CONT.as_raw();
const STOP: i32 = Signal::STOP.as_raw();
const TSTP: i32 = Signal::TSTP.as_raw();
const TTIN: i32 = Signal::TTIN.as_raw();
const TTOU: i32 = Signal::TTOU.as_raw();
const WINCH: i32 = Signal::WINCH.as_raw();

/// A run under way.
#[derive(Debug)]
pub struct Supervisor<'a> {
    signals: &'a Blocked,
    host: &'a Host,
    program_pid: u32,
    quiet: bool,
    program_stopped: bool,
    ended: Option<Ending>,
    leftovers_noticed: bool,
    leftovers_told_to_end: bool,
    stall_noticed: bool,
    thrashing: Thrashing,
}

impl<'a> Supervisor<'a> {
    /// `program_pid` is the main program, a child of this process.
    pub fn new(
        signals: &'a Blocked,
        host: &'a Host,
        program_pid: u32,
        quiet: bool,
    ) -> Supervisor<'a> {
        Supervisor {
            signals,
            host,
            program_pid,
            quiet,
            program_stopped: false,
            ended: None,
            leftovers_noticed: false,
            leftovers_told_to_end: false,
            stall_noticed: false,
            thrashing: Thrashing::default(),
        }
    }

    /// Returns when every process of the run has ended.
    pub fn supervise(mut self) -> Ending {
        let mut next_tick = Instant::now() + TICK;
        loop {
            let had_ended = self.ended.is_some();
            let children_left = self.reap();
            if let Some(ending) = self.ended {
                if !children_left {
                    return ending;
                }
                if !had_ended {
                    // What the program leaves behind gets a full tick to end by itself.
                    next_tick = Instant::now() + TICK;
                }
            }
            let pause = next_tick.saturating_duration_since(Instant::now());
            if let Some(taken) = self.signals.take(pause) {
                self.on_signal(taken);
            }
            if Instant::now() >= next_tick {
                self.tick();
                next_tick = Instant::now() + TICK;
            }
        }
    }

    /// Takes note of everything that happened to children; false when there are none left.
    fn reap(&mut self) -> bool {
        loop {
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
            match wait(options) {
                Ok(Some((pid, status))) => {
                    if pid.as_raw_nonzero().get().unsigned_abs() == self.program_pid {
                        self.program_changed(status);
                    }
                }
                Ok(None) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn program_changed(&mut self, status: WaitStatus) {
        if let Some(signal) = status.stopping_signal() {
            self.program_stopped = true;
            if stops_with_program(signal) {
                // Whoever continues the job continues this process too; till then no thread of it runs, and what is
                // left running of the job waits at its next fault.
                let _ = send(std::process::id(), STOP);
            }
        } else if status.continued() {
            self.program_stopped = false;
        } else if let Some(code) = status.exit_status() {
            self.ended = Some(Ending::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)));
        } else if let Some(signal) = status.terminating_signal() {
            self.ended = Some(Ending::Signaled(signal));
        }
    }

    fn on_signal(&mut self, taken: Taken) {
        match taken.signal {
            CHLD => {}
            HUP | INT | QUIT | TERM if self.ended.is_some() => self.end_leftovers(),
            _ if self.ended.is_some() => {}
            // Whoever continued vswap alone meant the program. Where the whole job was continued the program has run on
            // already, or a second SIGCONT does no harm.
            CONT => {
                if self.program_stopped {
                    let _ = send(self.program_pid, CONT);
                }
            }
            _ if reached_program_too(taken) || sent_by_run(taken) => {}
            signal => drop(send(self.program_pid, signal)),
        }
    }

    /// Somebody wants an end although the program itself has ended: first politely, then not.
    fn end_leftovers(&mut self) {
        if self.leftovers_told_to_end {
            signal_all(Signal::KILL.as_raw());
        } else {
            signal_all(TERM);
            self.leftovers_told_to_end = true;
        }
    }

    fn tick(&mut self) {
        if self.ended.is_some() && !self.leftovers_noticed {
            self.leftovers_noticed = true;
            if !self.quiet {
                let leftovers = name_processes(&processes());
                notice(&format!(
                    "the program has ended; vswap goes on for what it left running ({leftovers}); Ctrl-C ends it"
                ));
            }
        }
        if self.host.is_lost() {
            // What has an agent has ended by itself, and nobody counts the rest any more.
            signal_all(Signal::KILL.as_raw());
        }
        let Some(status) = self.host.status() else {
            return;
        };
        if status.stalled && !self.stall_noticed {
            // Also with --quiet: a program that stands still without a word is worse than a line too many.
            notice(if status.stalled_by_group {
                "the limits of the run's group leave no room for more of its pages in swap: the program waits until \
                 some are freed; run it with a larger --swap-max or --pool-max, without --no-writeback, or with \
                 more --ram; `vswap status --groups` says which limit it is"
            } else {
                "the memory allowed is full and nothing more can be stored: the program waits until some of it is \
                 freed; \
                 run it with more --ram, or with --codec zstd"
            });
        }
        self.stall_noticed = status.stalled;
        self.say_thrashing(&status);
    }
}

impl Supervisor<'_> {
    /// A program that pages more than it works gets on so slowly that its user had better know.
    fn say_thrashing(&mut self, status: &Status) {
        let full = status.pressure.full.avg10;
        let is_thrashing = status.pressure.is_thrashing();
        if self.thrashing.note(is_thrashing, Instant::now()) && !self.quiet {
            notice(&format!(
                "the program has spent {full:.0} % of the last seconds waiting for its pages and doing nothing else: \
                 it works on more memory than it has; `vswap set --run {} --ram SIZE` gives it more while it runs",
                std::process::id()
            ));
        }
    }
}

/// Living processes of the run, managed or not.
fn processes() -> Vec<u32> {
    procfs::descendants(std::process::id()).unwrap_or_default()
}

fn signal_all(signal: i32) {
    for pid in processes() {
        // It may be gone already.
        let _ = send(pid, signal);
    }
}

/// True when vswap stops because the program was stopped by `signal`: the shell waits for vswap and has to see it stop.
/// Without a terminal nobody does job control, and whoever stops and continues the program by its pid must find it
/// served when it goes on.
fn stops_with_program(signal: i32) -> bool {
    let Ok(terminal) = File::open("/dev/tty") else {
        return false;
    };
    match signal {
        TSTP | TTIN | TTOU => true,
        // `suspend` and the like: the shell that has lent us the terminal wants it back.
        _ => tcgetpgrp(&terminal).is_ok_and(|foreground| foreground == getpgrp()),
    }
}

/// True for what the terminal sent to the whole process group, program included. A hangup is sent to the session's
/// leader first, alone.
fn reached_program_too(taken: Taken) -> bool {
    match taken.signal {
        INT | QUIT | TSTP | TTIN | TTOU | WINCH => taken.from_kernel,
        HUP => taken.from_kernel && getsid(None).is_ok_and(|leader| leader != getpid()),
        _ => false,
    }
}

/// True for a signal from a process of the run: it was meant for the group, which has it, or for a parent that vswap is
/// only by accident.
fn sent_by_run(taken: Taken) -> bool {
    let own_pid = std::process::id();
    let mut pid = taken.sender;
    for _ in 0..ANCESTORS_MAX {
        match pid {
            Some(pid) if pid == own_pid => return true,
            Some(1) | None => return false,
            Some(child) => pid = procfs::stat(child).ok().map(|stat| stat.parent),
        }
    }
    false
}

fn name_processes(pids: &[u32]) -> String {
    let mut names: Vec<String> = pids
        .iter()
        .take(LEFTOVERS_NAMED_MAX)
        .map(|pid| {
            let name = procfs::stat(*pid).map(|stat| stat.comm).unwrap_or_default();
            format!("{name} {pid}")
        })
        .collect();
    if pids.len() > LEFTOVERS_NAMED_MAX {
        names.push(format!("{} more", pids.len() - LEFTOVERS_NAMED_MAX));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(signal: i32, from_kernel: bool, sender: Option<u32>) -> Taken {
        Taken {
            signal,
            from_kernel,
            sender,
        }
    }

    #[test]
    fn terminal_signals_are_not_doubled() {
        for signal in [INT, QUIT, TSTP, TTIN, TTOU, WINCH] {
            assert!(reached_program_too(taken(signal, true, None)));
            assert!(!reached_program_too(taken(signal, false, Some(1))));
        }
        assert!(!reached_program_too(taken(TERM, true, None)));
    }

    #[test]
    fn own_family_is_recognised() {
        assert!(sent_by_run(taken(TERM, false, Some(std::process::id()))));
        let mut child = std::process::Command::new("sleep")
            .arg("10")
            .spawn()
            .expect("sleep starts");
        assert!(sent_by_run(taken(TERM, false, Some(child.id()))));
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert!(!sent_by_run(taken(TERM, false, Some(1))));
        assert!(!sent_by_run(taken(TERM, false, None)));
    }
}
