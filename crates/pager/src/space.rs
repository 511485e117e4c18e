//! A space: the memory of one process as the pager sees it. It is the user-space twin of the kernel's mm.
//!
//! Reading messages from the userfaultfd and moving pages out must never overlap (rule P3). The space lock
//! (`Space::lock`) keeps them apart.
//!
//! The lock is released while pages are given to the process (`giving`), compressed, decompressed or copied between
//! processes. Claims in the layout protect those pages meanwhile. The lock is also released while the agent moves
//! pages. Then the space is *closed*: nobody reads messages.
//!
//! So a stopped process never holds its space lock. A thread that needs no message goes on. A thread that serves other
//! spaces too waits for this one for a bounded time (`lock_soon`).

pub mod agent;
pub mod call;
pub mod forking;
pub mod exits;
pub mod wait;
pub mod fault;
pub mod giving;
pub mod leader;
pub mod proofs;
pub mod process;
pub mod mailbox;
pub mod kin;
pub mod flight;
pub mod present;
pub mod gain;
pub mod mappings_seen;
pub mod incoming;
pub mod marks;
pub mod unexplained;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, OnceLock};
use std::time::{Duration, Instant};

use crate::base::kernel::clock;
use crate::base::kernel::uffd::{Registered, Userfaultfd};
use crate::base::lock::{Mutex, MutexGuard, Row};
use crate::base::ranges::RangeSet;
use crate::layout::Layout;
use crate::policy::read_around::ReadAround;
use crate::policy::stream::Streams;
use crate::space::call::Call;
use crate::space::exits::Exits;
use crate::space::fault::Fault;
use crate::space::forking::Forking;
use crate::space::gain::Gain;
use crate::space::kin::{Kin, Turn};
use crate::space::mailbox::Mailbox;
use crate::space::mappings_seen::MappingsSeen;
use crate::space::process::Process;
use crate::space::unexplained::Unexplained;

/// First touches: a lone one gets 4 pages, a stream up to 64 (one eviction window). So filling memory costs one fault
/// in 64 pages.
const FIRST_TOUCH_PAGES: (u64, u64) = (4, 64);
/// Swap-ins: a lone fault brings one page, a stream up to `WINDOW_PAGES_MAX`.
const SWAP_IN_PAGES: (u64, u64) = (1, WINDOW_PAGES_MAX);
/// Most pages that one fault swaps in. 16 pages decompress in about 20 us, which the faulting thread can wait.
pub const WINDOW_PAGES_MAX: u64 = 16;
/// The same for pages in an area. They are one request, which costs a device little more than a shorter one.
pub const AREA_WINDOW_PAGES_MAX: u64 = 64;

/// Pause between two looks whether vswap has let go of a space.
const LET_GO_PACE: Duration = Duration::from_micros(200);
/// How often a thread that waits for a fork to be applied checks whether the process has ended.
const FORK_PACE: Duration = Duration::from_millis(10);
/// Pause between two tries to get the lock by chance.
const CHANCE_PACE: Duration = Duration::from_micros(50);

/// What the space lock protects.
#[derive(Debug)]
pub struct State {
    /// Ranges, words, claims.
    pub layout: Layout,
    /// Faults on pages that somebody carries at this moment.
    pub waiting: Vec<Fault>,
    /// Faults that wait for memory.
    pub deferred: Vec<Fault>,
    /// Pages that cannot be given back, and nobody knows yet why.
    pub unexplained: Unexplained,
    /// Streams of first touches.
    pub first_touches: Streams,
    /// Streams of swap-ins.
    pub swap_ins: Streams,
    /// Lone swap-ins from areas.
    pub read_around: ReadAround,
    /// Ranges that UNMAP events have named and that nobody could look at yet, see `layout_events::decide`.
    pub undecided: RangeSet,
    /// The memory that a call may gain while the agent makes it for the program.
    pub gain: Option<Gain>,
    /// A fork is being applied: nobody reads messages, and no page starts to move out.
    frozen: bool,
    /// Children of forks whose events were read and are not applied yet, though the space is not frozen.
    children_read: u32,
    /// The agent is moving pages out: nobody reads messages.
    moving: bool,
    /// Threads that give pages without the lock, see `giving`.
    giving: u32,
    /// Threads that wait until nobody gives pages.
    excluding: u32,
    /// Token of the fork under way, 0 without one.
    pub open_fork: u64,
}

