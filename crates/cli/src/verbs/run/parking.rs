//! Parking the run: its memory moves out, and its processes are stopped until somebody wakes them.
//!
//! The pager moves the memory (`vswap_pager::ParkStep`), and this stops the processes, whose family it knows: SIGSTOP,
//! first to parents and then to their children, so that no parent sees a child stop; SIGCONT the other way round.
//! Whoever was stopped before is left as it is, before and afterwards.
//!
//! One command parks at a time. Whoever tells the run to end, or wakes it, has priority: parking is given up at its
//! next step. The lock of the phase is held for moments only, never while memory moves or a daemon is asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vswap_pager::{ParkStep, Status};
use vswap_sys::process::procfs::{self, Stat};
use vswap_sys::process::signals::send;

use crate::control::{Asker, ParkOrder};
use crate::host::Host;
use crate::output::figures::PAGE_BYTES;
use crate::verbs::run::bells::Bells;
use crate::verbs::run::family::Family;

/// How long there may be no less to move than before, until parking goes on without the rest.
const STILL_PATIENCE: Duration = Duration::from_secs(3);
/// Fewer pages than this are no less.
const FEW_PAGES: u64 = 64;
/// How long processes may take to stop: one that waits for a disk, or for a child of vfork, stops when that is over.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// How long a process may take to stop before its children are told to.
const PARENT_PATIENCE: Duration = Duration::from_millis(20);
/// How long who wakes a run waits for whoever is parking it to give up.
const GIVE_UP_PATIENCE: Duration = Duration::from_secs(10);
const PACE: Duration = Duration::from_millis(2);
/// Why a run is not parked after all.
const GIVEN_UP: &str = "it was woken, or told something, before it was parked";
/// Why it is not parked by who wants its memory to be free.
const NO_AREA: &str = "it has no swap area, so its memory would stay: `vswap swapon` adds one";

/// What parking came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ParkReport {
    /// The run was parked before, and nothing was done.
    pub was_parked: bool,
    /// How long it took.
    pub seconds: f64,
    /// What the run had in memory before: programs, pool, tables, and vswap itself.
    pub before_bytes: u64,
    /// The same now.
    pub left_bytes: u64,
    /// Of that, memory of its programs.
    pub program_bytes: u64,
    /// Compressed pages that have nowhere to go.
    pub pool_bytes: u64,
    /// Tables that say where pages are.
    pub table_bytes: u64,
    /// What all pages together are that lie in swap.
    pub swapped_bytes: u64,
    /// There is an area.
    pub has_area: bool,
    /// Processes that were stopped before, whose memory stays.
    pub stopped_before: Vec<u32>,
    /// Processes that have not stopped yet.
    pub running: Vec<u32>,
}

/// A process that was stopped here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StoppedOne {
    pid: u32,
    start_ticks: u64,
    /// It was seen to have stopped.
    was_seen: bool,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Awake,
    /// Somebody is parking it.
    Parking,
    /// These were stopped, parents first, perhaps until something comes for them.
    Parked(Vec<StoppedOne>, Option<Bells>),
}

/// Whether a run is parked.
#[derive(Debug)]
pub struct Parking<'a> {
    host: &'a Host,
    family: &'a Family,
    phase: Mutex<Phase>,
    /// Whoever is parking the run shall give up.
    give_up: AtomicBool,
}

