//! Stands between the program and whoever started vswap. Passes signals on, stops when the program stops, reaps every
//! process of the run, and says how the program ended once all of them are gone.
//!
//! One thread does this, and it is the only one that takes signals: all other threads block them. vswap is in the
//! program's process group. So signals from the terminal reach the program without help and must not be sent twice.
//! vswap is the reaper of the program's orphans. So when vswap has no children left, no process of the run is left.

use std::fs::File;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, WaitStatus, getpgrp, getpid, getsid, wait};
use rustix::termios::tcgetpgrp;
use vswap_sys::process::signals::{Blocked, Taken, send};
use vswap_sys::process::{procfs, task};

use crate::args::ManageArgs;
use crate::failure::OWN_ERROR;
use crate::host::Host;
use crate::output::notice;
use crate::verbs::run::auto_park::AutoPark;
use crate::verbs::run::parking::Parking;
use crate::verbs::run::report::Ending;
use crate::verbs::run::strangers::Strangers;
use crate::verbs::run::watch::{TICK, Watch};

/// Most names of left over processes in a notice: it shall stay one line.
const LEFTOVERS_NAMED_MAX: usize = 4;
/// Longest chain of parents that is followed upwards. A longer chain does not belong to the run.
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

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// Its program.
    pub ending: Ending,
    /// vswap ended it because everything was full.
    pub was_full: bool,
}

/// A run under way.
#[derive(Debug)]
pub struct Supervisor<'a> {
    signals: &'a Blocked,
    host: &'a Host,
    parking: &'a Parking<'a>,
    program_pid: u32,
    quiet: bool,
    program_stopped: bool,
    ended: Option<Ending>,
    leftovers_noticed: bool,
    leftovers_told_to_end: bool,
    watch: Watch<'a>,
    strangers: Strangers<'a>,
    auto_park: Option<AutoPark>,
}

impl<'a> Supervisor<'a> {
    /// `program_pid` is the main program, a child of this process.
    pub fn new(
        signals: &'a Blocked,
        host: &'a Host,
        parking: &'a Parking<'a>,
        program_pid: u32,
        args: &ManageArgs,
        strangers: Strangers<'a>,
    ) -> Supervisor<'a> {
        Supervisor {
            signals,
            host,
            parking,
            program_pid,
            quiet: args.quiet,
            program_stopped: false,
            ended: None,
            leftovers_noticed: false,
            leftovers_told_to_end: false,
            watch: Watch::new(host, parking.family(), args),
            strangers,
            auto_park: None,
        }
    }

    /// Parks the run when it is idle.
    pub fn parking_itself(self, auto_park: Option<AutoPark>) -> Supervisor<'a> {
        Supervisor { auto_park, ..self }
    }

    /// Returns when every process of the run has ended.
    pub fn supervise(mut self) -> End {
        let mut next_tick = Instant::now() + TICK;
        loop {
            let had_ended = self.ended.is_some();
            let children_left = self.reap();
            if let Some(ending) = self.ended {
                if !children_left {
                    let was_full = self.watch.has_ended_run();
                    let ending = if self.strangers.has_ended_run() {
                        Ending::Exited(OWN_ERROR)
                    } else {
                        ending
                    };
                    return End { ending, was_full };
                }
                if !had_ended {
                    // Processes that the program leaves behind get a full tick to end by themselves.
                    next_tick = Instant::now() + TICK;
                }
            }
            let next = self
                .strangers
                .look_around(self.host, self.parking, next_tick);
            let pause = next.saturating_duration_since(Instant::now());
            if let Some(taken) = self.signals.take(pause) {
                self.on_signal(taken);
            }
            if Instant::now() >= next_tick {
                self.tick();
                next_tick = Instant::now() + TICK;
            }
        }
    }

    /// Notes everything that happened to children. False if there are none left.
    fn reap(&mut self) -> bool {
        loop {
            // Stops of what another thread traces, across a fork, are that thread's. The kernel tells of them all the
            // same, if the tracee is a child of this process.
            let own = WaitOptions::from_bits_retain(task::OWN_CHILDREN);
            let options =
                WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED | own;
            match wait(options) {
                Ok(Some((pid, status))) => {
                    // Not those that this thread has stopped for a moment (`strangers`).
                    let is_traced = status.as_raw() >> 16 != 0;
                    if !is_traced && pid.as_raw_nonzero().get().unsigned_abs() == self.program_pid {
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
            // A thread of the pager that traces it across a fork stops it too, for a moment.
            if !procfs::stat(self.program_pid).is_ok_and(|stat| matches!(stat.state, b'T' | b'Z')) {
                return;
            }
            // Whoever parks the run has stopped it, and nobody shall see vswap stop.
            if self.parking.stops() && signal == STOP {
                return;
            }
            self.program_stopped = true;
            if stops_with_program(signal) {
                // Whoever continues the job continues this process too. Until then no thread of vswap runs, and a
                // process of the job that still runs waits at its next fault.
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
        if !matches!(taken.signal, CHLD | WINCH) {
            self.parking.wake_now();
        }
        match taken.signal {
            CHLD => {}
            HUP | INT | QUIT | TERM if self.ended.is_some() => self.end_leftovers(),
            _ if self.ended.is_some() => {}
            HUP | INT | QUIT | TERM if !sent_by_run(taken) => self.told_to_end(taken),
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

    /// Somebody wants the program to end. It hears of it as it would without vswap; while it waits for memory it gets
    /// some for its end.
    fn told_to_end(&mut self, taken: Taken) {
        if self.watch.is_told_once_more() {
            return self.watch.kill_all();
        }
        if !reached_program_too(taken) {
            let _ = send(self.program_pid, taken.signal);
        }
        self.host.allow_last();
    }

    /// Somebody wants an end although the program itself has ended: first politely, then not.
    fn end_leftovers(&mut self) {
        if self.leftovers_told_to_end {
            self.watch.kill_all();
        } else {
            self.watch.signal_all(TERM);
            self.leftovers_told_to_end = true;
        }
    }

    fn tick(&mut self) {
        if self.ended.is_some() && !self.leftovers_noticed {
            self.leftovers_noticed = true;
            if !self.quiet {
                let leftovers = name_processes(&self.parking.family().living());
                notice(&format!(
                    "the program has ended; vswap goes on for what it left running ({leftovers}); Ctrl-C ends it"
                ));
            }
        }
        if self.host.is_lost() {
            // Processes with an agent have ended by themselves. Nobody counts the others any more.
            self.watch.kill_all();
        }
        if let Some(auto_park) = &mut self.auto_park {
            auto_park.look(self.parking);
        }
        // While it is parked there is nothing to see.
        if !self.parking.look() && !self.program_stopped {
            self.watch.look();
        }
    }
}

/// Does vswap stop because `signal` stopped the program? The shell waits for vswap and has to see it stop. Without a
/// terminal nobody does job control. Then somebody may stop and continue the program by its pid and must find it served
/// when it goes on.
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

/// Did the terminal send this signal to the whole process group, and so to the program too? A hangup goes first to the
/// session's leader, and to nobody else.
fn reached_program_too(taken: Taken) -> bool {
    match taken.signal {
        INT | QUIT | TSTP | TTIN | TTOU | WINCH => taken.from_kernel,
        HUP => taken.from_kernel && getsid(None).is_ok_and(|leader| leader != getpid()),
        _ => false,
    }
}

/// Did a process of the run send this signal? Then it was meant for the group, which has got it, or for the sender's
/// parent, which is vswap only by accident.
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
