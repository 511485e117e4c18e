//! One thread of the program and its arena. It runs its steps in order and records the answer of each.

use std::io;

use crate::program::Shared;
use crate::program::access::Channels;
use crate::program::calls::{self, Answer, PAGE_BYTES, Span};
use crate::program::family::Child;
use crate::program::library::Library;
use crate::program::log::Wrong;
use crate::program::model::{ARENA_PAGES, Model};
use crate::program::open::{self, Objects};
use crate::step::Step;

/// Where the arenas are: far from every address that a loader or the kernel chooses.
const ARENAS: usize = 0x1000_0000_0000;
/// Distance from one arena to the next. Most of it stays empty.
const ARENA_STRIDE: usize = 1 << 32;
/// How many children an actor may have that it has not waited for.
pub(crate) const CHILDREN_MAX: usize = 16;

/// A thread and what it owns.
#[derive(Debug)]
pub(crate) struct Actor<'a> {
    pub(crate) shared: &'a Shared,
    /// The actor whose steps it runs.
    pub(crate) number: u32,
    pub(crate) base: usize,
    pub(crate) model: Model,
    pub(crate) objects: Objects,
    pub(crate) channels: Channels,
    /// Memory in the library's arena, if a step of the plan needs it.
    pub(crate) library: Option<Library>,
    pub(crate) children: [Child; CHILDREN_MAX],
    /// The process has only this thread.
    pub(crate) alone: bool,
    /// The children of the process live in another pid namespace than it does itself. So it may start no thread.
    pub(crate) divided: bool,
    /// How many children the process may still have.
    pub(crate) births_left: u32,
    /// The process can make no more mappings.
    pub(crate) limited: bool,
    /// The process has had a ring. The ring's worker may end after the last thread, and then the worker's status
    /// counts.
    pub(crate) had_ring: bool,
    /// The line that runs now.
    pub(crate) line: usize,
}

impl<'a> Actor<'a> {
    /// An actor with an empty arena.
    pub(crate) fn new(shared: &'a Shared, number: u32) -> io::Result<Self> {
        let mut model = Model::new();
        let objects = open::objects(&mut model, number)?;
        let actors = shared.plan.head.threads;
        let library = shared
            .arena
            .as_ref()
            .map(|arena| Library::new(arena, actors));
        Ok(Self {
            shared,
            number,
            base: ARENAS + number as usize * ARENA_STRIDE,
            model,
            objects,
            channels: open::channels(number)?,
            library: library.transpose().map_err(io::Error::other)?,
            children: [Child::NONE; CHILDREN_MAX],
            alone: shared.alone,
            divided: false,
            births_left: u32::MAX,
            limited: false,
            had_ring: false,
            line: 0,
        })
    }

    /// Runs all steps of this actor.
    pub(crate) fn run(&mut self) {
        let shared = self.shared;
        for line in &shared.by_actor[self.number as usize] {
            self.line = *line;
            shared.log.begin(*line);
            let answer = self.step(shared.plan.lines[*line].step);
            shared.log.done(*line, answer, self.model.layout());
        }
    }

    /// Checks everything a last time, and waits for the children that still live.
    pub(crate) fn finish(&mut self) {
        self.check_all();
        self.check_all_of_library();
        self.wait_for_all();
    }

    pub(crate) fn address(&self, page: usize) -> usize {
        self.base + page * PAGE_BYTES
    }

    pub(crate) fn span(&self, range: &std::ops::Range<usize>) -> Span {
        Span {
            start: self.address(range.start),
            bytes: range.len() * PAGE_BYTES,
        }
    }

    /// Makes an answer comparable: addresses that the kernel chooses differ from run to run.
    pub(crate) fn place_of(&self, answer: Answer) -> Answer {
        let offset = (answer.0 as usize).wrapping_sub(self.base) / PAGE_BYTES;
        match answer {
            (_, 0) if offset < ARENA_PAGES => (offset as i64, 0),
            (_, 0) => (ELSEWHERE, 0),
            failed => failed,
        }
    }

    pub(crate) fn fail(&self, what: Wrong, address: usize, words: (u64, u64)) -> ! {
        self.shared.log.fail(self.line, what, address, words)
    }

    fn step(&mut self, step: Step) -> Answer {
        match step {
            Step::Map { .. } => self.map(step),
            Step::Unmap { at, pages } => self.unmap(at, pages),
            Step::Move {
                at,
                pages,
                to,
                keep,
            } => self.move_to(Model::range(at, pages), to, keep),
            Step::Resize { at, pages, new } => self.resize(Model::range(at, pages), new),
            Step::Away { at, pages } => self.away(Model::range(at, pages)),
            Step::Protect {
                at,
                pages,
                prot,
                pkey,
            } => self.protect(at, pages, prot, pkey),
            Step::Advise { .. } => self.advise(step),
            Step::Lock {
                at,
                pages,
                on_fault,
            } => self.lock(at, pages, on_fault),
            Step::Unlock { at, pages } => self.unlock(at, pages),
            Step::LockAll { future } => self.lock_all(future),
            Step::UnlockAll => self.unlock_all(),
            Step::Seal { at, pages } => self.seal(at, pages),
            Step::Fill { at, pages, by } => self.fill(Model::range(at, pages), by),
            Step::Check { at, pages, by } => self.check(Model::range(at, pages), by),
            Step::Brk { pages } => self.brk(pages),
            Step::LimitAddressSpace => self.limit_address_space(),
            Step::ShutIn { how } => self.shut_in(how),
            Step::Pause { ms } => {
                if !self.shared.fast {
                    calls::sleep_ms(ms);
                }
                (0, 0)
            }
            Step::Linger { ms } => self.linger(ms),
            Step::Signal { at } => self.signal(at),
            Step::RawThread { at } => self.raw_thread(at),
            Step::Library { what, at, pages } => self.library(what, &Model::range(at, pages)),
            Step::Fork {
                how,
                child,
                end,
                wait,
            } => self.fork(how, child, end, wait),
        }
    }
}

/// The answer of a call that returned an address outside the arena.
pub(crate) const ELSEWHERE: i64 = -2;
/// The answer of a step that this process leaves out.
pub(crate) const LEFT_OUT: i64 = -3;
