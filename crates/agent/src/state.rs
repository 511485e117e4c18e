//! What the agent remembers: one static, all of it atomic words.
//!
//! The static lies in `.data`, whose pages are file backed and so never evicted. The agent's thread must not wait for a
//! fault: the pager may be unable to serve it while the pager waits for the agent. `entry` writes the static, as do the
//! agent's thread while it sets up, and the fork hooks under the fork lock.

pub mod reservation;
pub mod handlers;

use core::ptr;
use core::sync::atomic::{
    AtomicI32, AtomicIsize, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use self::reservation::Reservation;
use crate::base::kernel;
use crate::ring::{Ring, SOCKET_PATH_BYTES_MAX};

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
    /// The pager has let go of the process, which was ARMED. Nothing of its memory is registered.
    pub const LEFT: u32 = 4;
}

/// Room for the path of the agent's file. The file lies beside the socket, or is a descriptor of vswap's.
const AGENT_PATH_BYTES: usize = 128;
const SOCKET_PATH_WORDS: usize = SOCKET_PATH_BYTES_MAX.div_ceil(8);

/// Number of descriptors that the agent's thread holds: both userfaultfds, the connection, the bell.
pub const DESCRIPTORS: usize = 4;
/// Stands for a descriptor that could not be had. The kernel knows no such number.
pub const NO_DESCRIPTOR: usize = u32::MAX as usize;

/// The agent's state.
#[derive(Debug)]
pub struct State {
    /// One of `phase::*`. A futex while it is STARTING.
    pub phase: AtomicU32,
    /// Process that armed the agent: the pid that it has in its own namespace.
    pub owner: AtomicI32,
    /// In a child: the process that forked it.
    pub parent: AtomicI32,
    /// The ring; null before the agent is armed. Stored after the ring is initialised.
    pub ring: AtomicPtr<Ring>,
    /// Lowest address of the reservation.
    pub base: AtomicUsize,
    /// Features of the main userfaultfd. A child that inherits it needs them again.
    pub features: AtomicU64,
    /// Id of the agent's thread.
    pub agent_tid: AtomicI32,
    /// The descriptors of a `Session`, in the agent's own table. While another thread takes over, they are
    /// numbers of the program's table.
    pub descriptors: [AtomicUsize; DESCRIPTORS],
    /// libc's `dl_iterate_phdr`; 0 until it is looked up.
    pub dl_iterate_phdr: AtomicUsize,
    /// libc's `clone`; 0 until it is looked up.
    pub libc_clone: AtomicUsize,
    /// libc's `_Fork`; 0 until it is looked up, and for good in a libc that has none.
    pub libc_fork: AtomicUsize,
    /// Path of the pager's socket. Written once by `init`, before any other thread of the agent exists.
    pub socket_path: [AtomicU64; SOCKET_PATH_WORDS],
    /// Bytes of `socket_path`.
    pub socket_path_length: AtomicUsize,

    /// Bytes of the agent's image before the reservation, where it was attached from outside; else 0.
    pub image_bytes: AtomicUsize,
    /// Where the entry of `attached` is.
    pub entry: AtomicUsize,
    /// Where the stack of that entry ends.
    pub entry_stack: AtomicUsize,
    /// Not 0 if forks stop in the filter and the pager follows them, because the kernel tells of none.
    pub follows: AtomicU32,

    /// Path of the agent's own file as the loader was given it, with a zero at the end; empty if it is not known.
    pub agent_path: [AtomicU8; AGENT_PATH_BYTES],

    /// Held from `prepare` to the end of the fork: 0 free, 1 held, 2 held and waited for.
    pub fork_lock: AtomicU32,
    /// How this fork goes, one of `mode::*` in `hooks/fork.rs`. Protected by `fork_lock`.
    pub fork_mode: AtomicU32,
    /// Token of the fork under way, or of the last one. Protected by `fork_lock`.
    pub fork_token: AtomicU64,
    /// Signal mask of the forking thread. Protected by `fork_lock`.
    pub fork_signals: AtomicU64,
    /// What the herald tells the pager, one of `hello::*`. Protected by `fork_lock`.
    pub herald_kind: AtomicU32,
    /// Not 0 once the program has installed a seccomp filter of its own. Threads and children that it makes afterwards
    /// may not make the calls that the agent makes.
    pub sandboxed: AtomicU32,
    /// How far the herald is, one of `stage::*` in `hooks/herald.rs`. A futex.
    pub herald: AtomicU32,
    /// Not 0 while the herald's thread runs. The kernel clears it and wakes the futex.
    pub herald_alive: AtomicU32,
    /// Thread id of the last herald; 0 without one. Protected by `fork_lock`.
    pub herald_tid: AtomicI32,
    /// The call that the agent steps aside for: number and two arguments. Protected by `fork_lock`.
    pub alone_call: [AtomicUsize; 3],
    /// What that call returned. Protected by `fork_lock`.
    pub alone_returned: AtomicIsize,
}

