//! What the agent remembers: one static, all of it atomic words.
//!
//! It lies in `.data`, whose pages are file backed and so never evicted: the agent's thread must not wait for a fault
//! that the pager may be unable to serve while it waits for the agent. Written by `init`, by the agent's thread while
//! it sets up, and by the fork hooks under the fork lock.

use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::kernel;
use crate::ring::Ring;

/// Values of `State::phase`.
pub mod phase {
    /// The constructor has not run yet.
    pub const UNBORN: u32 = 0;
    /// There is no agent in this process.
    pub const OFF: u32 = 1;
    /// The agent's thread is setting up.
    pub const STARTING: u32 = 2;
    /// The ring is there and the pager knows the process.
    pub const ARMED: u32 = 3;
}

/// Longest path of the pager's socket: `sun_path` less the zero that ends it.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
const SOCKET_PATH_WORDS: usize = SOCKET_PATH_BYTES_MAX.div_ceil(8);
/// Control blocks that can be recorded before the ring is there: libraries that start threads in constructors.
const EARLY_PINS_MAX: usize = 64;
/// Threads that may be between `pthread_create` and their first instruction; more go without a trampoline.
pub const STARTS_MAX: usize = 64;

/// What a new thread is to run.
#[derive(Debug)]
pub struct Start {
    /// 1 from the call of `pthread_create` until the thread has read the rest.
    pub claimed: AtomicU32,
    /// The program's routine.
    pub routine: AtomicUsize,
    /// The routine's argument.
    pub argument: AtomicUsize,
}

impl Start {
    const fn free() -> Self {
        Self {
            claimed: AtomicU32::new(0),
            routine: AtomicUsize::new(0),
            argument: AtomicUsize::new(0),
        }
    }
}

/// The agent's memory.
#[derive(Debug)]
pub struct State {
    /// One of `phase::*`; a futex while it is STARTING.
    pub phase: AtomicU32,
    /// Process that armed the agent. A child that was made without the hooks has the parent's state and must not use
    /// it.
    pub owner: AtomicI32,
    /// Process that forked this one, for a child.
    pub parent: AtomicI32,
    /// The ring; null before the agent is armed. Published after the ring is initialised.
    pub ring: AtomicPtr<Ring>,
    /// Lowest address of the reservation.
    pub base: AtomicUsize,
    /// Features of the main userfaultfd. A child that inherits it needs them again.
    pub features: AtomicU64,
    /// libc's `pthread_create`; 0 until it is looked up.
    pub pthread_create: AtomicUsize,
    /// Path of the pager's socket. Written once by `init`, before any other thread of the agent exists.
    pub socket_path: [AtomicU64; SOCKET_PATH_WORDS],
    /// Bytes of `socket_path`.
    pub socket_path_bytes: AtomicUsize,

    /// Held from prepare to the end of the fork: 0 free, 1 held, 2 held and waited for.
    pub fork_lock: AtomicU32,
    /// How this fork goes, one of `fork::mode::*`. Protected by `fork_lock`.
    pub fork_mode: AtomicU32,
    /// Names the fork under way, or the last one. Protected by `fork_lock`.
    pub fork_token: AtomicU64,
    /// Signal mask of the forking thread. Protected by `fork_lock`.
    pub fork_signals: AtomicU64,
    /// Where the herald is, one of `fork::herald::*`; a futex.
    pub herald: AtomicU32,
    /// Not 0 while the herald's thread runs; the kernel clears and wakes it.
    pub herald_alive: AtomicU32,

    /// Control blocks recorded before the ring was there.
    pub early_pins: [AtomicU64; EARLY_PINS_MAX],
    /// Threads about to start.
    pub starts: [Start; STARTS_MAX],
}

/// The one and only.
#[unsafe(link_section = ".data")]
pub static STATE: State = State {
    phase: AtomicU32::new(phase::UNBORN),
    owner: AtomicI32::new(0),
    parent: AtomicI32::new(0),
    ring: AtomicPtr::new(ptr::null_mut()),
    base: AtomicUsize::new(0),
    features: AtomicU64::new(0),
    pthread_create: AtomicUsize::new(0),
    socket_path: [const { AtomicU64::new(0) }; SOCKET_PATH_WORDS],
    socket_path_bytes: AtomicUsize::new(0),
    fork_lock: AtomicU32::new(0),
    fork_mode: AtomicU32::new(0),
    fork_token: AtomicU64::new(0),
    fork_signals: AtomicU64::new(0),
    herald: AtomicU32::new(0),
    herald_alive: AtomicU32::new(0),
    early_pins: [const { AtomicU64::new(0) }; EARLY_PINS_MAX],
    starts: [const { Start::free() }; STARTS_MAX],
};

impl State {
    /// The ring, once the agent is armed.
    pub fn ring(&self) -> Option<&'static Ring> {
        // SAFETY: the pointer is null or names the mapped ring, whose fields are all atomic. It is unmapped in a forked
        // child only, by the fork hook, after the pointer was made null.
        unsafe { self.ring.load(Ordering::SeqCst).as_ref() }
    }

    /// Moves on to `phase` and wakes whoever waits for the end of STARTING.
    pub fn enter(&self, phase: u32) {
        self.phase.store(phase, Ordering::SeqCst);
        kernel::futex_wake(&self.phase);
    }

    /// Waits until the agent's thread has set up or given up, and returns the phase. May block.
    pub fn settled(&self) -> u32 {
        loop {
            let phase = self.phase.load(Ordering::SeqCst);
            if phase != phase::STARTING {
                return phase;
            }
            kernel::futex_wait(&self.phase, phase::STARTING);
        }
    }
}
