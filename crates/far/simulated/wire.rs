//! Connections to simulated servers: how long things take, and what befalls requests on their way.
//!
//! A request is carried out when it is sent, and its answers come when they would: after the way there, the queue of
//! the server, its work, the way back, and the client's own network, which all requests share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Arg, Cmd, Value};
use vswap_far::{Address, Network, Role, Wire, WireError};

use crate::simulated::archive::family;
use crate::simulated::commands::{Session, Words};
use crate::simulated::seeded::Seeded;
use crate::simulated::world::{At, Gate, Late, State, World};

/// The longest that a late command is late.
const LATE: Duration = Duration::from_millis(700);
/// How long a slow answer takes.
const SLOW: Duration = Duration::from_millis(20);

/// How long a gate holds up a request at most: a test that has failed must come to its end.
const GATE_MAX: Duration = Duration::from_secs(30);
/// How often who waits there looks at it.
const GATE_LOOK: Duration = Duration::from_millis(1);

/// How fast servers and networks are.
#[derive(Debug, Clone, Copy)]
pub struct Speeds {
    pub round_trip: Duration,
    /// What a server needs for each command.
    pub command: Duration,
    /// What it needs for each KiB that comes or goes.
    pub kib: Duration,
    /// Bytes a second in each direction at the client. 0 is no limit.
    pub client: u64,
    /// How long before its time a waiting thread begins to spin: the system wakes nobody to the microsecond.
    pub spin: Duration,
}

/// When the client's network is free, out and in.
struct Link {
    out: Instant,
    back: Instant,
}

/// A simulated store: what a client is given instead of a network.
pub struct Simulated {
    world: Mutex<World>,
    link: Mutex<Link>,
    speeds: Speeds,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Simulated {
    pub fn new(shards: usize, is_cluster: bool, seed: u64, speeds: Speeds) -> Arc<Simulated> {
        let now = Instant::now();
        let world = World::new(shards, is_cluster, Seeded(seed), speeds.round_trip);
        Arc::new(Simulated {
            world: Mutex::new(world),
            link: Mutex::new(Link {
                out: now,
                back: now,
            }),
            speeds,
        })
    }

    /// Looks at the servers, or does something to them.
    pub fn world(&self) -> MutexGuard<'_, World> {
        let mut world = locked(&self.world);
        world.tick(Instant::now());
        world
    }

    /// How it is named: by its masters, three of them if it is a cluster.
    pub fn name(&self) -> String {
        let world = self.world();
        let masters = (0..world.shards.len()).map(|shard| world.machine(world.master(shard)));
        let named = if world.is_cluster { 3 } else { usize::MAX };
        let names: Vec<String> = masters
            .take(named)
            .map(|machine| machine.address.to_string())
            .collect();
        format!("valkey://{}", names.join(","))
    }

    /// When these bytes have gone through the client's network, in one direction.
    fn passed(&self, bytes: usize, from: Instant, back: bool) -> Instant {
        if self.speeds.client == 0 {
            return from;
        }
        let mut link = locked(&self.link);
        let free = if back { &mut link.back } else { &mut link.out };
        let takes = bytes as u64 * 1_000_000_000 / self.speeds.client;
        *free = from.max(*free) + Duration::from_nanos(takes);
        *free
    }

    fn wait(&self, until: Instant) {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            match left.checked_sub(self.speeds.spin) {
                Some(sleep) if !sleep.is_zero() => std::thread::sleep(sleep),
                _ => std::thread::yield_now(),
            }
        }
    }
}

/// [`Simulated`] as the client takes it.
pub struct Net(pub Arc<Simulated>);

fn broken<T>(what: &str) -> Result<T, WireError> {
    Err(WireError::Broken(what.into()))
}

impl Network for Net {
    fn connect(
        &self,
        to: &Address,
        role: Role,
        patience: Duration,
    ) -> Result<Box<dyn Wire>, WireError> {
        let mut world = self.0.world();
        world.counts.connections += 1;
        let (Some(at), Role::Store) = (world.find(to), role) else {
            return broken("no such server");
        };
        let machine = world.machine(at);
        let (state, generation) = (machine.state, machine.generation);
        let round_trip = machine.distance * 2;
        drop(world);
        match state {
            State::Refuses => return broken("connection refused"),
            State::Silent => {
                std::thread::sleep(patience);
                return broken("no answer in time");
            }
            State::Up | State::Loading => self.0.wait(Instant::now() + round_trip),
        }
        Ok(Box::new(Line {
            net: Arc::clone(&self.0),
            at,
            generation,
            session: Session::default(),
            answers: VecDeque::new(),
            end: None,
            patience,
        }))
    }
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Reset,
    /// Nothing comes any more.
    Silence,
}

/// What befalls one request.
enum Fate {
    Served,
    /// So many of its commands are carried out, and so many of the answers come.
    Reset(usize, usize),
    /// Carried out when nobody waits for it any more.
    Late(Option<Instant>),
}

struct Line {
    net: Arc<Simulated>,
    at: At,
    generation: u64,
    session: Session,
    answers: VecDeque<(Instant, Value)>,
    end: Option<End>,
    patience: Duration,
}