/// One process's memory.
#[derive(Debug)]
pub struct Space {
    /// Unique in the run. A process id is not, because the kernel gives it out again.
    pub id: u64,
    /// The userfaultfd of the process's memory.
    pub uffd: Userfaultfd,
    /// The process, unless it is a forked child that has not said hello.
    pub process: OnceLock<Process>,
    /// Register the memory even if memory is not short.
    pub hastened: AtomicBool,
    /// The seccomp filter is installed, in this process or in the one it was forked from.
    pub filtered: AtomicBool,
    /// Pages get a marker when they leave, see `marks`.
    pub marks: AtomicBool,
    /// Forks between FORK_BEGIN and their end. Meanwhile faults are served whatever the limit says, because eviction
    /// waits for the fork.
    pub forks_open: AtomicU32,
    /// What the evictor is asked for.
    pub mailbox: Arc<Mailbox>,
    /// What the process was like when its mappings were last looked at.
    pub mappings_seen: MappingsSeen,
    /// Faults served so far.
    pub faults_served: AtomicU64,
    /// Pages given to the process so far, minus those moved out.
    pub pages_given: AtomicI64,
    /// The process has forked or was forked: pages may be shared.
    pub shares: AtomicBool,
    /// A fork or an exit has changed how much is shared, and nobody has looked since then.
    pub share_is_old: AtomicBool,
    /// When the agent's connection closed.
    pub hung_up: Mutex<Option<Instant>>,
    /// Vswap lets go of the process, or the program has confined the agent: no page may move out any more.
    pub confined: AtomicBool,
    /// Vswap has let go of it: nothing is registered any more.
    pub let_go: AtomicBool,
    /// The agent has been told to leave, with nothing registered: the process lives on without vswap.
    pub dismissed: AtomicBool,
    /// It was forked by a process in which no hook announces forks.
    pub is_of_attached: AtomicBool,
    /// It came of a fork that nobody announced or followed: it will have no agent.
    pub is_bare: AtomicBool,
    /// The filter could not be installed, and the user was told so.
    pub refused: AtomicBool,
    /// The spaces that came of the same image by forks.
    pub kin: Arc<Kin>,
    /// The way to the thread that answers trapped calls, once there was one.
    pub calls: OnceLock<Sender<Call>>,
    /// The same for calls that wait for the end of a fork.
    pub moves: OnceLock<Sender<Call>>,
    /// The thread whose fork is being followed.
    pub forking: Forking,
    /// Threads that end.
    pub exits: Exits,
    state: Mutex<State>,
    /// Signalled when pages on their way out have arrived, when the space is open again, and when nobody gives pages
    /// any more.
    settled: Condvar,
}

impl Space {
    /// A space on `uffd` that starts with `layout` and joins `kin`.
    pub fn new(id: u64, uffd: Userfaultfd, layout: Layout, kin: Arc<Kin>) -> Arc<Space> {
        let state = State {
            layout,
            waiting: Vec::new(),
            deferred: Vec::new(),
            unexplained: Unexplained::default(),
            first_touches: Streams::new(FIRST_TOUCH_PAGES.0, FIRST_TOUCH_PAGES.1),
            swap_ins: Streams::new(SWAP_IN_PAGES.0, SWAP_IN_PAGES.1).with_gaps(),
            read_around: ReadAround::default(),
            undecided: RangeSet::new(),
            gain: None,
            frozen: false,
            children_read: 0,
            moving: false,
            giving: 0,
            excluding: 0,
            open_fork: 0,
        };
        let space = Arc::new(Space {
            id,
            uffd,
            process: OnceLock::new(),
            hastened: AtomicBool::new(false),
            filtered: AtomicBool::new(false),
            marks: AtomicBool::new(false),
            forks_open: AtomicU32::new(0),
            mailbox: Arc::new(Mailbox::new(id)),
            mappings_seen: MappingsSeen::default(),
            faults_served: AtomicU64::new(0),
            pages_given: AtomicI64::new(0),
            shares: AtomicBool::new(false),
            share_is_old: AtomicBool::new(false),
            hung_up: Mutex::new(Row::Innermost, "hung up", None),
            confined: AtomicBool::new(false),
            let_go: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            is_of_attached: AtomicBool::new(false),
            is_bare: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            kin,
            calls: OnceLock::new(),
            moves: OnceLock::new(),
            forking: Forking::default(),
            exits: Exits::default(),
            state: Mutex::with_patience(Row::Space, "a space", state),
            settled: Condvar::new(),
        });
        space.kin.join(&space.mailbox);
        space
    }

