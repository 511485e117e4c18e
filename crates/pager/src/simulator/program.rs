//! Threads of a simulated program. Each carries out its calls, and those that the filter traps go through the pager.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use vswap_sys::abi;
use vswap_sys::memory::RingMap;
use vswap_sys::process::memory_file::MemoryFile;
use vswap_sys::process::procfs::Statm;
use vswap_sys::ring::{Hello, Ring};
use vswap_sys::seccomp::{Answer, Notification};
use vswap_sys::sock::Stream;

use super::actors::{self, world, world_is};
use super::calls::{self, Target};
use super::doors::process::PidFd;
use super::doors::{FIRST_AGENT, FIRST_PID};
use super::memory::{Memory, OWN, PROGRAM, STAGING};
use super::plan::Call;
use super::uffd::Userfaultfd;
use crate::base::kernel::pagemap::Pagemap;
use crate::base::kernel::procmap::ProcMap;
use crate::base::page_run::{PAGE_BYTES, PageRun};
use crate::calls::{notify, unknown};
use crate::events::fork;
use crate::events::regions;
use crate::life::lifecycle;
use crate::life::run::Run;
use crate::space::Space;
use crate::space::agent::Agent;
use crate::space::leader::Leader;
use crate::space::process::{EntryPoint, Process};
use crate::space::proofs::Proofs;

const MMAP: i32 = abi::call::MMAP.cast_signed();
const MREMAP: i32 = abi::call::MREMAP.cast_signed();
const MADVISE: i32 = abi::call::MADVISE.cast_signed();
const MREMAP_MAYMOVE: u64 = abi::remap::MAYMOVE as u64;
const MREMAP_FIXED: u64 = abi::remap::FIXED as u64;
const MAP_PRIVATE_ANONYMOUS: u64 = 0x22;
const MAP_FIXED: u64 = 0x10;
const READ_WRITE: u64 = 3;
const GUARD_INSTALL: u64 = abi::advice::GUARD_INSTALL as u64;

/// One thread of the program.
pub struct Thread {
    pub run: Arc<Run>,
    pub memory: usize,
    /// None in a process that the pager does not manage.
    pub space: Option<Arc<Space>>,
    pub tid: u32,
}

/// The process behind an address space, with an agent that has just started.
pub fn process_of(memory: usize) -> Process {
    let number = u32::try_from(memory).expect("few processes");
    let pid = FIRST_PID + number;
    let own_pages = PageRun {
        first: OWN.start,
        pages: OWN.end - OWN.start,
    };
    let (ring, _) = RingMap::create().expect("memory for a ring");
    let (socket, _) = Stream::pair().expect("descriptors for a socket");
    let tid = FIRST_AGENT + i32::try_from(memory).expect("few processes");
    // The simulated kernel reads this word where it is.
    let ring_address = std::ptr::from_ref::<Ring>(&ring).expose_provenance() as u64;
    let hello = Hello {
        agent_tid: tid,
        staging: STAGING * PAGE_BYTES,
        ring: ring_address,
        ..Hello::default()
    };
    world(|world| {
        world.memories[memory].add_agent();
    });
    Process {
        pid,
        pidfd: PidFd,
        agent: Agent::new(ring, socket, &hello, own_pages),
        pagemap: Pagemap::of(memory),
        // The figures are read, but nothing depends on them.
        statm: Statm::open(std::process::id()).expect("/proc"),
        map: ProcMap::of(memory),
        memory: MemoryFile::open(std::process::id()).expect("/proc"),
        staging: Userfaultfd::silent(memory),
        leader: Leader::default(),
        late_statm: OnceLock::new(),
        entry: EntryPoint {
            address: 0,
            stack_end: 0,
        },
        is_attached: false,
        has_fork_events: true,
        is_found_by_agent: false,
        agent_elsewhere: AtomicU64::new(0),
        proofs: Proofs::default(),
    }
}

impl Thread {
    /// Make all calls, check all memory, and end.
    pub fn run(&self, plan: &[Call]) {
        plan.iter().for_each(|call| self.make(call));
        let is_last = world(|world| world.memories[self.memory].threads == 1);
        if is_last {
            PROGRAM.for_each(|page| self.touch(page, false));
            self.has_lost_nothing();
        }
        let has_ended = world(|world| {
            let memory = &mut world.memories[self.memory];
            memory.threads -= 1;
            memory.gone = memory.threads == 0;
            memory.gone
        });
        if has_ended {
            actors::step("exits", self.memory as u64, 0);
            if let Some(space) = &self.space {
                lifecycle::hang_up(space);
            }
        }
    }

