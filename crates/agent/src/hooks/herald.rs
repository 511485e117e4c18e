//! The herald: a bare thread that tells the pager what a program thread is about to do, and lives as long as that
//! takes.
//!
//! It has a connection of its own, because the program's descriptor table stays untouched and may be full. There is one
//! herald at most, on a stack in the reservation. Whoever sends it holds the fork lock, with all signals blocked.

use core::sync::atomic::Ordering;

use crate::base::kernel::{Errno, exit_thread, futex_wait, futex_wake, process_id, random_word};
use crate::ring::{ACK, Hello, RING_MAGIC};
use crate::session::socket;
use crate::state::reservation::Reservation;
use crate::state::{STATE, phase};
use crate::thread::bare;

/// Values of `State::herald`.
mod stage {
    pub const IDLE: u32 = 0;
    /// On its way to the pager.
    pub const STARTED: u32 = 1;
    /// The pager is ready for the fork.
    pub const ACKNOWLEDGED: u32 = 2;
    /// The pager did not answer.
    pub const FAILED: u32 = 3;
    /// The fork is over.
    pub const DISMISSED: u32 = 4;
}

/// Keeps out forks, and other work that needs the herald. Call with signals blocked.
pub fn lock() {
    let word = &STATE.fork_lock;
    if word
        .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
    {
        return;
    }
    while word.swap(2, Ordering::Acquire) != 0 {
        futex_wait(word, 2);
    }
}

/// Releases the fork lock.
pub fn unlock() {
    if STATE.fork_lock.swap(0, Ordering::Release) == 2 {
        futex_wake(&STATE.fork_lock);
    }
}

/// Waits until the herald's stack is free. The herald of the last fork may still be on its way out.
pub fn await_stack() {
    loop {
        let alive = STATE.herald_alive.load(Ordering::SeqCst);
        if alive == 0 {
            break;
        }
        futex_wait(&STATE.herald_alive, alive);
    }
}

/// Tells the pager something and waits until the pager has heard it. Call with the lock held and signals blocked.
pub fn tell(kind: u32) {
    let is_here = STATE.owner.load(Ordering::Relaxed) == process_id();
    if is_here && !STATE.is_copy() && STATE.settled() == phase::ARMED && announce(kind) == Ok(true)
    {
        dismiss();
    }
}

/// Sends the herald and waits for the pager's answer. May block.
///
/// # Errors
/// There is no thread for the herald: EAGAIN, or EINVAL where children live in another pid namespace.
pub fn announce(kind: u32) -> Result<bool, Errno> {
    await_stack();
    STATE.herald_kind.store(kind, Ordering::SeqCst);
    STATE.fork_token.store(random_word(), Ordering::SeqCst);
    STATE.herald.store(stage::STARTED, Ordering::SeqCst);
    STATE.herald_alive.store(1, Ordering::SeqCst);
    let stack_top = Reservation::at(STATE.base.load(Ordering::Relaxed)).herald_stack_top();
    // SAFETY: the stack is the herald's and no herald is alive. `run_herald` makes only system calls. Unsafe because
    // only a bare clone makes a thread that libc does not know.
    let started = unsafe { bare::spawn(stack_top, &raw const STATE.herald_alive, run_herald, 0) };
    let tid = started.inspect_err(|_| STATE.herald_alive.store(0, Ordering::SeqCst))?;
    STATE.herald_tid.store(tid, Ordering::Relaxed);
    loop {
        match STATE.herald.load(Ordering::SeqCst) {
            stage::STARTED => futex_wait(&STATE.herald, stage::STARTED),
            state => return Ok(state == stage::ACKNOWLEDGED),
        }
    }
}

/// Sends the herald away: what it has announced is over.
pub fn dismiss() {
    STATE.herald.store(stage::DISMISSED, Ordering::SeqCst);
    futex_wake(&STATE.herald);
}

/// Body of the herald. The end of its thread closes its connection, which tells the pager that the fork is over.
extern "C" fn run_herald(_: usize) -> ! {
    let greeting = Hello {
        magic: RING_MAGIC,
        kind: STATE.herald_kind.load(Ordering::SeqCst),
        pid: process_id(),
        fork: STATE.fork_token.load(Ordering::SeqCst),
        ..Hello::default()
    };
    let answer = bare::connect_alone().and_then(|socket| {
        socket::send_hello(socket, &greeting, &[])?;
        socket::receive_byte(socket)
    });
    let acknowledged = answer == Ok(ACK);
    let state = if acknowledged {
        stage::ACKNOWLEDGED
    } else {
        stage::FAILED
    };
    STATE.herald.store(state, Ordering::SeqCst);
    futex_wake(&STATE.herald);
    while STATE.herald.load(Ordering::SeqCst) == stage::ACKNOWLEDGED {
        futex_wait(&STATE.herald, stage::ACKNOWLEDGED);
    }
    exit_thread()
}

/// Forgets the parent's herald, in a forked child.
pub fn forget() {
    STATE.herald.store(stage::IDLE, Ordering::Relaxed);
    STATE.herald_alive.store(0, Ordering::Relaxed);
    STATE.herald_tid.store(0, Ordering::Relaxed);
}
