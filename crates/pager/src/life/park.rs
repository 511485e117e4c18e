//! Parking a run: all of its memory moves out, and it goes on when it is woken.
//!
//! The caller goes through the steps and stops the processes in between, because they are its family. Each step takes
//! a moment only, so that the caller can give up at any time: it wakes the run then.
//!
//! 1. *Begin*: the run is held (`run/parking.rs`), areas take the place of the pool, and all memory is registered.
//! 2. *Move out*, again and again: every evictor makes a lap. This needs the agents, so the processes run meanwhile.
//! 3. *Release*: the faults that waited are forgotten, no more windows move, and the caller stops the processes. In
//!    this order, because a thread whose fault waits in a system call cannot stop: with the signal pending it faults
//!    again and again. What is touched in between is little.
//! 4. *Write back*, again and again, until pool and frames are empty.
//!
//! A process that is stopped by others answers no command, and nobody waits for it: its memory stays. Waking brings
//! back what was in memory before, on a thread of its own, while faults are served as ever.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vswap_sys::process::procfs;

use crate::base::page_run::PAGE_BYTES;
use crate::base::threads;
use crate::evict::shrink;
use crate::fault::{FaultServer, held};
use crate::life::lifecycle;
use crate::life::run::Run;
use crate::policy::working_set::{Heat, gone_before, heat_of};
use crate::space::{AREA_WINDOW_PAGES_MAX, Space};
use crate::store::more_room::Wish;

/// How long an area may take to come that is wished for.
const AREA_PATIENCE: Duration = Duration::from_secs(2);
/// How long a lap, or a look at what is being written, may take until the caller hears how far it has come.
const STEP_PATIENCE: Duration = Duration::from_millis(250);
const PACE: Duration = Duration::from_millis(2);
/// Fewer pages than this in a lap are what programs and agents touch all the time.
const FEW_PAGES: u64 = 64;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParkStep {
    /// Hold the run.
    Begin,
    /// Move out for a while.
    MoveOut,
    /// The processes are about to be stopped: nobody is held any more.
    Release,
    /// Write back for a while.
    WriteBack,
    /// Let the run go on, or give up parking it.
    Wake,
}

/// How a step went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The step has nothing more to do.
    pub is_done: bool,
    /// Pages that it has not moved yet, where that may take a while.
    pub left_pages: u64,
    /// There is an area for them. Without one they stay compressed in memory.
    pub has_area: bool,
}

/// A step that does not fit: somebody else is parking or waking the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run is being parked or woken by somebody else: `vswap status` shows its state")]
pub struct OutOfStep;

/// Do one step.
///
/// # Errors
/// [`OutOfStep`]; nothing has changed.
pub(crate) fn step(run: &Arc<Run>, step: ParkStep) -> Result<Parked, OutOfStep> {
    tracing::debug!(?step, "parking");
    match step {
        ParkStep::Begin => begin(run),
        ParkStep::MoveOut if run.serving.parking.is_holding() => Ok(move_out(run)),
        ParkStep::Release => release(run),
        ParkStep::WriteBack if run.serving.parking.is_parked() => Ok(write_back(run)),
        ParkStep::Wake => wake(run),
        ParkStep::MoveOut | ParkStep::WriteBack => Err(OutOfStep),
    }
}

fn done(run: &Run) -> Parked {
    so_far(run, true, 0)
}

fn so_far(run: &Run, is_done: bool, left_pages: u64) -> Parked {
    Parked {
        is_done,
        left_pages,
        has_area: run.serving.areas.any(),
    }
}

fn begin(run: &Arc<Run>) -> Result<Parked, OutOfStep> {
    let serving = &run.serving;
    if !serving.parking.hold(serving.working_set.pages_gone()) {
        return Err(OutOfStep);
    }
    let areas = &serving.areas;
    if !areas.any() && areas.more_room.has_giver() {
        areas.more_room.want(Wish::Parking);
        wait_until(AREA_PATIENCE, || areas.any());
    }
    set_pool(run, true);
    Ok(done(run))
}

/// Give the pool's memory up, or let it have its share again.
fn set_pool(run: &Run, is_parked: bool) {
    let limit = &run.serving.limit;
    limit.pool.set_parked(is_parked);
    limit.pool.renew(&run.part, &run.serving.areas);
    shrink::wake(&run.serving);
    limit.look_now();
}

/// One lap of every evictor.
fn move_out(run: &Arc<Run>) -> Parked {
    let before = run.serving.stats.pages_out.get();
    let spaces = run.listening.spaces.all();
    let movable = || spaces.iter().filter(|space| may_move(space));
    // Each begins a lap now, none is in the middle of one.
    let mut is_fresh = true;
    for space in movable() {
        if space.mailbox.has_evictor() {
            is_fresh &= space.mailbox.ask_lap();
        } else {
            lifecycle::hasten(run, space);
            is_fresh = false;
        }
    }
    let are_over = wait_until(STEP_PATIENCE, || {
        movable().all(|space| space.mailbox.is_lap_over())
    });
    if !is_fresh {
        std::thread::sleep(PACE);
    }
    let pages = run.serving.stats.pages_out.get() - before;
    let is_stalled = run.serving.limit.is_stalled();
    let is_written = run.evicting.write_queue.pending() == 0 || is_stalled;
    let is_done = is_fresh && are_over && is_written && pages < FEW_PAGES;
    let left_bytes: u64 = movable().map(|space| space.resident_bytes()).sum();
    so_far(run, is_done, left_bytes / PAGE_BYTES)
}

