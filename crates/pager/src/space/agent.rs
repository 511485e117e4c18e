//! The pager's end of one agent: commands over the shared ring.
//!
//! One command is under way at a time. Whoever gives several commands and wants no others in between (an eviction
//! batch, a fork) holds the `Slot`. Lock order: slot before space lock. The agent never touches a lock of the pager.

use std::mem::offset_of;
use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use vswap_sys::memory::RingMap;
use vswap_sys::process::{ExitCode, task};
use vswap_sys::ring::{
    ACK, CONFINED, COPIED, DOORBELL, Hello, INHERITED, LEFT_ALONE, MOVE_RUNS_MAX, Ring,
    STAGING_PAGES, TURNED_AWAY,
};
use vswap_sys::seccomp::Listener;
use vswap_sys::sock::{SockError, Stream, Wait};

use crate::base::kernel::futex;
use crate::base::kernel::procmap::ProcMap;
use crate::base::lock::{Mutex, MutexGuard, Row};
use crate::base::page_run::{PAGE_BYTES, PAGES_END, PageRun};

/// How often the pager looks at `complete_seq` before it sleeps on it. It takes about as long as a 64-page move when
/// the agent runs on another CPU.
const SPIN_TURNS: u32 = if cfg!(test) { 1 } else { 200 };
/// How long one sleep on `complete_seq` lasts before the pager checks that the process still lives.
const WAIT_STEP: Duration = Duration::from_millis(20);

/// The largest errno.
const ERRNO_MAX: i64 = 4095;
/// No program has memory above this address, whatever its page tables.
const ADDRESS_MAX: i64 = 1 << 56;
const _: () = assert!(ADDRESS_MAX.cast_unsigned() == PAGES_END * PAGE_BYTES);

/// The process is gone, so its space ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the process and its agent are gone")]
pub struct AgentGone;

/// One process's agent.
#[derive(Debug)]
pub struct Agent {
    ring: RingMap,
    socket: Stream,
    slot: Mutex<Forks>,
    /// Signalled when a fork is over, and when the agent has its answer.
    slot_opens: Condvar,
    gone: AtomicBool,
    /// Thread id of the agent when it said hello.
    first_tid: i32,
    /// How many seccomp filters that thread had then.
    filters: Option<u32>,
    /// Pages that belong to the agent.
    pub own_pages: PageRun,
    /// Address of staging.
    pub staging: u64,
    /// Address of the ring.
    ring_address: u64,
}

/// What the slot waits for besides other commands.
#[derive(Debug, Default)]
struct Forks {
    /// An announced fork is under way, so pages stay where they are.
    is_open: bool,
    /// The agent of a forked child carries out nothing until it has the answer to its hello.
    is_owed_answer: bool,
}

/// The right to give commands.
#[derive(Debug)]
pub struct Slot<'a> {
    agent: &'a Agent,
    posted: u32,
    held: MutexGuard<'a, Forks>,
}

/// An announced fork. It ends when this is dropped.
#[derive(Debug)]
pub struct OpenFork<'a>(&'a Agent);

impl Drop for OpenFork<'_> {
    fn drop(&mut self) {
        self.0.slot.lock().is_open = false;
        self.0.slot_opens.notify_all();
    }
}

/// A fork that need not be announced. It ends when this is dropped.
#[derive(Debug)]
pub struct QuietFork<'a>(&'a Agent);