/// The only one.
#[unsafe(link_section = ".data")]
pub static STATE: State = State {
    phase: AtomicU32::new(phase::UNBORN),
    owner: AtomicI32::new(0),
    parent: AtomicI32::new(0),
    ring: AtomicPtr::new(ptr::null_mut()),
    base: AtomicUsize::new(0),
    features: AtomicU64::new(0),
    agent_tid: AtomicI32::new(0),
    descriptors: [const { AtomicUsize::new(NO_DESCRIPTOR) }; DESCRIPTORS],
    dl_iterate_phdr: AtomicUsize::new(0),
    libc_clone: AtomicUsize::new(0),
    libc_fork: AtomicUsize::new(0),
    socket_path: [const { AtomicU64::new(0) }; SOCKET_PATH_WORDS],
    socket_path_length: AtomicUsize::new(0),
    image_bytes: AtomicUsize::new(0),
    entry: AtomicUsize::new(0),
    entry_stack: AtomicUsize::new(0),
    follows: AtomicU32::new(0),
    agent_path: [const { AtomicU8::new(0) }; AGENT_PATH_BYTES],
    fork_lock: AtomicU32::new(0),
    fork_mode: AtomicU32::new(0),
    fork_token: AtomicU64::new(0),
    fork_signals: AtomicU64::new(0),
    herald_kind: AtomicU32::new(0),
    sandboxed: AtomicU32::new(0),
    herald: AtomicU32::new(0),
    herald_alive: AtomicU32::new(0),
    herald_tid: AtomicI32::new(0),
    alone_call: [const { AtomicUsize::new(0) }; 3],
    alone_returned: AtomicIsize::new(0),
};

impl State {
    /// Was the agent attached from outside? Then no function of libc has a hook.
    pub fn is_attached(&self) -> bool {
        self.image_bytes.load(Ordering::Relaxed) != 0
    }

    /// Does the pager follow forks? Then the hooks of fork have nothing to do.
    pub fn is_followed(&self) -> bool {
        self.follows.load(Ordering::SeqCst) != 0
    }

    /// The path of the pager's socket.
    pub fn socket_path_bytes(&self) -> impl Iterator<Item = u8> {
        let length = self.socket_path_length.load(Ordering::Relaxed);
        self.socket_path
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .take(length.min(SOCKET_PATH_BYTES_MAX))
    }

    /// Keeps the path of the pager's socket, which has at most `SOCKET_PATH_BYTES_MAX` bytes.
    pub fn remember_socket_path(&self, path: &[u8]) {
        for (word, bytes) in self.socket_path.iter().zip(path.chunks(8)) {
            let mut value = [0; 8];
            for (to, from) in value.iter_mut().zip(bytes) {
                *to = *from;
            }
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        self.socket_path_length.store(path.len(), Ordering::Relaxed);
    }

    /// Keeps the path of the agent's file, if there is room for it.
    pub fn remember_agent_path(&self, path: &[u8]) {
        if path.len() < AGENT_PATH_BYTES {
            for (word, byte) in self.agent_path.iter().zip(path) {
                word.store(*byte, Ordering::Relaxed);
            }
        }
    }

    /// Address of the path of the agent's file.
    pub fn agent_path(&self) -> Option<usize> {
        let first = self.agent_path.first()?;
        (first.load(Ordering::Relaxed) != 0).then_some(first.as_ptr().addr())
    }

    /// Is this the path of the agent's file?
    pub fn is_agent_path(&self, path: &[u8]) -> bool {
        let known = self
            .agent_path
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed));
        known.take_while(|byte| *byte != 0).eq(path.iter().copied())
    }

    /// Is this process a child that was made without the hooks? Such a child has a copy of its parent's state, taken at
    /// any moment, but no agent. It may use none of the state and must not wait for it to change.
    pub fn is_copy(&self) -> bool {
        let base = self.base.load(Ordering::SeqCst);
        base != 0 && !Reservation::at(base).was_made_here()
    }

    /// The ring, once the agent is armed. None in a copy, whose ring is its parent's.
    pub fn ring(&self) -> Option<&'static Ring> {
        if self.is_copy() {
            return None;
        }
        // SAFETY: the pointer is null or points to the mapped ring. A shared reference is sound although the pager
        // writes the ring, because all fields are atomic. Only the fork hook unmaps it, in a child, after it made the
        // pointer null.
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
            // STARTING is stored after the base, so a copy that sees STARTING also sees that it is a copy.
            if phase != phase::STARTING || self.is_copy() {
                return phase;
            }
            kernel::futex_wait(&self.phase, phase::STARTING);
        }
    }

    /// Waits like `settled`. Has the pager taken this process in? It may have let go of it since.
    pub fn was_taken_in(&self) -> bool {
        matches!(self.settled(), phase::ARMED | phase::LEFT)
    }
}