/// May pages of this space be moved out, now or soon?
fn may_move(space: &Space) -> bool {
    let is_refused = space.refused.load(Ordering::Relaxed);
    let is_managed = !space.is_confined() && !space.is_hung_up() && !is_refused;
    let stopped = |pid| procfs::stat(pid).is_ok_and(|stat| stat.stopped());
    !space.has_ended() && is_managed && space.pid().is_some_and(|pid| !stopped(pid))
}

fn release(run: &Run) -> Result<Parked, OutOfStep> {
    if !run.serving.parking.park() {
        return Err(OutOfStep);
    }
    look_again(run);
    // From now on no window begins, and those under way are soon over.
    let spaces = run.listening.spaces.all();
    wait_until(STEP_PATIENCE, || spaces.iter().all(|space| is_idle(space)));
    Ok(done(run))
}

/// Has the agent nothing to do at this moment?
fn is_idle(space: &Space) -> bool {
    let process = space.process.get().filter(|_| !space.has_ended());
    process.is_none_or(|process| process.agent.try_slot().is_some())
}

/// Nobody is held any more.
fn look_again(run: &Run) {
    for space in run.listening.spaces.all() {
        held::look_again(&space);
        // A fault may just have been put back by who looked through them.
        space.mailbox.ask(|wanted| wanted.deferred = true);
    }
}

/// Wait for the writers and the shrinker. At the end give back what was for moving pages out.
fn write_back(run: &Run) -> Parked {
    let serving = &run.serving;
    let left = || {
        let engine = serving.engine.stats();
        let has_areas = serving.areas.any_stays() && run.part.has_swap_room();
        let in_pool = if has_areas {
            run.part.usage(&engine).pool_pages
        } else {
            0
        };
        let in_frames = if run.part.is_all() {
            engine.frames_used
        } else {
            run.evicting.write_queue.pending() as u64
        };
        in_pool + in_frames
    };
    if run.part.is_all() {
        serving.engine.drop_read_ahead();
    }
    let before = left();
    if before > 0 {
        shrink::wake(serving);
        wait_until(STEP_PATIENCE, || left() == 0);
    }
    let after = left();
    if after == 0 || after == before {
        give_back(run);
    }
    so_far(run, after == 0, after)
}

/// Give back the memory that moving pages out takes, and take a sample of what is left.
fn give_back(run: &Run) {
    if run.part.is_all() {
        run.serving.engine.compact(usize::MAX);
        run.serving.engine.give_frames_back();
    }
    run.part.count_slots();
    // The first sample may have begun before.
    for _ in 0..2 {
        let samples = run.serving.limit.samples();
        run.serving.limit.look_now();
        wait_until(STEP_PATIENCE, || run.serving.limit.samples() != samples);
    }
}

fn wake(run: &Arc<Run>) -> Result<Parked, OutOfStep> {
    if !run.serving.parking.wake() {
        return Err(OutOfStep);
    }
    set_pool(run, false);
    look_again(run);
    let woken = Arc::clone(run);
    // Without a thread each page comes when it is touched.
    let _ = threads::try_spawn("wake", move || bring_recent(&woken));
    Ok(done(run))
}

/// Bring back what was in memory before, the pages first that had come back early again and again.
fn bring_recent(run: &Run) {
    let serving = &run.serving;
    let since = serving.parking.since();
    for hot in [true, false] {
        for space in run.listening.spaces.all() {
            let mut server = FaultServer::new(serving, &space);
            let mut from = 0;
            while !space.has_ended() && may_bring(run) {
                let is_recent = |entry| {
                    let shadow = serving.engine.shadow(entry).unwrap_or_default();
                    gone_before(shadow) >= since && (heat_of(shadow) != Heat::COLD) == hot
                };
                match server.bring_recent(space.lock_thawed(), from, is_recent) {
                    Some(next) => from = next,
                    None => break,
                }
            }
        }
    }
}

/// Is there room for more, and does the run still go on?
fn may_bring(run: &Run) -> bool {
    let room = 2 * AREA_WINDOW_PAGES_MAX * PAGE_BYTES;
    let limit = &run.serving.limit;
    run.serving.parking.is_awake() && limit.has_room(room) && !limit.has_stopped()
}

/// Wait until it is so, or for `patience`. Is it so?
fn wait_until(patience: Duration, is_so: impl Fn() -> bool) -> bool {
    let since = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if since.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(PACE);
    }
}