impl Drop for QuietFork<'_> {
    fn drop(&mut self) {
        self.0.ring().forks.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Agent {
    /// An agent that has said hello.
    pub fn new(ring: RingMap, socket: Stream, hello: &Hello, own_pages: PageRun) -> Agent {
        let forks = Forks {
            is_open: false,
            is_owed_answer: hello.flags & (INHERITED | COPIED) != 0,
        };
        let slot = Mutex::new(Row::AgentSlot, "an agent's slot", forks);
        Agent {
            ring,
            socket,
            slot,
            slot_opens: Condvar::new(),
            gone: AtomicBool::new(false),
            first_tid: hello.agent_tid,
            filters: task::filters_of(hello.agent_tid),
            own_pages,
            staging: hello.staging,
            ring_address: hello.ring,
        }
    }

    /// Wait for the right to give commands, for the end of a fork, and until the agent has its answer.
    pub fn slot(&self) -> Slot<'_> {
        let mut held = self.slot.lock();
        while held.is_open || held.is_owed_answer {
            held = held.wait(&self.slot_opens);
        }
        self.slot_of(held)
    }

    /// Wait for the right to give commands. None during a fork, because the forking thread may wait for the caller, and
    /// while the agent has no answer.
    pub fn slot_unless_forking(&self) -> Option<Slot<'_>> {
        let held = self.slot.lock();
        (!held.is_open && !held.is_owed_answer).then(|| self.slot_of(held))
    }

    /// Wait for the right to give commands that a fork allows: those by which no page leaves or moves.
    pub fn slot_beside_fork(&self) -> Slot<'_> {
        let mut held = self.slot.lock();
        while held.is_owed_answer {
            held = held.wait(&self.slot_opens);
        }
        self.slot_of(held)
    }

    /// The right to give commands, if nobody has it, no fork is under way, and the agent has its answer. It never
    /// waits, so the caller may hold locks of lower rows.
    pub fn try_slot(&self) -> Option<Slot<'_>> {
        let held = self.slot.try_lock()?;
        (!held.is_open && !held.is_owed_answer).then(|| self.slot_of(held))
    }

    /// Begin a fork: no page leaves or moves until it is over. Waits for the fork before it.
    pub fn begin_fork(&self) -> OpenFork<'_> {
        let mut slot = self.slot();
        slot.held.is_open = true;
        OpenFork(self)
    }

    /// Count a fork that sees the space inactive, as the hook does. None if the space is active, and the fork has to be
    /// announced.
    pub fn begin_quiet_fork(&self) -> Option<QuietFork<'_>> {
        let quiet = QuietFork(self);
        // SeqCst on both words, see `announce_active`.
        self.ring().forks.fetch_add(1, Ordering::SeqCst);
        (self.ring().active.load(Ordering::SeqCst) == 0).then_some(quiet)
    }

    fn slot_of<'a>(&'a self, held: MutexGuard<'a, Forks>) -> Slot<'a> {
        Slot {
            agent: self,
            posted: self.ring().command_seq.load(Ordering::Relaxed),
            held,
        }
    }

    /// Thread id of the agent, as the process itself numbers threads. Faults of this thread are served whatever the
    /// limit says. Another thread may become the agent's at any time. For a moment the id is then that of a thread of
    /// the program.
    pub fn tid(&self) -> i32 {
        match self.ring().agent_tid.load(Ordering::SeqCst) {
            0 => self.first_tid,
            tid => tid.cast_signed(),
        }
    }

    /// The process has ended: nobody waits for its answer any more.
    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// The agent's socket. Its closing tells that the agent has ended.
    pub fn socket(&self) -> &Stream {
        &self.socket
    }

    /// Is the ring mapped, where it was said to be, in memory with these mappings? Asks the kernel alone: whoever
    /// touched that memory might wait for the program.
    pub fn has_ring_in(&self, map: &ProcMap) -> bool {
        map.file_at(self.ring_address) == Some(self.ring.file())
    }

    /// Where number `slot` of the ring's `proofs` lies in the process.
    pub fn proof_address(&self, slot: usize) -> u64 {
        let offset = offset_of!(Ring, proofs) + slot * size_of::<AtomicU64>();
        self.ring_address + offset as u64
    }

    /// Send the agent of a forked child the one-byte answer that it waits for.
    pub fn acknowledge(&self) {
        // A process that died in its fork does not hear it.
        let _ = self.socket.send(&ACK, &[], Wait::No);
        self.owe_nothing();
    }

    /// Have whoever waits for the slot go on. Without the answer before, the process has to have ended.
    pub fn owe_nothing(&self) {
        self.slot.lock().is_owed_answer = false;
        self.slot_opens.notify_all();
    }

    /// Address of the second staging range, just behind the first.
    pub fn second_staging(&self) -> u64 {
        self.staging + STAGING_PAGES as u64 * PAGE_BYTES
    }

    /// Address of the range that TAKE_ASIDE takes pages to, just behind the second staging range.
    pub fn aside(&self) -> u64 {
        self.second_staging() + STAGING_PAGES as u64 * PAGE_BYTES
    }

    /// Tell fork hooks that the space is active. False while a fork is under way that saw it inactive: try again later.
    /// False for good after `confine`.
    pub fn announce_active(&self) -> bool {
        let ring = self.ring();
        let order = Ordering::SeqCst;
        // SeqCst on both words: the hook raises `forks` and then reads `active`.
        if ring.active.compare_exchange(0, 1, order, order) == Err(CONFINED) {
            return false;
        }
        if ring.forks.load(order) == 0 {
            return true;
        }
        let _ = ring.active.compare_exchange(1, 0, order, order);
        false
    }

    /// Tell fork hooks that nothing is registered and nothing will be.
    pub fn confine(&self) {
        self.ring().active.store(CONFINED, Ordering::SeqCst);
    }

    /// Tell the agent to leave its process, which lives on. Nothing may be registered, and `confine` comes first. If no
    /// other thread is left the process ends with it, and with `code`. An agent that cannot hear it has ended.
    pub fn dismiss(&self, code: Option<ExitCode>) {
        let _ = match code.map(ExitCode::to_bytes) {
            Some([signal, status]) => {
                self.socket
                    .send(&[LEFT_ALONE, signal, status], &[], Wait::No)
            }
            None => self.socket.send(&TURNED_AWAY, &[], Wait::No),
        };
    }

    /// Has the program installed a seccomp filter on the agent's thread since it said hello? False if nobody can tell.
    pub fn is_confined(&self) -> bool {
        task::filters_of(self.tid()) > self.filters
    }

    /// What the arenas of the process want, if it can be believed.
    pub fn arenas_wish(&self) -> u64 {
        self.ring().arenas.wished.load(Ordering::Relaxed)
    }

    /// Tell them what they may take.
    pub fn grant_arenas(&self, bytes: u64) {
        self.ring().arenas.granted.store(bytes, Ordering::SeqCst);
    }

    /// The memory that pager and agent share.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }
}

