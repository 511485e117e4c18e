//! Actors: the threads of a simulation, of which one runs at a time, and the scheduler that picks the next.
//!
//! Each actor is a real thread, so the pager's code runs as it is. It runs until it comes to a place where threads of
//! the real pager may change over: a call to the kernel, a lock of a space or an agent, a pause. There the next actor
//! is picked at random from those that can go on. Time is counted, not measured. A step is a microsecond. When all
//! actors pause, time leaps to the end of the first pause. So a seed always gives the same schedule.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};

use super::memory::World;
use super::random::Random;
use crate::base::rules::Rule;

/// A longer schedule counts as endless. No plan needs a tenth of it.
const STEPS_MAX: u64 = 60_000;
/// Steps that a failure shows. With `VSWAP_SIM_WHOLE` it shows all that were kept.
const STEPS_SHOWN: usize = 48;
const STEPS_KEPT: usize = 4096;
/// Set to see all steps of a failure.
pub const WHOLE_ENV: &str = "VSWAP_SIM_WHOLE";
/// Nobody runs.
const NOBODY: usize = usize::MAX;
const STACK_BYTES: usize = 512 << 10;

/// What all actors of one simulation share.
pub struct Stage {
    inner: Mutex<Inner>,
    world: Mutex<World>,
    current: AtomicUsize,
    now_us: AtomicU64,
    is_over: AtomicBool,
    broken: Option<Rule>,
    director: Thread,
}

struct Inner {
    roles: Vec<Role>,
    random: Random,
    /// How often this schedule changes over to another actor: once in so many steps.
    change_over: u64,
    steps: u64,
    failure: Option<String>,
    shown: VecDeque<Step>,
    handles: Vec<JoinHandle<()>>,
}

struct Role {
    name: String,
    state: State,
    thread: Option<Thread>,
    /// Picked so many times as often as an actor of weight 1.
    weight: u64,
}

enum State {
    Ready,
    /// Waits for the lock at this address.
    Locked(usize),
    /// Waits until this is true, but no longer than until this time.
    Until(Box<dyn FnMut() -> bool + Send>, u64),
    Done,
}

/// Something that happened.
struct Step {
    time_us: u64,
    actor: usize,
    what: &'static str,
    numbers: (u64, u64),
}

/// Unwinds an actor after the simulation has failed.
struct Stop;

#[derive(Clone)]
struct Actor {
    stage: Arc<Stage>,
    index: usize,
}

thread_local! {
    static ACTOR: RefCell<Option<Actor>> = const { RefCell::new(None) };
}

fn actor() -> Option<Actor> {
    ACTOR.with_borrow(Clone::clone)
}

/// Is the calling thread an actor?
pub fn is_one() -> bool {
    ACTOR.with_borrow(Option::is_some)
}

/// Is this the rule that the simulation leaves out?
pub fn breaks(rule: Rule) -> bool {
    ACTOR.with_borrow(|actor| {
        let broken = actor.as_ref().and_then(|actor| actor.stage.broken);
        broken == Some(rule)
    })
}

/// Look at what the kernel knows. The lock is never held while actors change over.
pub fn world<R>(look: impl FnOnce(&mut World) -> R) -> R {
    ACTOR.with_borrow(|actor| {
        let actor = actor.as_ref().expect("only actors have a kernel");
        look(&mut held(&actor.stage.world))
    })
}