    /// The process has not begun to end. So that explains no loss, and the pager would stop the process later.
    fn has_lost_nothing(&self) {
        let is_lost = |space: &Arc<Space>| space.lock_shared().unexplained.is_awaited;
        if self.space.as_ref().is_some_and(is_lost) {
            actors::fail("the pager takes a page for lost");
        }
    }

    fn touch(&self, page: u64, write: bool) {
        // Nothing may be there, or it may be read-only. The program has a handler for that.
        let _ = calls::touch(self.memory, page, write, self.tid);
    }

    fn make(&self, call: &Call) {
        let is_change = !matches!(call, Call::Read(_) | Call::Write(_) | Call::Fork { .. });
        if is_change {
            self.reserve(|memory| {
                memory.calls += u32::from(!memory.is_bare_fork);
                !memory.is_bare_fork
            });
        }
        self.carry_out(call);
        if is_change {
            world(|world| world.memories[self.memory].calls -= 1);
        }
    }

    fn carry_out(&self, call: &Call) {
        match call {
            Call::Read(range) => range.clone().for_each(|page| self.touch(page, false)),
            Call::Write(range) => range.clone().for_each(|page| self.touch(page, true)),
            Call::Unmap { range, fails } => calls::unmap(self.memory, range.clone(), *fails),
            Call::Map { at, pages } => self.map(*at, *pages),
            Call::Discard(range) => drop(calls::discard(self.memory, range.clone())),
            Call::Guard { range, on } => self.guard(range, *on),
            Call::Protect { range, writable } => {
                calls::protect(self.memory, range.clone(), *writable);
            }
            Call::Remap { old, pages, to } => self.remap(old, *pages, *to),
            Call::Fork { announced, child } => self.fork(*announced, child),
        }
    }

    /// The pager's answer to a trapped call. `Continue` if nobody listens.
    fn trap(&self, nr: i32, args: [u64; 6]) -> Answer {
        let Some(space) = &self.space else {
            if nr == MREMAP {
                let run = &self.run;
                unknown::decide_before_growth(&run.serving.references, &run.listening.spaces);
            }
            return Answer::Continue;
        };
        let Some(process) = space.process.get() else {
            return Answer::Continue;
        };
        let memory = self.memory;
        // One call at a time, as on the thread that answers the calls of the space.
        self.reserve(|memory| !std::mem::replace(&mut memory.is_calling, true));
        actors::note(
            "is trapped",
            u64::try_from(nr).unwrap_or(0),
            args[0] / PAGE_BYTES,
        );
        let call = Notification {
            id: 0,
            tid: self.tid,
            nr,
            args,
        };
        let answer = notify::answer(&self.run.serving, space, process, &call, &|| true);
        world(|world| world.memories[memory].is_calling = false);
        answer
    }

    /// Wait until `take` succeeds.
    fn reserve(&self, take: impl Fn(&mut Memory) -> bool + Copy + Send + 'static) {
        let index = self.memory;
        let taken = AtomicBool::new(false);
        actors::wait_until(world_is(move |world| {
            let done = taken.load(Ordering::Relaxed) || take(&mut world.memories[index]);
            taken.store(done, Ordering::Relaxed);
            done
        }));
    }

    fn is_managed(&self) -> bool {
        let space = self.space.as_ref();
        space.is_some_and(|space| space.process.get().is_some())
    }

    fn map(&self, at: Option<u64>, pages: u64) {
        let fixed = if at.is_some() { MAP_FIXED } else { 0 };
        let flags = MAP_PRIVATE_ANONYMOUS | fixed;
        let address = at.unwrap_or(0) * PAGE_BYTES;
        let args = [address, pages * PAGE_BYTES, READ_WRITE, flags, 0, 0];
        if self.trap(MMAP, args) == Answer::Continue {
            let _ = calls::map(self.memory, at, pages);
        }
    }

