//! The hooks around fork. The pager hears of a fork before it happens, and the child is under a pager before it runs
//! on.
//!
//! `prepare` is the last hook to run before the fork, and `child` the first after it. In between all signals are
//! blocked and this thread holds the fork lock. As long as nothing is registered, a fork is only counted, and the child
//! begins like a fresh program. Otherwise the herald, a bare thread that lives as long as the fork, announces the fork.
//! It has a connection of its own, because the program's descriptor table stays untouched and may be full. vfork and
//! posix_spawn do not run the hooks, and need none.
//!
//! A child that was made without the hooks has a copy of the state here, taken at any moment: the lock may be held, or
//! a fork under way. Such a child has no agent. Its hooks do nothing, and of the state they write only `fork_mode`.

use core::sync::atomic::Ordering;

use crate::die::die;
use crate::kernel::{
    block_signals, exit_thread, futex_wait, futex_wake, process_id, random_word, restore_signals,
};
use crate::reservation::Reservation;
use crate::ring::{ACK, CONFINED, Hello, RING_MAGIC, hello};
use crate::socket;
use crate::state::{STATE, phase};
use crate::thread::{self, Origin};

/// Values of `State::fork_mode`.
mod mode {
    /// There is no agent here.
    pub const OFF: u32 = 0;
    /// Nothing is registered, so the fork was only counted.
    pub const QUIET: u32 = 1;
    /// The pager has been told and knows what to do.
    pub const ANNOUNCED: u32 = 2;
    /// The pager could not be told: the child must not live.
    pub const BROKEN: u32 = 3;
    /// This process is a copy, and its children are copies too.
    pub const COPY: u32 = 4;
    /// The process has a seccomp filter of its own. The child gets no agent: its agent might be killed for its first
    /// call.
    pub const BARE: u32 = 5;
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
    if STATE.is_copy() {
        // Several threads of a copy may be here at the same time; all of them store the same value.
        STATE.fork_mode.store(mode::COPY, Ordering::Relaxed);
        return;
    }
    let signals = block_signals();
    lock();
    STATE.fork_signals.store(signals, Ordering::Relaxed);
    STATE.fork_mode.store(begin(), Ordering::Relaxed);
}

fn begin() -> u32 {
    // A child of vfork shares its parent's memory, but the pager knows only the parent.
    if STATE.settled() != phase::ARMED || STATE.owner.load(Ordering::Relaxed) != process_id() {
        return mode::OFF;
    }
    let Some(ring) = STATE.ring() else {
        return mode::OFF;
    };
    // Pairs with the pager, which sets `active` and then waits for `forks` to be 0.
    ring.forks.fetch_add(1, Ordering::SeqCst);
    let active = ring.active.load(Ordering::SeqCst);
    if active == 0 {
        return mode::QUIET;
    }
    ring.forks.fetch_sub(1, Ordering::SeqCst);
    if active == CONFINED {
        return mode::OFF;
    }
    if STATE.sandboxed.load(Ordering::SeqCst) != 0 {
        return mode::BARE;
    }
    if announce(hello::FORK_BEGIN) {
        mode::ANNOUNCED
    } else {
        mode::BROKEN
    }
}

/// After the fork, in the parent; also when the fork failed.
pub extern "C" fn parent() {
    match STATE.fork_mode.load(Ordering::Relaxed) {
        mode::QUIET => {
            // The ring is shared with the child. The parent alone counts the fork down.
            if let Some(ring) = STATE.ring() {
                ring.forks.fetch_sub(1, Ordering::SeqCst);
            }
        }
        mode::ANNOUNCED => dismiss(),
        mode::COPY => return,
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
        // The child goes on as a copy.
        mode::BARE => None,
        mode::QUIET if STATE.sandboxed.load(Ordering::SeqCst) != 0 => None,
        mode::QUIET => Some(Origin::Forked),
        mode::ANNOUNCED => Some(Origin::Inherited),
        mode::COPY => return,
        _ => die(b"vswap-agent: vswap was not ready for a fork, child killed\n"),
    };
    if let Some(origin) = origin {
        let old = Reservation::at(STATE.base.load(Ordering::Relaxed));
        STATE.ring.store(core::ptr::null_mut(), Ordering::SeqCst);
        // The process that forked, even if it has exited since: getppid would then name another process.
        STATE
            .parent
            .store(STATE.owner.load(Ordering::Relaxed), Ordering::Relaxed);
        STATE.herald.store(herald::IDLE, Ordering::Relaxed);
        STATE.herald_alive.store(0, Ordering::Relaxed);
        STATE.herald_tid.store(0, Ordering::Relaxed);
        STATE.phase.store(phase::OFF, Ordering::Relaxed);
        STATE.base.store(0, Ordering::Relaxed);
        // SAFETY: this is the child's only thread, and it has forgotten where the ring and the birthmark are.
        unsafe { old.forsake() };
        let started = thread::start(origin).is_ok();
        // Without an agent the pager cannot manage the memory. If nothing is registered it need not.
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

/// Waits until the herald's stack is free. The herald of the last fork may still be on its way out.
pub fn await_herald() {
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
    if is_here && !STATE.is_copy() && STATE.settled() == phase::ARMED && announce(kind) {
        dismiss();
    }
}

/// Sends the herald and waits for the pager's answer. May block.
fn announce(kind: u32) -> bool {
    await_herald();
    STATE.herald_kind.store(kind, Ordering::SeqCst);
    STATE.fork_token.store(random_word(), Ordering::SeqCst);
    STATE.herald.store(herald::STARTED, Ordering::SeqCst);
    STATE.herald_alive.store(1, Ordering::SeqCst);
    let stack_top = Reservation::at(STATE.base.load(Ordering::Relaxed)).herald_stack_top();
    // SAFETY: the stack is the herald's and no herald is alive. `run_herald` makes only system calls. Unsafe because
    // only a bare clone makes a thread that libc does not know.
    let started = unsafe { thread::spawn(stack_top, &raw const STATE.herald_alive, run_herald, 0) };
    let Ok(tid) = started else {
        STATE.herald_alive.store(0, Ordering::SeqCst);
        return false;
    };
    STATE.herald_tid.store(tid, Ordering::Relaxed);
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

/// Body of the herald. The end of its thread closes its connection, which tells the pager that the fork is over.
extern "C" fn run_herald(_: usize) -> ! {
    let greeting = Hello {
        magic: RING_MAGIC,
        kind: STATE.herald_kind.load(Ordering::SeqCst),
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