/// The same for a condition that others check: whoever picks the next actor asks it.
pub fn world_is(mut look: impl FnMut(&mut World) -> bool + Send + 'static) -> impl FnMut() -> bool {
    let stage = actor().expect("only actors wait").stage;
    let world = Arc::downgrade(&stage);
    move || {
        world
            .upgrade()
            .is_some_and(|stage| look(&mut held(&stage.world)))
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Microseconds since the beginning.
pub fn now_us() -> u64 {
    actor().map_or(0, |actor| actor.stage.now_us.load(Ordering::Relaxed))
}

/// A number below `end`.
pub fn below(end: u64) -> u64 {
    let actor = actor().expect("only actors choose");
    let mut inner = held(&actor.stage.inner);
    inner.random.below(end)
}

/// True once in `times`.
pub fn once_in(times: u64) -> bool {
    below(times) == 0
}

/// A place where other actors may go on.
pub fn step(what: &'static str, a: u64, b: u64) {
    note(what, a, b);
    change_over(State::Ready);
}

/// The same where a failure should show nothing.
pub fn pass() {
    change_over(State::Ready);
}

/// Note something that a failure should show.
pub fn note(what: &'static str, a: u64, b: u64) {
    if let Some(actor) = actor() {
        let time_us = actor.stage.now_us.load(Ordering::Relaxed);
        let mut inner = held(&actor.stage.inner);
        if inner.shown.len() == STEPS_KEPT {
            inner.shown.pop_front();
        }
        inner.shown.push_back(Step {
            time_us,
            actor: actor.index,
            what,
            numbers: (a, b),
        });
    }
}

/// Wait until something is true.
pub fn wait_until(condition: impl FnMut() -> bool + Send + 'static) {
    wait_until_or(condition, u64::MAX);
}

/// The same, but for at most `most_us` microseconds.
pub fn wait_until_or(condition: impl FnMut() -> bool + Send + 'static, most_us: u64) {
    let end = now_us().saturating_add(most_us);
    change_over(State::Until(Box::new(condition), end));
}

/// Wait for the lock at this address.
pub fn wait_for_lock(address: usize) {
    change_over(State::Locked(address));
}

/// The lock at this address is free now.
pub fn unlocked(address: usize) {
    if let Some(actor) = actor() {
        for role in &mut held(&actor.stage.inner).roles {
            if matches!(role.state, State::Locked(wanted) if wanted == address) {
                role.state = State::Ready;
            }
        }
    }
}

/// The simulation has found a mistake.
pub fn fail(why: &str) -> ! {
    if let Some(actor) = actor() {
        actor.stage.give_up(why);
    }
    resume_unwind(Box::new(Stop))
}

/// Start another actor.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    let actor = actor().expect("only actors start others");
    actor.stage.spawn(name, body);
}

fn change_over(state: State) {
    let Some(actor) = actor() else { return };
    if std::thread::panicking() {
        return;
    }
    let stage = &actor.stage;
    let mut inner = held(&stage.inner);
    if !stage.is_over.load(Ordering::Acquire) {
        inner.roles[actor.index].state = state;
        stage.pass_on(inner);
        stage.await_turn(actor.index);
    }
    if stage.is_over.load(Ordering::Acquire) {
        resume_unwind(Box::new(Stop));
    }
}

impl Stage {
    /// A stage without actors. The calling thread directs.
    pub fn new(seed: u64, world: World, broken: Option<Rule>) -> Arc<Stage> {
        let mut random = Random::new(seed);
        let change_over = [1, 1, 2, 4, 8][usize::try_from(random.below(5)).unwrap_or(0)];
        let inner = Inner {
            roles: Vec::new(),
            random,
            change_over,
            steps: 0,
            failure: None,
            shown: VecDeque::new(),
            handles: Vec::new(),
        };
        Arc::new(Stage {
            inner: Mutex::new(inner),
            world: Mutex::new(world),
            current: AtomicUsize::new(NOBODY),
            now_us: AtomicU64::new(1),
            is_over: AtomicBool::new(false),
            broken,
            director: std::thread::current(),
        })
    }

    /// Let an actor begin, and return when all are done. Returns the number of steps, or why it failed and the last
    /// steps.
    pub fn play(self: &Arc<Stage>, first: impl FnOnce() + Send + 'static) -> Result<u64, String> {
        self.spawn("first", first);
        self.pass_on(held(&self.inner));
        while !self.is_over.load(Ordering::Acquire) {
            std::thread::park();
        }
        let handles = std::mem::take(&mut held(&self.inner).handles);
        for handle in handles {
            // Its panic was noted already.
            let _ = handle.join();
        }
        let inner = held(&self.inner);
        match &inner.failure {
            None => Ok(inner.steps),
            Some(why) => Err(why.clone()),
        }
    }

    fn spawn(self: &Arc<Stage>, name: &str, body: impl FnOnce() + Send + 'static) {
        let mut inner = held(&self.inner);
        let index = inner.roles.len();
        // Now and then an actor is slow.
        let weight = if inner.random.once_in(4) { 1 } else { 8 };
        inner.roles.push(Role {
            name: name.to_owned(),
            state: State::Ready,
            thread: None,
            weight,
        });
        let actor = Actor {
            stage: Arc::clone(self),
            index,
        };
        let started = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || actor.run(body));
        let handle = started.expect("a thread for an actor");
        inner.roles[index].thread = Some(handle.thread().clone());
        inner.handles.push(handle);
    }

    /// Pick who goes on, and wake that actor.
    fn pass_on(&self, mut inner: MutexGuard<'_, Inner>) {
        inner.steps += 1;
        self.now_us.fetch_add(1, Ordering::Relaxed);
        let next = if inner.steps > STEPS_MAX {
            Err("the simulation does not end".to_owned())
        } else {
            inner.pick(self)
        };
        match next {
            Ok(Some(next)) => {
                inner.roles[next].state = State::Ready;
                let before = self.current.swap(next, Ordering::AcqRel);
                if before != next
                    && let Some(thread) = &inner.roles[next].thread
                {
                    thread.unpark();
                }
            }
            Ok(None) => self.end(&inner),
            Err(why) => {
                inner.note_failure(&why);
                self.end(&inner);
            }
        }
    }

    fn await_turn(&self, index: usize) {
        while self.current.load(Ordering::Acquire) != index && !self.is_over.load(Ordering::Acquire)
        {
            std::thread::park();
        }
    }

    fn give_up(&self, why: &str) {
        let mut inner = held(&self.inner);
        inner.note_failure(why);
        self.end(&inner);
    }

    fn end(&self, inner: &Inner) {
        self.is_over.store(true, Ordering::Release);
        let threads = inner.roles.iter().filter_map(|role| role.thread.as_ref());
        threads.for_each(Thread::unpark);
        self.director.unpark();
    }
}