impl<'a> Slot<'a> {
    /// Is a fork under way?
    pub fn is_forking(&self) -> bool {
        self.held.is_open
    }

    /// Let others give commands until no fork is under way, but for about `patience` at the most.
    pub fn after_fork(self, patience: Duration) -> Slot<'a> {
        let opens = &self.agent.slot_opens;
        let held = self
            .held
            .wait_timeout_while(opens, patience, |forks| forks.is_open);
        self.agent.slot_of(held)
    }

    /// Give a command and wait for its result.
    ///
    /// # Errors
    /// `AgentGone` when the process ended before it answered.
    pub fn call(&mut self, op: u32, args: &[u64], runs: &[PageRun]) -> Result<i64, AgentGone> {
        self.post(op, args, runs)?;
        self.wait()
    }

    /// Give a command and do not wait for its result. Waits for the command before it.
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
        // Release: the agent reads the command after it has seen this number. SeqCst: `agent_sleeps` is read next.
        ring.command_seq.store(self.posted, Ordering::SeqCst);
        if ring.agent_sleeps.swap(0, Ordering::SeqCst) == 1 {
            // A full socket holds a doorbell already. `wait` notices a dead one.
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
                return self.result();
            }
            std::hint::spin_loop();
        }
        loop {
            ring.pager_sleeps.store(1, Ordering::SeqCst);
            let seen = ring.complete_seq.load(Ordering::SeqCst);
            if seen == self.posted {
                ring.pager_sleeps.store(0, Ordering::Relaxed);
                return self.result();
            }
            if self.agent.gone.load(Ordering::Acquire) {
                return self.last_result();
            }
            sleep_on(&ring.complete_seq, seen);
        }
    }

    /// The result of the posted command, if it is complete.
    ///
    /// # Errors
    /// `AgentGone`.
    pub fn poll(&self) -> Result<Option<i64>, AgentGone> {
        let ring = self.agent.ring();
        if ring.complete_seq.load(Ordering::Acquire) == self.posted {
            return self.result().map(Some);
        }
        if self.agent.gone.load(Ordering::Acquire) {
            return self.last_result().map(Some);
        }
        Ok(None)
    }

    /// The agent has gone. It may have left after the posted command, whose caller lives then.
    fn last_result(&self) -> Result<i64, AgentGone> {
        let ring = self.agent.ring();
        if ring.complete_seq.load(Ordering::Acquire) == self.posted {
            return self.result();
        }
        Err(AgentGone)
    }

    /// What the agent has answered. No call of the kernel returns anything else than an errno or an address of a
    /// program, and counts are smaller than that. Whoever says such a thing is no agent any more: with its connection
    /// ended the process is stopped, unless it has ended as well.
    fn result(&self) -> Result<i64, AgentGone> {
        let result = self.agent.ring().result.load(Ordering::Relaxed);
        if (-ERRNO_MAX..=ADDRESS_MAX).contains(&result) {
            return Ok(result);
        }
        self.agent.set_gone();
        // An end that is closed already is as good.
        let _ = self.agent.socket.shutdown();
        Err(AgentGone)
    }

    /// The program's break before the last BRK.
    pub fn break_before(&self) -> u64 {
        self.agent.ring().before.load(Ordering::Relaxed)
    }

    /// Handler, flags, restorer and mask before the last ACT.
    pub fn action_before(&self) -> [u64; 4] {
        let action = &self.agent.ring().action;
        [0, 1, 2, 3].map(|at| action[at].load(Ordering::Relaxed))
    }

    /// errno of the `index`-th page of the last MOVE_OUT, 0 if the page moved.
    pub fn page_errno(&self, index: usize) -> i32 {
        self.agent
            .ring()
            .page_errno
            .get(index)
            .map_or(-1, |errno| errno.load(Ordering::Relaxed))
    }

    /// The listener of a filter that the agent has sent along with its result.
    ///
    /// # Errors
    /// What the socket said, or that no listener came.
    pub fn receive_listener(&self) -> Result<Listener, SockError> {
        let (_, mut descriptors) = self.agent.socket.recv::<u8>(Wait::No)?;
        let descriptor = descriptors.take(0).ok_or(SockError::DescriptorsLost)?;
        Listener::received(descriptor).ok_or(SockError::DescriptorsLost)
    }
}