impl<'a> Parking<'a> {
    /// A run that is awake.
    pub fn new(host: &'a Host, family: &'a Family) -> Parking<'a> {
        Parking {
            host,
            family,
            phase: Mutex::default(),
            give_up: AtomicBool::new(false),
        }
    }

    /// The processes of the run.
    pub fn family(&self) -> &'a Family {
        self.family
    }

    /// Parks the run. Returns when its memory has moved, or when nothing moves any more.
    pub fn park(&self, order: ParkOrder, asker: &Asker<'_>) -> Result<Value, String> {
        match &mut *self.phase() {
            Phase::Parking => return Err("somebody is parking the run already".to_owned()),
            Phase::Parked(..) => {
                return value(&ParkReport {
                    was_parked: true,
                    ..ParkReport::default()
                });
            }
            phase => *phase = Phase::Parking,
        }
        self.give_up.store(false, Ordering::Release);
        let parked = self.try_park(order, asker);
        if parked.is_err() {
            *self.phase() = Phase::Awake;
        }
        if self.give_up.swap(false, Ordering::AcqRel) {
            self.wake_now();
            return Err(GIVEN_UP.to_owned());
        }
        value(&parked?)
    }

    fn try_park(&self, order: ParkOrder, asker: &Asker<'_>) -> Result<ParkReport, String> {
        let began = Instant::now();
        // Before anything stops: what comes while it is parked is news.
        let bells = order.until_used.then(|| Bells::hang(&self.family.living()));
        let before = self.host.status().ok_or("the daemon does not answer")?;
        let begun = self.host.park(ParkStep::Begin)?;
        let moved = if order.needs_area && !begun.has_area {
            Err(NO_AREA.to_owned())
        } else {
            self.until_done(ParkStep::MoveOut, || asker.has_gone())
                .and_then(|()| self.host.park(ParkStep::Release))
        };
        if let Err(why) = moved {
            // If this fails, the daemon has gone, and the run with it.
            let _ = self.host.park(ParkStep::Wake);
            return Err(why);
        }
        let mut family = self.stop_all();
        wait_until(STOP_PATIENCE, || {
            family.stopped.iter().all(StoppedOne::rests)
        });
        for one in &mut family.stopped {
            one.was_seen = one.rests();
        }
        let runs = |one: &&StoppedOne| !one.was_seen;
        let running = family.stopped.iter().filter(runs).map(|one| one.pid);
        let running = running.collect();
        *self.phase() = Phase::Parked(family.stopped, bells);
        // From here on it is parked, whoever goes away.
        let _ = self.until_done(ParkStep::WriteBack, || false);
        let after = self.host.status().unwrap_or_default();
        if !self.is_parked() {
            return Err(GIVEN_UP.to_owned());
        }
        Ok(ParkReport {
            seconds: began.elapsed().as_secs_f64(),
            before_bytes: before.total_bytes,
            stopped_before: family.stopped_before,
            running,
            ..ParkReport::of(&after)
        })
    }

    /// Repeats a step until it is done, or gets no further: a program may bring about as much as has moved.
    fn until_done(&self, step: ParkStep, has_gone: impl Fn() -> bool) -> Result<(), String> {
        let (mut moved, mut least) = (Instant::now(), u64::MAX);
        loop {
            let parked = self.host.park(step)?;
            if parked.is_done {
                return Ok(());
            }
            if has_gone() || self.give_up.load(Ordering::Acquire) {
                return Err(GIVEN_UP.to_owned());
            }
            if parked.left_pages + FEW_PAGES < least {
                (moved, least) = (Instant::now(), parked.left_pages);
            } else if moved.elapsed() > STILL_PATIENCE {
                return Ok(());
            }
        }
    }

    /// Tells all processes of the run to stop, those included that are born meanwhile.
    fn stop_all(&self) -> Stopping {
        let mut family = Stopping::default();
        let mut known: HashMap<u32, u64> = HashMap::new();
        loop {
            let living = self.family.living().into_iter().filter_map(lives);
            let new: Vec<Stat> = living
                .filter(|stat| known.get(&stat.pid) != Some(&stat.start_ticks))
                .collect();
            if new.is_empty() {
                return family;
            }
            for stat in parents_first(new) {
                known.insert(stat.pid, stat.start_ticks);
                if stat.stopped() {
                    family.stopped_before.push(stat.pid);
                } else if send(stat.pid, Signal::STOP.as_raw()).is_ok() {
                    let one = StoppedOne::new(&stat);
                    wait_until(PARENT_PATIENCE, || one.rests());
                    family.stopped.push(one);
                }
            }
        }
    }

    /// Has the run go on. False if it was awake.
    pub fn wake(&self) -> Result<Value, String> {
        let since = Instant::now();
        while matches!(*self.phase(), Phase::Parking) {
            self.give_up.store(true, Ordering::Release);
            if since.elapsed() > GIVE_UP_PATIENCE {
                return Err(
                    "somebody is parking the run and does not give up: try again".to_owned(),
                );
            }
            std::thread::sleep(PACE);
        }
        // Who was parking it may have woken it.
        Ok(Value::Bool(self.wake_now() || since.elapsed() > PACE))
    }

    /// Something has come for the run: it goes on. Does not wait for whoever is parking it.
    pub fn wake_now(&self) -> bool {
        let stopped = match &mut *self.phase() {
            Phase::Awake => return false,
            Phase::Parking => {
                self.give_up.store(true, Ordering::Release);
                return false;
            }
            phase => match std::mem::take(phase) {
                Phase::Parked(stopped, _) => stopped,
                Phase::Awake | Phase::Parking => return false,
            },
        };
        for one in stopped.iter().rev().filter(|one| one.lives()) {
            let _ = send(one.pid, Signal::CONT.as_raw());
        }
        // If this fails, the daemon has gone, and the run with it.
        let _ = self.host.park(ParkStep::Wake);
        true
    }

    /// Is it parked?
    pub fn is_parked(&self) -> bool {
        matches!(*self.phase(), Phase::Parked(..))
    }

    /// Is it parked, or is somebody at it? Then a process that stops was told to from here.
    pub fn stops(&self) -> bool {
        !matches!(*self.phase(), Phase::Awake)
    }

    /// Looks at a parked run: where somebody else has continued a process, all of it goes on. False if it is awake.
    pub fn look(&self) -> bool {
        let is_continued = match &mut *self.phase() {
            Phase::Awake => return false,
            Phase::Parking => false,
            Phase::Parked(stopped, _) => stopped.iter_mut().any(StoppedOne::has_gone_on),
        };
        if is_continued {
            self.wake_now();
        }
        true
    }

    /// Where the run is parked until it is used: wakes it if something has come for it. Returns when to listen again.
    pub fn listen(&self) -> Option<Instant> {
        let rings = match &mut *self.phase() {
            Phase::Parked(stopped, Some(bells)) => {
                if !bells.rings(stopped.iter().map(|one| one.pid)) {
                    return Some(bells.next());
                }
                true
            }
            _ => false,
        };
        if rings {
            self.wake_now();
        }
        None
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of the processes.
#[derive(Debug, Default)]
struct Stopping {
    stopped: Vec<StoppedOne>,
    stopped_before: Vec<u32>,
}

impl StoppedOne {
    fn new(stat: &Stat) -> StoppedOne {
        StoppedOne {
            pid: stat.pid,
            start_ticks: stat.start_ticks,
            was_seen: false,
        }
    }

    /// Has it stopped, or ended?
    fn rests(&self) -> bool {
        procfs::is_stopped(self.pid) || !self.lives()
    }

    /// Is it still this process, and has it not ended?
    fn lives(&self) -> bool {
        lives(self.pid).is_some_and(|stat| stat.start_ticks == self.start_ticks)
    }

    /// Was it stopped before, and has somebody else continued it?
    fn has_gone_on(&mut self) -> bool {
        let rests = self.rests();
        let had_stopped = std::mem::replace(&mut self.was_seen, rests);
        had_stopped && !rests && self.lives()
    }
}

/// What the kernel tells of a process that has not ended. It lives on when its main thread has ended and others have
/// not.
fn lives(pid: u32) -> Option<Stat> {
    let stat = procfs::stat(pid).ok()?;
    (stat.alive() || stat.threads > 1).then_some(stat)
}

impl ParkReport {
    fn of(status: &Status) -> ParkReport {
        ParkReport {
            left_bytes: status.total_bytes,
            program_bytes: status.resident_bytes,
            pool_bytes: status.pool_bytes,
            table_bytes: status.metadata_bytes,
            swapped_bytes: status.swapped_pages * PAGE_BYTES,
            has_area: status.physical_pages > 0,
            ..ParkReport::default()
        }
    }
}

fn value(report: &ParkReport) -> Result<Value, String> {
    serde_json::to_value(report).map_err(|error| error.to_string())
}

/// Sorts processes so that each stands behind its parent.
fn parents_first(mut stats: Vec<Stat>) -> Vec<Stat> {
    let parents: HashMap<u32, u32> = stats.iter().map(|stat| (stat.pid, stat.parent)).collect();
    stats.sort_by_cached_key(|stat| {
        let mut ancestors = std::iter::successors(Some(stat.pid), |pid| parents.get(pid).copied());
        // A process id that was given out again may close a circle.
        ancestors.by_ref().take(parents.len() + 1).count()
    });
    stats
}

/// Waits until it is so, or for `patience`.
fn wait_until(patience: Duration, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() && since.elapsed() < patience {
        std::thread::sleep(PACE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32) -> Stat {
        let text = format!("{pid} (x) S {parent} {}", "0 ".repeat(48));
        procfs::parse_stat(text.as_bytes()).expect("good text")
    }

    #[test]
    fn parents_come_before_their_children() {
        let family = [(9, 7), (8, 9), (7, 1), (10, 1), (6, 8)];
        let sorted = parents_first(family.map(|(pid, parent)| process(pid, parent)).into());
        let at = |pid| {
            sorted
                .iter()
                .position(|stat| stat.pid == pid)
                .expect("it is there")
        };
        assert!(at(7) < at(9) && at(9) < at(8) && at(8) < at(6));
        assert_eq!(sorted.len(), family.len());
        let circle = [(1, 2), (2, 1)].map(|(pid, parent)| process(pid, parent));
        assert_eq!(parents_first(circle.into()).len(), 2);
    }

    #[test]
    fn who_was_stopped_and_runs_has_been_continued() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let mut one = StoppedOne::new(&procfs::stat(child.id()).expect("it lives"));
        assert!(!one.has_gone_on(), "it has not stopped yet");
        send(child.id(), Signal::STOP.as_raw()).expect("a signal");
        wait_until(STOP_PATIENCE, || one.rests());
        assert!(one.rests() && !one.has_gone_on());
        send(child.id(), Signal::CONT.as_raw()).expect("a signal");
        wait_until(STOP_PATIENCE, || !one.rests());
        assert!(one.has_gone_on());
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert!(one.rests() && !one.has_gone_on(), "it has ended");
    }
}