    fn guard(&self, range: &Range<u64>, on: bool) {
        // Without an agent the pager does not hear of guards, and puts pages in their places (see docs/reliability.md).
        if on && !self.is_managed() {
            return;
        }
        let bytes = (range.end - range.start) * PAGE_BYTES;
        let args = [range.start * PAGE_BYTES, bytes, GUARD_INSTALL, 0, 0, 0];
        if !on || self.trap(MADVISE, args) == Answer::Continue {
            let _ = calls::guard(self.memory, range.clone(), on);
        }
    }

    fn remap(&self, old: &Range<u64>, pages: u64, to: Option<u64>) {
        let bytes = (old.end - old.start) * PAGE_BYTES;
        let fixed = if to.is_some() { MREMAP_FIXED } else { 0 };
        let flags = MREMAP_MAYMOVE | fixed;
        let place = to.unwrap_or(0) * PAGE_BYTES;
        let args = [
            old.start * PAGE_BYTES,
            bytes,
            pages * PAGE_BYTES,
            flags,
            place,
            0,
        ];
        if self.trap(MREMAP, args) == Answer::Continue {
            let target = to.map_or(Target::Anywhere, Target::At);
            let _ = calls::remap(self.memory, old.clone(), pages, target);
        }
    }

    fn fork(&self, announced: bool, plan: &[Call]) {
        let known = self.space.as_ref().filter(|_| announced);
        let process = known.and_then(|space| Some((space, space.process.get()?)));
        let Some((space, process)) = process else {
            return self.fork_now(0, plan);
        };
        // Like the agent's hook.
        let ring = process.agent.ring();
        ring.forks.fetch_add(1, Ordering::SeqCst);
        if ring.active.load(Ordering::SeqCst) == 0 {
            self.fork_now(0, plan);
            ring.forks.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        ring.forks.fetch_sub(1, Ordering::SeqCst);
        let token = world(|world| {
            let token = world.id();
            world.forks.insert(token, (false, false));
            token
        });
        fork::window(&self.run.listening, Arc::clone(space), token, Caller(token));
        actors::wait_until(world_is(move |world| world.forks[&token].0));
        self.fork_now(token, plan);
        world(|world| world.forks.insert(token, (true, true)));
    }

    fn fork_now(&self, token: u64, plan: &[Call]) {
        let parent = self.memory;
        if token == 0 {
            self.reserve(|memory| {
                let is_free = !memory.is_bare_fork && memory.calls == 0;
                memory.is_bare_fork |= is_free;
                is_free
            });
        }
        let memory = calls::fork(parent);
        world(|world| {
            world.memories[memory].threads = 1;
            world.memories[parent].is_bare_fork &= token != 0;
        });
        let mut child = Thread {
            run: Arc::clone(&self.run),
            memory,
            space: None,
            tid: self.tid + 100,
        };
        let plan = plan.to_vec();
        actors::spawn(&format!("child-{memory}"), move || {
            if token != 0 {
                child.space = child.say_hello(token);
            }
            child.run(&plan);
        });
    }

    /// The child's agent says hello. Like `server::join`, without the connection.
    fn say_hello(&self, token: u64) -> Option<Arc<Space>> {
        let run = &self.run;
        run.listening.forks.parent(token)?.wait_for_fork();
        let candidates = run.listening.forks.candidates(token);
        let mut candidates = candidates.into_iter();
        let space = candidates.find(|space| space.uffd.memory() == self.memory)?;
        let process = process_of(self.memory);
        run.listening.forks.found(token, &space);
        process.agent.announce_active();
        run.listening.spaces.introduce(&space, process);
        start_agent(&space);
        regions::keep_inherited(&run.serving.references, &space);
        lifecycle::start_evictor(run, &space);
        Some(space)
    }
}

/// Start the agent of a space.
pub fn start_agent(space: &Arc<Space>) {
    let memory = space.uffd.memory();
    let space = Arc::clone(space);
    actors::spawn(&format!("agent-{memory}"), move || {
        super::agent::run(&space);
    });
}

/// A thread that is about to fork.
struct Caller(u64);

impl fork::Caller for Caller {
    fn is_room(&self, _: usize) -> bool {
        true
    }

    fn acknowledge(&self) {
        world(|world| {
            if let Some(fork) = world.forks.get_mut(&self.0) {
                fork.0 = true;
            }
        });
    }

    fn has_ended(&self, patience: Duration) -> bool {
        let token = self.0;
        let has_ended = world_is(move |world| world.forks[&token].1);
        let most = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
        actors::wait_until_or(has_ended, most);
        world(|world| world.forks[&token].1)
    }
}