impl Inner {
    /// Pick at random an actor that can go on. None when all are done.
    fn pick(&mut self, stage: &Stage) -> Result<Option<usize>, String> {
        let current = stage.current.load(Ordering::Relaxed);
        loop {
            let now = stage.now_us.load(Ordering::Relaxed);
            let mut weights = 0;
            let mut earliest = u64::MAX;
            for role in &mut self.roles {
                if let State::Until(condition, end) = &mut role.state {
                    if *end <= now || condition() {
                        role.state = State::Ready;
                    } else {
                        earliest = earliest.min(*end);
                    }
                }
                if matches!(role.state, State::Ready) {
                    weights += role.weight;
                }
            }
            if weights > 0 {
                return Ok(Some(self.choose(current, weights)));
            }
            if earliest < u64::MAX {
                stage.now_us.store(earliest, Ordering::Relaxed);
                continue;
            }
            let is_done = |role: &Role| matches!(role.state, State::Done);
            return if self.roles.iter().all(is_done) {
                Ok(None)
            } else {
                Err("nobody can go on".to_owned())
            };
        }
    }

    fn choose(&mut self, current: usize, weights: u64) -> usize {
        let is_ready = |role: &Role| matches!(role.state, State::Ready);
        let stays = self.roles.get(current).is_some_and(is_ready);
        if stays && !self.random.once_in(self.change_over) {
            return current;
        }
        let mut at = self.random.below(weights);
        for (index, role) in self.roles.iter().enumerate().filter(|(_, r)| is_ready(r)) {
            if at < role.weight {
                return index;
            }
            at -= role.weight;
        }
        current
    }

    /// Note the first failure and what led to it.
    fn note_failure(&mut self, why: &str) {
        if self.failure.is_none() {
            self.failure = Some(format!("{why}\n{}", self.last_steps()));
        }
    }

    fn last_steps(&self) -> String {
        let mut text = String::new();
        let hidden = if std::env::var_os(WHOLE_ENV).is_some() {
            0
        } else {
            self.shown.len().saturating_sub(STEPS_SHOWN)
        };
        for step in self.shown.iter().skip(hidden) {
            let (a, b) = step.numbers;
            let name = &self.roles[step.actor].name;
            let line = format!(
                "{:>7} us {name:<12} {} {a:#x} {b:#x}\n",
                step.time_us, step.what
            );
            text.push_str(&line);
        }
        for role in &self.roles {
            let state = match &role.state {
                State::Ready => "ready",
                State::Locked(_) => "waits for a lock",
                State::Until(_, u64::MAX) => "waits",
                State::Until(..) => "pauses",
                State::Done => continue,
            };
            text.push_str(&format!("{:>10} {:<12} {state}\n", "", role.name));
        }
        text
    }
}

impl Actor {
    fn run(self, body: impl FnOnce()) {
        self.stage.await_turn(self.index);
        let stage = Arc::clone(&self.stage);
        let index = self.index;
        ACTOR.set(Some(self));
        if !stage.is_over.load(Ordering::Acquire)
            && let Err(panic) = catch_unwind(AssertUnwindSafe(body))
            && !panic.is::<Stop>()
        {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            stage.give_up(&format!("panic: {}", text.unwrap_or_default()));
        }
        ACTOR.set(None);
        let mut inner = held(&stage.inner);
        inner.roles[index].state = State::Done;
        if !stage.is_over.load(Ordering::Acquire) {
            stage.pass_on(inner);
        }
    }
}