impl World {
    /// What the passing of time brings.
    pub fn tick(&mut self, now: Instant) {
        self.sweep(now);
        let mut late = std::mem::take(&mut self.late);
        late.retain(|late| {
            let machine = self.machine(late.at);
            if machine.generation != late.generation {
                return false;
            }
            let is_due = late
                .due
                .map_or(machine.state == State::Up, |due| due <= now);
            if is_due && machine.state == State::Up {
                self.counts.late += 1;
                let mut session = Session::default();
                for words in &late.commands {
                    self.answer(late.at, &mut session, words);
                }
            }
            !is_due
        });
        self.late.append(&mut late);
    }

    fn fate(&mut self, at: At, commands: usize) -> Fate {
        if self.machine(at).state == State::Silent {
            return Fate::Late(None);
        }
        if self.random.once_in(self.weather.reset) {
            self.counts.resets += 1;
            let done = self.random.below(commands + 1);
            return Fate::Reset(done, self.random.below(done + 1));
        }
        if self.random.once_in(self.weather.late) {
            let late = self.random.between(Duration::ZERO, LATE);
            return Fate::Late(Some(Instant::now() + late));
        }
        Fate::Served
    }
}

fn words(command: &Cmd) -> Words {
    let each = command.args_iter();
    each.map(|argument| match argument {
        Arg::Simple(bytes) => bytes.to_vec(),
        _ => b"0".to_vec(),
    })
    .collect()
}

fn length(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(length).sum::<usize>() + 8,
        Value::BulkString(bytes) => bytes.len() + 8,
        _ => 8,
    }
}

fn writes_pages(words: &Words) -> bool {
    words[0] == b"HSET" && words.get(1).is_some_and(|key| family(key).is_some())
}

impl Line {
    /// Waits at the gate if these are to. Returns whether they were.
    fn pass_gate(&self, commands: &[Words]) -> bool {
        {
            let mut world = self.net.world();
            if world.gate != Gate::Closed(self.at) || !commands.iter().any(writes_pages) {
                return false;
            }
            world.gate = Gate::Held;
        }
        let until = Instant::now() + GATE_MAX;
        while self.net.world().gate == Gate::Held && Instant::now() < until {
            std::thread::sleep(GATE_LOOK);
        }
        true
    }

    fn is_gone(&self) -> bool {
        self.net.world().machine(self.at).generation != self.generation
    }

    /// Carries out commands, each by itself: others come in between.
    fn carry_out(&mut self, commands: &[Words], answered: usize) {
        let sent: usize = commands.iter().flatten().map(|word| word.len() + 8).sum();
        let gone = self.net.passed(sent, Instant::now(), false);
        for (index, words) in commands.iter().enumerate() {
            let mut world = self.net.world();
            let value = world.answer(self.at, &mut self.session, words);
            world.note_answer(&value);
            let (is_slow, speeds) = {
                let slow = world.weather.slow;
                (world.random.once_in(slow), &self.net.speeds)
            };
            let sent = words.iter().map(|word| word.len() + 8).sum::<usize>();
            let bytes = sent + length(&value);
            world.counts.bytes_in += sent as u64;
            world.counts.bytes_out += length(&value) as u64;
            let machine = world.machine_mut(self.at);
            let work = speeds.command + speeds.kib * u32::try_from(bytes / 1024).expect("small");
            let begins = machine.free_at.max(gone + machine.distance);
            machine.free_at = begins + work;
            let mut ready = machine.free_at + machine.distance;
            if is_slow {
                ready += SLOW;
            }
            drop(world);
            let ready = self.net.passed(length(&value), ready, true);
            if index < answered {
                self.answers.push_back((ready, value));
            }
        }
    }
}

impl Wire for Line {
    fn set_patience(&mut self, patience: Duration) -> Result<(), WireError> {
        self.patience = patience.max(Duration::from_millis(1));
        Ok(())
    }

    fn send(&mut self, commands: &[&Cmd]) -> Result<(), WireError> {
        if self.is_gone() {
            return broken("broken pipe");
        }
        let commands: Vec<Words> = commands.iter().map(|command| words(command)).collect();
        let was_held = self.pass_gate(&commands);
        let fate = {
            let mut world = self.net.world();
            world.counts.requests += 1;
            world.fate(self.at, commands.len())
        };
        match fate {
            Fate::Served => self.carry_out(&commands, commands.len()),
            Fate::Reset(done, answered) => {
                self.carry_out(&commands[..done], answered);
                self.end = Some(End::Reset);
            }
            Fate::Late(due) => {
                let mut world = self.net.world();
                world.counts.unanswered += 1;
                let (at, generation) = (self.at, self.generation);
                world.late.push(Late {
                    due,
                    at,
                    generation,
                    commands,
                });
                self.end = Some(End::Silence);
            }
        }
        if was_held {
            self.net.world().gate = Gate::Passed;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Value, WireError> {
        let now = Instant::now();
        let next = self.answers.front().map(|(ready, _)| *ready);
        match next {
            Some(ready) if ready <= now + self.patience => self.net.wait(ready),
            None if self.end == Some(End::Reset) || self.is_gone() => {
                return broken("connection reset by peer");
            }
            _ => {
                std::thread::sleep(self.patience);
                return broken("no answer in time");
            }
        }
        if self.is_gone() {
            return broken("connection reset by peer");
        }
        match self.answers.pop_front() {
            Some((_, value)) => Ok(value),
            None => broken("no answer"),
        }
    }
}
