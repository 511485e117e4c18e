//! The agent's thread: sets up, then carries out the pager's commands until the process or the pager ends.
//!
//! A bare clone makes the thread. libc does not know it and goes on believing that the program has one thread. The
//! thread has its own descriptor table, root and current directory, no thread-local storage, and all signals blocked.
//! It must touch neither libc nor memory that could be evicted. Commands come one at a time; see `ring`.
//!
//! Unsafe is needed here because the thread's stack and the ring lie in a bare mapping, and only this file knows who
//! still uses them.

pub mod bare;
mod introduction;

use core::ptr;
use core::sync::atomic::Ordering;

pub use self::introduction::Origin;
use self::introduction::introduce;
use crate::base::die::die;
use crate::base::kernel::{self, Errno, end_like, exit_thread, futex_wake, process_id, thread_id};
use crate::base::rules;
use crate::commands;
use crate::ring::{CONFINED, LEFT_ALONE, Ring, TURNED_AWAY};
use crate::session::{Session, pair, socket};
use crate::state::handlers;
use crate::state::reservation::Reservation;
use crate::state::{STATE, phase};

/// Reserves the agent's memory and starts the thread. `STATE.phase` tells the outcome, see
/// [`crate::state::State::settled`].
pub fn start(origin: Origin) -> Result<(), Errno> {
    start_in(origin, Reservation::map()?)
}

/// Starts the thread in a reservation that is made already.
pub fn start_in(origin: Origin, reservation: Reservation) -> Result<(), Errno> {
    STATE.ring.store(ptr::null_mut(), Ordering::SeqCst);
    STATE.base.store(reservation.base(), Ordering::SeqCst);
    STATE.owner.store(process_id(), Ordering::SeqCst);
    STATE.phase.store(phase::STARTING, Ordering::SeqCst);
    // SAFETY: the stack is new and stays mapped, and `run` makes only system calls.
    let started = unsafe {
        bare::spawn(
            reservation.agent_stack_top(),
            ptr::null(),
            run,
            origin as usize,
        )
    };
    if started.is_err() {
        STATE.phase.store(phase::OFF, Ordering::SeqCst);
        // SAFETY: no thread was started, so nobody uses any of it.
        unsafe { reservation.give_up_all() };
    }
    started.map(|_| ())
}

extern "C" fn run(argument: usize) -> ! {
    let mut origin = Origin::from_argument(argument);
    let reservation = Reservation::at(STATE.base.load(Ordering::SeqCst));
    let mut session = set_up(origin, reservation);
    if origin == Origin::Inherited && matches!(session, Err(kernel::ENODATA)) {
        origin = Origin::Forked;
        session = set_up(origin, reservation);
    }
    match session {
        Ok((session, ring)) => {
            session.remember();
            STATE.agent_tid.store(thread_id(), Ordering::Relaxed);
            if STATE.is_attached() {
                // The process may have a filter already, and handlers from its parent.
                handlers::cover_all();
            }
            // Where the kernel tells of no forks, the program waits until the pager follows them (`op::FOLLOW`).
            if has_fork_events() || origin == Origin::Copied {
                STATE.enter(phase::ARMED);
            }
            serve(&session, ring, 0)
        }
        Err(_) if matches!(origin, Origin::Inherited | Origin::Copied) => {
            die(b"vswap-agent: no pager for a forked process with swapped memory, process killed\n")
        }
        Err(_) => {
            STATE.enter(phase::OFF);
            exit_thread()
        }
    }
}

/// Does the kernel tell the pager of this process's forks?
fn has_fork_events() -> bool {
    STATE.features.load(Ordering::SeqCst) & pair::FEATURE_FORK != 0
}

fn set_up(origin: Origin, reservation: Reservation) -> Result<(Session, &'static Ring), Errno> {
    match bare::connect_alone() {
        // From here on staging stays mapped, whatever happens: unmapping it could wait for somebody who reads events.
        Ok(socket) => introduce(origin, reservation, socket),
        Err(errno) => {
            if STATE.ring().is_none() {
                // SAFETY: there is no ring, and only this thread knows of staging.
                unsafe { reservation.give_up() };
            }
            Err(errno)
        }
    }
}