    /// Is this a process in which no hook announces forks, because its agent was attached from outside, or a child of
    /// one that has no agent yet, or never will?
    pub fn has_no_hooks(&self) -> bool {
        match self.process.get() {
            Some(process) => process.is_attached,
            None => self.is_of_attached.load(Ordering::Acquire),
        }
    }

    /// Do its forks stop in the filter to be followed from there on, because no hook announces them?
    pub fn has_followed_forks(&self) -> bool {
        let is_followed = self.process.get().is_some_and(Process::is_followed);
        is_followed || self.has_no_hooks()
    }

    /// Take the space lock. Tests check each time that the last holder left everything in order.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.exclude(self.state.lock());
        debug_assert!(!cfg!(test) || state.is_valid());
        state
    }

    /// Take the space lock at a moment when messages may be read.
    pub fn lock_thawed(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.is_closed() {
            state = self.exclude(state.wait(&self.settled));
        }
        state
    }

    /// The same, if such a moment comes within about `patience`.
    pub fn lock_soon(&self, patience: Duration) -> Option<MutexGuard<'_, State>> {
        let state = self.state.try_lock();
        let mut state = state.or_else(|| self.state.lock_for(patience))?;
        if state.is_open() {
            return Some(state);
        }
        state.excluding += 1;
        let is_not_open = |state: &mut State| !state.is_open();
        let mut state = state.wait_timeout_while(&self.settled, patience, is_not_open);
        state.excluding -= 1;
        state.is_open().then_some(state)
    }

    /// Wait until no fork is being applied, or until the process has ended. Does not wait for the process.
    pub fn wait_for_fork(&self) {
        let mut state = self.lock();
        while state.applies_fork() && !self.has_ended() {
            state =
                state.wait_timeout_while(&self.settled, FORK_PACE, |state| state.applies_fork());
        }
    }

    /// May the event of a fork have been read that is not applied yet? If this is false after a fork has returned, its
    /// child has a space.
    pub fn may_apply_fork(&self) -> bool {
        self.try_lock().is_none_or(|state| state.applies_fork())
    }

    /// What `has_read_child` has counted is applied.
    pub fn has_applied_child(&self) {
        self.lock().children_read -= 1;
        self.settled.notify_all();
    }

    /// Run `call`, by which the agent moves pages out, with the space closed. The lock is released meanwhile, because a
    /// stopped process answers only when it goes on. The pages that move have to be claimed.
    pub fn close_during<'a, R>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        call: impl FnOnce() -> R,
    ) -> (MutexGuard<'a, State>, R) {
        state.moving = true;
        drop(state);
        let result = call();
        let mut state = self.lock();
        state.moving = false;
        self.settled.notify_all();
        (state, result)
    }

    /// Close the space until `thaw`, and wait until everything on its way out has arrived.
    pub fn freeze<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.frozen = true;
        while state.layout.has_pages_going_out() && !self.has_ended() {
            state = self.exclude(state.wait(&self.settled));
        }
        state
    }

    /// End what `freeze` began.
    pub fn thaw(&self, state: &mut State) {
        state.frozen = false;
        self.settled.notify_all();
    }

    /// Pages that were going out have arrived.
    pub fn notify_settled(&self) {
        self.settled.notify_all();
    }

    /// Has the process ended?
    pub fn has_ended(&self) -> bool {
        self.mailbox.has_ended()
    }

    /// Is the agent confined, or is the process being let go of? Then nobody may ask the agent for anything.
    pub fn is_confined(&self) -> bool {
        self.confined.load(Ordering::Acquire)
    }

    /// The same, for a call of the program that shall run as it is: waits until nothing is registered any more. No call
    /// is made where that has begun and has not come to its end.
    pub fn runs_calls_as_they_are(&self) -> bool {
        while self.is_confined() && !self.let_go.load(Ordering::Acquire) && !self.has_ended() {
            clock::sleep(LET_GO_PACE);
        }
        self.is_confined()
    }

    /// May memory be registered?
    pub fn is_active(&self) -> bool {
        self.mailbox.is_active()
    }

    /// Resident anonymous memory. Pages that several processes share count in full.
    pub fn resident_bytes(&self) -> u64 {
        self.process.get().map_or(0, Process::anonymous_bytes)
    }

    /// `pages` pages were given to the process. Negative: they were moved out.
    pub fn gave(&self, pages: i64) {
        self.pages_given.fetch_add(pages, Ordering::Relaxed);
    }

    /// Are the next pages shared, and is it not this space's turn to move them out? It would try in vain, and take the
    /// time of those that follow. While the family is held up it looks for pages that are not shared.
    pub fn is_left_to_kin(&self) -> bool {
        self.mailbox.left_to_kin.load(Ordering::Relaxed)
            && !self.kin.is_held_up()
            && self.kin.turn(self.id) != Turn::Free
    }

    /// A fork has just split this process in two.
    pub fn begin_sharing(&self) {
        self.shares.store(true, Ordering::Relaxed);
        self.share_is_old.store(true, Ordering::Relaxed);
    }

    /// A process that may have shared pages with this one has ended. What it shared may be this one's alone now.
    pub fn share_has_changed(&self) {
        if self.shares.load(Ordering::Relaxed) {
            self.share_is_old.store(true, Ordering::Relaxed);
        }
    }

    /// Is a range one mapping, and registered? Without an agent the kernel cannot always tell.
    pub fn is_registered(&self, start: u64, bytes: u64) -> Registered {
        let asked = self.process.get().map(|process| &process.staging);
        asked.unwrap_or(&self.uffd).is_registered(start, bytes)
    }

    /// Has the agent's connection closed?
    pub fn is_hung_up(&self) -> bool {
        self.hung_up.lock().is_some()
    }

    /// Do faults wait for memory? Does not wait for the lock, because its holder looks after them.
    pub fn has_deferred(&self) -> bool {
        self.state
            .try_lock()
            .is_some_and(|state| !state.deferred.is_empty())
    }

    /// The space lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().filter(|state| !state.is_shared())
    }

    /// The space lock, if it is free at some moment before `until`. For those who only look: nobody stands in line for
    /// it here, so whoever needs it finds it as if nobody looked.
    pub fn lock_by_chance(&self, until: Instant) -> Option<MutexGuard<'_, State>> {
        loop {
            let state = self.try_lock();
            if state.is_some() || Instant::now() >= until {
                return state;
            }
            std::thread::sleep(CHANCE_PACE);
        }
    }

    /// The process id, when it is known.
    pub fn pid(&self) -> Option<u32> {
        self.process.get().map(|process| process.pid)
    }
}

impl State {
    /// Must nobody read messages just now?
    fn is_closed(&self) -> bool {
        self.frozen || self.moving
    }

    /// May whoever holds the lock read messages?
    fn is_open(&self) -> bool {
        !self.is_closed() && !self.is_shared()
    }

    /// The child of a fork was taken from its event. The space stays as it is until `fork::apply` has made one for it.
    pub fn has_read_child(&mut self) {
        self.children_read += 1;
    }

    fn applies_fork(&self) -> bool {
        self.frozen || self.children_read > 0
    }

    /// Is everything consistent? Looks at every word, so it is for tests.
    pub fn is_valid(&self) -> bool {
        // Nobody waits for a page that is read ahead.
        let is_waited_for = |fault: &Fault| !fault.ahead;
        self.layout.is_valid()
            && self.undecided.is_valid()
            && self.waiting.iter().chain(&self.deferred).all(is_waited_for)
    }

    /// Take the faults whose pages nobody carries any more.
    pub fn take_ready(&mut self) -> Vec<Fault> {
        let words = &self.layout.words;
        self.waiting
            .extract_if(.., |fault| !words.get(fault.page).is_claimed())
            .collect()
    }
}