fn sleep_on(word: &AtomicU32, seen: u32) {
    // Woken, timed out or changed: the caller looks again in each case.
    let _ = futex::wait(word, seen, Some(WAIT_STEP));
}

#[cfg(test)]
mod tests {
    use super::*;
    use vswap_sys::ring::hello;

    #[test]
    fn who_answers_what_no_call_returns_is_no_agent() {
        for (answer, is_believed) in [
            (0, true),
            (-ERRNO_MAX, true),
            (ADDRESS_MAX, true),
            (-ERRNO_MAX - 1, false),
            (ADDRESS_MAX + 1, false),
            (i64::MIN, false),
            (i64::MAX, false),
        ] {
            let (ring, _) = RingMap::create().expect("memory for a ring");
            let (socket, other_end) = Stream::pair().expect("descriptors for a socket");
            let own_pages = PageRun { first: 0, pages: 0 };
            let agent = Agent::new(ring, socket, &Hello::default(), own_pages);
            agent.ring().result.store(answer, Ordering::Relaxed);
            let result = agent.slot().result();
            assert_eq!(result.ok(), is_believed.then_some(answer));
            // The other end is told to go.
            let heard = other_end.recv::<u8>(Wait::No);
            assert_eq!(matches!(heard, Err(SockError::Closed)), !is_believed);
        }
    }

    #[test]
    fn a_forked_childs_agent_is_asked_for_nothing_before_it_has_its_answer() {
        let (ring, _) = RingMap::create().expect("memory for a ring");
        let (socket, other_end) = Stream::pair().expect("descriptors for a socket");
        let hello = Hello {
            kind: hello::FORKED,
            flags: INHERITED,
            ..Hello::default()
        };
        let own_pages = PageRun { first: 0, pages: 0 };
        let agent = Agent::new(ring, socket, &hello, own_pages);
        assert!(agent.try_slot().is_none());
        assert!(agent.slot_unless_forking().is_none());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(agent.slot()));
            agent.acknowledge();
            waits.join().expect("the slot");
        });
        assert_eq!(other_end.recv::<u8>(Wait::No).expect("an answer").0, ACK);
        assert!(agent.try_slot().is_some());
    }
}