/// Starts a new thread of the agent in place of one that has left, in a process whose only thread is the caller.
/// Returns when the new thread has taken over.
///
/// # Safety
/// `STATE.descriptors` names descriptors of the calling thread, and no thread of the agent is left.
pub unsafe fn take_over() {
    const PACE_NANOSECONDS: u64 = 1_000_000;
    const TRIES: u32 = 10_000;
    STATE.phase.store(phase::STARTING, Ordering::SeqCst);
    let reservation = Reservation::at(STATE.base.load(Ordering::SeqCst));
    for _ in 0..TRIES {
        // SAFETY: nobody is left on the stack, the stack stays mapped, and `run_again` makes only system calls.
        let started =
            unsafe { bare::spawn(reservation.agent_stack_top(), ptr::null(), run_again, 0) };
        if started.is_ok() {
            STATE.settled();
            return;
        }
        // A thread may be available a little later.
        kernel::nap(PACE_NANOSECONDS);
    }
    die(b"vswap-agent: no thread to come back, process killed\n")
}

/// Body of a thread that goes on where the one before has left off.
extern "C" fn run_again(_: usize) -> ! {
    let session = Session::remembered(Reservation::at(STATE.base.load(Ordering::SeqCst)));
    let Some(ring) = STATE.ring() else {
        die(b"vswap-agent: internal error, process killed\n")
    };
    let [main, staging, socket, bell] =
        [session.main, session.staging, session.socket, session.bell];
    if bare::keep_descriptors(&[main, staging, socket, bell]).is_err() {
        die(b"vswap-agent: no descriptors to come back with, process killed\n");
    }
    bare::settle_in();
    session.silence();
    let tid = thread_id();
    STATE.agent_tid.store(tid, Ordering::Relaxed);
    ring.agent_tid.store(tid.cast_unsigned(), Ordering::SeqCst);
    STATE.enter(phase::ARMED);
    // A command that has come meanwhile is in the ring, whether its doorbell was rung or not.
    serve(&session, ring, ring.complete_seq.load(Ordering::SeqCst))
}

/// The command loop. Starts with the command after `completed`.
fn serve(session: &Session, ring: &Ring, mut completed: u32) -> ! {
    loop {
        let number = ring.command_seq.load(Ordering::Acquire);
        if number == completed {
            sleep(session, ring, completed);
            continue;
        }
        let result = commands::carry_out(session, ring);
        ring.result.store(result as i64, Ordering::Relaxed);
        completed = number;
        // Publishes the results. SeqCst, to pair with the pager: it raises pager_sleeps and then reads complete_seq.
        ring.complete_seq.store(completed, Ordering::SeqCst);
        if ring.pager_sleeps.swap(0, Ordering::SeqCst) != 0 {
            futex_wake(&ring.complete_seq);
        }
    }
}

/// Waits for the pager's doorbell unless a command has come meanwhile. Does not return if the pager is dead, or if a
/// program thread wants this one to leave.
fn sleep(session: &Session, ring: &Ring, completed: u32) {
    // SeqCst, to pair with the pager: it raises command_seq and then exchanges agent_sleeps.
    ring.agent_sleeps.store(1, Ordering::SeqCst);
    if ring.command_seq.load(Ordering::SeqCst) == completed {
        if session.is_asked_to_leave() {
            exit_thread();
        }
        match socket::receive_word(session.socket) {
            Ok([TURNED_AWAY, ..]) if has_nothing_to_lose(ring) => {
                // The ring stays mapped: program threads may be about to use it.
                STATE.enter(phase::LEFT);
                exit_thread();
            }
            Ok([LEFT_ALONE, signal, status]) if has_nothing_to_lose(ring) => {
                end_like([signal, status]);
            }
            Ok(_) => {}
            // The pager has left just when this process came.
            Err(_) if ring.heard.load(Ordering::SeqCst) == 0 && has_nothing_to_lose(ring) => {
                STATE.enter(phase::LEFT);
                exit_thread();
            }
            // Rule P7: what is swapped out must never read as zeros.
            Err(_) if rules::dies_with_pager() => {
                die(b"vswap-agent: vswap is gone, process killed\n")
            }
            Err(_) => exit_thread(),
        }
    }
    ring.agent_sleeps.store(0, Ordering::SeqCst);
}

/// Is nothing of the program's memory registered, and will nothing be?
fn has_nothing_to_lose(ring: &Ring) -> bool {
    matches!(ring.active.load(Ordering::SeqCst), 0 | CONFINED)
}
