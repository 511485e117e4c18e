//! The hooks around fork: the pager is told before it, and the child is under a pager before it runs on.
//!
//! `prepare` runs last before the fork and `child` first after it, with all signals blocked and the fork lock held in
//! between. As long as nothing is registered a fork is counted and no more, and the child begins like a fresh program.
//! Otherwise the herald, a bare thread that lives as long as the fork, announces it on a connection of its own (the
//! program's descriptor table stays untouched, and may be full). vfork and posix_spawn come by without hooks, and need
//! none.

use core::sync::atomic::Ordering;

use crate::die::die;
use crate::kernel::{
    block_signals, exit_thread, futex_wait, futex_wake, process_id, random_word, restore_signals,
};
use crate::reservation::Reservation;
use crate::ring::{ACK, Hello, RING_MAGIC, hello};
use crate::socket;
use crate::state::{STATE, phase};
use crate::thread::{self, Origin};
use crate::threads;

/// Values of `State::fork_mode`.
mod mode {
    /// There is no agent here.
    pub const OFF: u32 = 0;
    /// Nothing is registered.
    pub const QUIET: u32 = 1;
    /// The pager has been told and knows what to do.
    pub const ANNOUNCED: u32 = 2;
    /// The pager could not be told: the child must not live.
    pub const BROKEN: u32 = 3;
}

/// Values of `State::herald`.
mod herald {
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

/// Before the fork, in the forking thread.
pub extern "C" fn prepare() {
    let signals = block_signals();
    lock();
    STATE.fork_signals.store(signals, Ordering::Relaxed);
    STATE.fork_mode.store(begin(), Ordering::Relaxed);
}

fn begin() -> u32 {
    // A child that was made without hooks has a copy of its parent's state but no agent.
    if STATE.settled() != phase::ARMED || STATE.owner.load(Ordering::Relaxed) != process_id() {
        return mode::OFF;
    }
    let Some(ring) = STATE.ring() else {
        return mode::OFF;
    };
    // Against the pager, which sets `active` and then waits for `forks` to be 0.
    ring.forks.fetch_add(1, Ordering::SeqCst);
    if ring.active.load(Ordering::SeqCst) == 0 {
        return mode::QUIET;
    }
    ring.forks.fetch_sub(1, Ordering::SeqCst);
    if announce() {
        mode::ANNOUNCED
    } else {
        mode::BROKEN
    }
}

/// After the fork, in the parent, also when it failed.
pub extern "C" fn parent() {
    match STATE.fork_mode.load(Ordering::Relaxed) {
        mode::QUIET => {
            // The ring is shared with the child: the fork is counted down once, here.
            if let Some(ring) = STATE.ring() {
                ring.forks.fetch_sub(1, Ordering::SeqCst);
            }
        }
        mode::ANNOUNCED => dismiss(),
        _ => {}
    }
    end();
}

/// After the fork, in the child, whose only thread this is.
pub extern "C" fn child() {
    let origin = match STATE.fork_mode.load(Ordering::Relaxed) {
        mode::OFF => {
            STATE.phase.store(phase::OFF, Ordering::Relaxed);
            None
        }
        mode::QUIET => Some(Origin::Forked),
        mode::ANNOUNCED => Some(Origin::Inherited),
        _ => die(b"vswap-agent: vswap was not ready for a fork, child killed\n"),
    };
    if let Some(origin) = origin {
        let old = Reservation::at(STATE.base.load(Ordering::Relaxed));
        STATE.ring.store(core::ptr::null_mut(), Ordering::SeqCst);
        // Who forked, even if it has exited since: getppid would then name somebody else.
        STATE
            .parent
            .store(STATE.owner.load(Ordering::Relaxed), Ordering::Relaxed);
        STATE.herald.store(herald::IDLE, Ordering::Relaxed);
        STATE.herald_alive.store(0, Ordering::Relaxed);
        threads::forget_others();
        // SAFETY: this is the child's only thread, and the ring's pointer is gone.
        unsafe { old.forsake() };
        threads::pin_self();
        let started = thread::start(origin).is_ok();
        // Without the agent the pager cannot look after the memory; with nothing registered it need not.
        if origin == Origin::Inherited && (!started || STATE.settled() != phase::ARMED) {
            die(b"vswap-agent: no thread for a forked process with swapped memory, process killed\n");
        }
    }
    end();
}

fn end() {
    let signals = STATE.fork_signals.load(Ordering::Relaxed);
    unlock();
    restore_signals(signals);
}

/// Sends the herald and waits for the pager's answer. May block.
fn announce() -> bool {
    // The herald of the last fork may still be on its way out, on the same stack.
    loop {
        let alive = STATE.herald_alive.load(Ordering::SeqCst);
        if alive == 0 {
            break;
        }
        futex_wait(&STATE.herald_alive, alive);
    }
    STATE.fork_token.store(random_word(), Ordering::SeqCst);
    STATE.herald.store(herald::STARTED, Ordering::SeqCst);
    STATE.herald_alive.store(1, Ordering::SeqCst);
    let stack_top = Reservation::at(STATE.base.load(Ordering::Relaxed)).herald_stack_top();
    // SAFETY: the stack is the herald's, and no herald is alive; `run_herald` keeps to system calls.
    let started = unsafe { thread::spawn(stack_top, &raw const STATE.herald_alive, run_herald, 0) };
    if started.is_err() {
        STATE.herald_alive.store(0, Ordering::SeqCst);
        return false;
    }
    loop {
        match STATE.herald.load(Ordering::SeqCst) {
            herald::STARTED => futex_wait(&STATE.herald, herald::STARTED),
            state => return state == herald::ACKNOWLEDGED,
        }
    }
}

fn dismiss() {
    STATE.herald.store(herald::DISMISSED, Ordering::SeqCst);
    futex_wake(&STATE.herald);
}

/// Body of the herald. The end of its connection, which is the end of the thread, says that the fork is over.
extern "C" fn run_herald(_: usize) -> ! {
    let greeting = Hello {
        magic: RING_MAGIC,
        kind: hello::FORK_BEGIN,
        pid: process_id(),
        fork: STATE.fork_token.load(Ordering::SeqCst),
        ..Hello::default()
    };
    let answer = thread::connect_alone().and_then(|socket| {
        socket::send_hello(socket, &greeting, &[])?;
        socket::receive_byte(socket)
    });
    let acknowledged = answer == Ok(ACK);
    let state = if acknowledged {
        herald::ACKNOWLEDGED
    } else {
        herald::FAILED
    };
    STATE.herald.store(state, Ordering::SeqCst);
    futex_wake(&STATE.herald);
    while STATE.herald.load(Ordering::SeqCst) == herald::ACKNOWLEDGED {
        futex_wait(&STATE.herald, herald::ACKNOWLEDGED);
    }
    exit_thread()
}

fn lock() {
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

fn unlock() {
    if STATE.fork_lock.swap(0, Ordering::Release) == 2 {
        futex_wake(&STATE.fork_lock);
    }
}
