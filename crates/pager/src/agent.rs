//! The pager's end of one agent: commands over the shared ring.
//!
//! One command is under way at a time; whoever wants a sequence of them without others in between (an eviction
//! batch, a fork) holds the `Slot`. Lock order: slot before space lock. The agent never touches a pager lock.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use vswap_sys::futex;
use vswap_sys::memory::RingMap;
use vswap_sys::ring::{DOORBELL, MOVE_RUNS_MAX, PINS_MAX, Ring};
use vswap_sys::sock::{SockError, Stream, Wait};

use crate::lock::{Mutex, MutexGuard, Row};
use crate::run::PageRun;

/// Turns of looking at `complete_seq` before the pager sleeps on it: about what a 64-page move takes when the agent
/// runs on the other CPU.
const SPIN_TURNS: u32 = 200;
/// How long one sleep on `complete_seq` lasts before the pager looks whether the process still lives.
const WAIT_STEP: Duration = Duration::from_millis(20);

/// The process has gone; its space ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the process and its agent are gone")]
pub struct AgentGone;

/// One process's agent.
#[derive(Debug)]
pub struct Agent {
    ring: RingMap,
    socket: Stream,
    slot: Mutex<()>,
    gone: AtomicBool,
    /// The agent's own thread: its faults are served whatever the limit says.
    pub tid: i32,
    /// Pages that belong to the agent.
    pub own_pages: PageRun,
    /// Address of staging.
    pub staging: u64,
}

/// The right to give commands.
#[derive(Debug)]
pub struct Slot<'a> {
    agent: &'a Agent,
    posted: u32,
    _held: MutexGuard<'a, ()>,
}

impl Agent {
    /// An agent that has said hello.
    pub fn new(ring: RingMap, socket: Stream, tid: i32, own_pages: PageRun, staging: u64) -> Agent {
        let slot = Mutex::new(Row::AgentSlot, "an agent's slot", ());
        Agent {
            ring,
            socket,
            slot,
            gone: AtomicBool::new(false),
            tid,
            own_pages,
            staging,
        }
    }

    /// Wait for the right to give commands.
    pub fn slot(&self) -> Slot<'_> {
        let held = self.slot.lock();
        Slot {
            agent: self,
            posted: self.ring().command_seq.load(Ordering::Relaxed),
            _held: held,
        }
    }

    /// The process has ended: let whoever waits for an answer go.
    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Its socket, for noticing its end.
    pub fn socket(&self) -> &Stream {
        &self.socket
    }

    /// Tell fork hooks that the space is active. False while a fork that saw it inactive is under way: try later.
    pub fn announce_active(&self) -> bool {
        // SeqCst on both words, against the hook that raises `forks` and then reads `active`.
        self.ring().active.store(1, Ordering::SeqCst);
        if self.ring().forks.load(Ordering::SeqCst) == 0 {
            return true;
        }
        self.ring().active.store(0, Ordering::SeqCst);
        false
    }

    /// Addresses of thread control blocks that the agent has recorded so far.
    pub fn pins(&self) -> impl Iterator<Item = u64> + '_ {
        let count =
            usize::try_from(self.ring().pin_count.load(Ordering::Acquire)).unwrap_or(PINS_MAX);
        self.ring()
            .pins
            .iter()
            .take(count)
            .map(|pin| pin.load(Ordering::Acquire))
            .filter(|&a| a != 0)
    }

    /// How many control blocks were ever recorded; more than `PINS_MAX` means that some are lost.
    pub fn pin_count(&self) -> u32 {
        self.ring().pin_count.load(Ordering::Acquire)
    }

    fn ring(&self) -> &Ring {
        &self.ring
    }
}

impl Slot<'_> {
    /// Give a command and wait for its result.
    ///
    /// # Errors
    /// `AgentGone` when the process ended before it answered.
    pub fn call(&mut self, op: u32, args: &[u64], runs: &[PageRun]) -> Result<i64, AgentGone> {
        self.post(op, args, runs)?;
        self.wait()
    }

    /// Give a command without waiting. The one before must be complete or is waited for.
    ///
    /// # Errors
    /// `AgentGone`.
    pub fn post(&mut self, op: u32, args: &[u64], runs: &[PageRun]) -> Result<(), AgentGone> {
        debug_assert!(runs.len() <= MOVE_RUNS_MAX);
        self.wait()?;
        let ring = self.agent.ring();
        ring.op.store(op, Ordering::Relaxed);
        for (place, arg) in ring.args.iter().zip(args) {
            place.store(*arg, Ordering::Relaxed);
        }
        for (place, run) in ring.runs.iter().zip(runs) {
            place.address.store(run.address(), Ordering::Relaxed);
            place.pages.store(run.pages, Ordering::Relaxed);
        }
        let count = u32::try_from(runs.len()).unwrap_or(0);
        ring.run_count.store(count, Ordering::Relaxed);
        self.posted = self.posted.wrapping_add(1);
        // Release: the agent reads the command after it has seen this number. SeqCst against `agent_sleeps`.
        ring.command_seq.store(self.posted, Ordering::SeqCst);
        if ring.agent_sleeps.swap(0, Ordering::SeqCst) == 1 {
            // A full socket has a doorbell in it already; a dead one shows in `wait`.
            let _ = self.agent.socket.send(&DOORBELL, &[], Wait::No);
        }
        Ok(())
    }

    /// Wait until the posted command is complete.
    ///
    /// # Errors
    /// `AgentGone`.
    pub fn wait(&mut self) -> Result<i64, AgentGone> {
        let ring = self.agent.ring();
        for _ in 0..SPIN_TURNS {
            if ring.complete_seq.load(Ordering::Acquire) == self.posted {
                return Ok(ring.result.load(Ordering::Relaxed));
            }
            std::hint::spin_loop();
        }
        loop {
            ring.pager_sleeps.store(1, Ordering::SeqCst);
            let seen = ring.complete_seq.load(Ordering::SeqCst);
            if seen == self.posted {
                ring.pager_sleeps.store(0, Ordering::Relaxed);
                return Ok(ring.result.load(Ordering::Relaxed));
            }
            if self.agent.gone.load(Ordering::Acquire) {
                return Err(AgentGone);
            }
            sleep_on(&ring.complete_seq, seen);
        }
    }

    /// Where the break was before the last BRK.
    pub fn break_before(&self) -> u64 {
        self.agent.ring().before.load(Ordering::Relaxed)
    }

    /// errno of the `index`-th page of the last MOVE_OUT, 0 where it moved.
    pub fn page_errno(&self, index: usize) -> i32 {
        self.agent
            .ring()
            .page_errno
            .get(index)
            .map_or(-1, |errno| errno.load(Ordering::Relaxed))
    }

    /// A descriptor that the agent sends beside its result.
    ///
    /// # Errors
    /// What the socket said, or that nothing came.
    pub fn receive_descriptor(&self) -> Result<OwnedFd, SockError> {
        let (_, mut descriptors) = self.agent.socket.recv::<u8>(Wait::No)?;
        descriptors.take(0).ok_or(SockError::DescriptorsLost)
    }
}

fn sleep_on(word: &AtomicU32, seen: u32) {
    // Woken, timed out or changed: the caller looks again in every case.
    let _ = futex::wait(word, seen, Some(WAIT_STEP));
}
