//! Makes a plan from a seed.
//!
//! Each plan uses only some kinds of steps, chosen by its seed. Some calls mask others: a discard may empty what a move
//! should have kept. With few kinds of steps, each kind appears often enough without the calls that mask it.

use vswap_drive::random::Random;

use crate::plan::{Head, Line, Plan};
use crate::step::{Access, Advice, Birth, Door, End, Kind, Place, Shut, Step, Use};

/// Pages of an arena, as the program has them.
const ARENA_PAGES: u32 = 512;
/// How deep children may have children.
const DEPTH_MAX: u32 = 2;
/// Most actors of a plan.
const ACTORS_MAX: u32 = 16;

const DOORS: [Door; 3] = [Door::Madvise, Door::ProcessMadvise, Door::IoUring];
const WAYS: [Access; 6] = [
    Access::Touch,
    Access::ProcessVm,
    Access::Pipe,
    Access::DirectIo,
    Access::ProcMem,
    Access::IoUringFixed,
];
const HINTS: [Advice; 18] = [
    Advice::Normal,
    Advice::Random,
    Advice::Sequential,
    Advice::WillNeed,
    Advice::Mergeable,
    Advice::Unmergeable,
    Advice::HugePage,
    Advice::NoHugePage,
    Advice::DontDump,
    Advice::DoDump,
    Advice::Cold,
    Advice::PageOut,
    Advice::PopulateRead,
    Advice::PopulateWrite,
    Advice::Collapse,
    Advice::KeepOnFork,
    Advice::DoFork,
    Advice::Unknown,
];

const SHUTS: [Shut; 9] = [
    Shut::Files,
    Shut::Names,
    Shut::Mounts,
    Shut::Pids,
    Shut::FromNothing,
    Shut::FromMoving,
    Shut::FromAdvice,
    Shut::FromProtection,
    Shut::FromUnmapping,
];

/// What is done in an arena of the library: mostly what moves pages.
const USES: [Use; 12] = [
    Use::Write,
    Use::Write,
    Use::Write,
    Use::Read,
    Use::Read,
    Use::Cold,
    Use::Cold,
    Use::WillNeed,
    Use::Pin,
    Use::Keep,
    Use::Drop,
    Use::Renew,
];

/// Kinds of steps that a plan may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Topic {
    Unmap,
    Move,
    Resize,
    Away,
    Protect,
    Discard,
    Free,
    Guard,
    Inheritance,
    Hints,
    Lock,
    Seal,
    Files,
    Shared,
    Brk,
    Limit,
    Shut,
    Signal,
    RawThread,
    Fork,
    BareFork,
    Library,
}

const TOPICS: [Topic; 22] = [
    Topic::Unmap,
    Topic::Move,
    Topic::Resize,
    Topic::Away,
    Topic::Protect,
    Topic::Discard,
    Topic::Free,
    Topic::Guard,
    Topic::Inheritance,
    Topic::Hints,
    Topic::Lock,
    Topic::Seal,
    Topic::Files,
    Topic::Shared,
    Topic::Brk,
    Topic::Limit,
    Topic::Shut,
    Topic::Signal,
    Topic::RawThread,
    Topic::Fork,
    Topic::BareFork,
    Topic::Library,
];

/// The plan of a seed. If topics are given, only these are used.
pub(crate) fn plan(seed: u64, wanted: &[Topic]) -> Plan {
    let mut random = Random::new(seed);
    let share = random.pick(&[15, 30, 50, 100]);
    let mut topics: Vec<Topic> = TOPICS
        .into_iter()
        .filter(|_| random.chance(share))
        .collect();
    if topics.is_empty() {
        topics.push(random.pick(&TOPICS));
    }
    if !wanted.is_empty() {
        topics = wanted.to_vec();
    }
    let threads = random.pick(&[1, 1, 2, 4]);
    let mut maker = Maker {
        random,
        topics,
        actors: threads,
        lines: Vec::new(),
        recent: Vec::new(),
        bare: false,
    };
    for actor in 0..threads {
        let steps = maker.random.between(20, 60);
        maker.actor(actor, steps, 0);
    }
    Plan {
        head: Head { seed, threads },
        lines: maker.lines,
    }
}

struct Maker {
    random: Random,
    topics: Vec<Topic>,
    actors: u32,
    lines: Vec<Line>,
    /// Ranges that earlier steps have used. What matters happens where something is mapped.
    recent: Vec<(u32, u32)>,
    /// The actor comes from a bare birth. If another thread held a lock of the C library at that moment, the lock is
    /// held for ever. So the actor may only give bare births itself.
    bare: bool,
}

impl Maker {
    /// The steps of one actor and of its children.
    fn actor(&mut self, actor: u32, steps: u32, depth: u32) {
        if depth == 0 {
            self.recent.clear();
        }
        for number in 0..steps {
            // Some memory has to exist first.
            if number < 2 && depth == 0 || self.random.chance(20) {
                self.new_memory(actor);
            } else {
                self.change(actor, depth);
            }
        }
    }

    fn push(&mut self, actor: u32, step: Step) {
        self.lines.push(Line { actor, step });
    }

    fn pause(&mut self, actor: u32) {
        let ms = self.random.between(3, 12);
        self.push(actor, Step::Pause { ms });
    }

    fn length(&mut self) -> u32 {
        match self.random.below(10) {
            0..=2 => self.random.between(1, 4),
            3..=6 => self.random.between(4, 40),
            7..=8 => self.random.between(32, 128),
            _ => self.random.between(100, 400),
        }
    }

    /// A range: often a recent one, or one that overlaps a recent one.
    fn range(&mut self) -> (u32, u32) {
        if !self.recent.is_empty() && self.random.chance(85) {
            let (at, pages) = self.random.pick(&self.recent.clone());
            return match self.random.below(10) {
                0..=3 => (at, pages),
                4..=5 => (at + pages / 2, pages),
                6..=7 => (
                    at + self.random.below(pages),
                    self.random.between(1, pages.max(1)),
                ),
                8 => (at, pages * 2),
                _ => (at.saturating_sub(pages / 2), pages),
            };
        }
        (self.random.below(ARENA_PAGES), self.length())
    }

    fn used(&mut self, range: (u32, u32)) {
        self.recent.push(range);
        if self.recent.len() > 12 {
            self.recent.remove(0);
        }
    }

    fn has(&self, topic: Topic) -> bool {
        self.topics.contains(&topic)
    }

    /// A new mapping, usually filled and then left alone for a while.
    fn new_memory(&mut self, actor: u32) {
        let (at, pages) = if self.random.chance(30) {
            self.range()
        } else {
            (self.random.below(ARENA_PAGES - 8), self.length())
        };
        let mut kinds = vec![Kind::Anon; 6];
        if self.has(Topic::Files) {
            kinds.extend([Kind::FilePrivate, Kind::MemfdPrivate]);
        }
        if self.has(Topic::Shared) {
            kinds.extend([Kind::FileShared, Kind::MemfdShared, Kind::SharedAnon]);
        }
        // Memory that nobody has written to does not merge again natively when it has been moved, or when it was read
        // while it differed from its neighbours. Under vswap it does: see docs/limits.md.
        let must_be_written = self.moves();
        let odd = self.has(Topic::Protect) && self.random.chance(25) && !must_be_written;
        let step = Step::Map {
            at,
            pages,
            kind: self.random.pick(&kinds),
            prot: if odd {
                self.random.pick(&[0, 1, 5, 7])
            } else {
                3
            },
            place: self
                .random
                .pick(&[Place::Fixed, Place::Fixed, Place::NoReplace, Place::Hint]),
            populate: self.random.chance(20),
            noreserve: self.random.chance(20),
        };
        self.push(actor, step);
        self.used((at, pages));
        if self.random.chance(85) || must_be_written {
            let by = self.way();
            self.push(actor, Step::Fill { at, pages, by });
        }
        if self.random.chance(70) {
            self.pause(actor);
        }
    }

    fn way(&mut self) -> Access {
        if self.random.chance(60) {
            Access::Touch
        } else {
            self.random.pick(&WAYS)
        }
    }

    /// Changes existing memory, and often looks at it afterwards.
    fn change(&mut self, actor: u32, depth: u32) {
        let (at, pages) = self.range();
        if self.random.chance(60) {
            self.pause(actor);
        }
        let topic = self.random.pick(&self.topics.clone());
        if let Some(step) = self.step(topic, depth, (at, pages)) {
            self.push(actor, step);
            if let Step::Fork { how, child, .. } = step {
                let steps = self.random.between(1, 10);
                let before = (self.recent.clone(), self.bare);
                self.bare |= matches!(how, Birth::BareFork | Birth::Clone | Birth::Clone3);
                if how == Birth::Spawn {
                    self.recent.clear();
                }
                if self.random.chance(20) {
                    let ms = self.random.between(50, 1000);
                    self.push(child, Step::Pause { ms });
                }
                self.actor(child, steps, depth + 1);
                if self.random.chance(30) {
                    let ms = self.random.between(20, 400);
                    self.push(child, Step::Linger { ms });
                }
                (self.recent, self.bare) = before;
            }
        }
        let by = self.way();
        match self.random.below(10) {
            0..=2 => self.push(actor, Step::Check { at, pages, by }),
            3..=4 => self.push(actor, Step::Fill { at, pages, by }),
            5 => {
                self.pause(actor);
                self.push(actor, Step::Check { at, pages, by });
            }
            _ => {}
        }
    }

    /// Are mappings moved? Only whole mappings move. So nothing is done that keeps them from merging where they merge
    /// natively (docs/limits.md).
    fn moves(&self) -> bool {
        [Topic::Move, Topic::Resize, Topic::Away]
            .into_iter()
            .any(|topic| self.has(topic))
    }

    fn step(&mut self, topic: Topic, depth: u32, (at, pages): (u32, u32)) -> Option<Step> {
        let moves = self.moves();
        let random = &mut self.random;
        Some(match topic {
            Topic::Unmap => Step::Unmap { at, pages },
            Topic::Move => {
                let step = Step::Move {
                    at,
                    pages,
                    to: random.below(ARENA_PAGES),
                    keep: random.chance(25),
                };
                if let Step::Move { to, .. } = step {
                    self.used((to, pages));
                }
                step
            }
            Topic::Resize => Step::Resize {
                at,
                pages,
                new: random.between(1, pages * 2),
            },
            Topic::Away => Step::Away { at, pages },
            Topic::Protect => Step::Protect {
                at,
                pages,
                prot: random.pick(&[0, 1, 1, 3, 3, 3, 5, 7]),
                pkey: random.chance(25),
            },
            Topic::Lock => match random.below(8) {
                0 => Step::LockAll {
                    future: random.chance(50) && !moves,
                },
                1 => Step::UnlockAll,
                2..=4 => Step::Unlock { at, pages },
                _ => Step::Lock {
                    at,
                    pages,
                    on_fault: random.chance(30),
                },
            },
            Topic::Seal => Step::Seal {
                at,
                pages: random.between(1, pages.min(16)),
            },
            Topic::Brk => Step::Brk {
                pages: random.between(1, 80),
            },
            // Only in a child, because they stay.
            Topic::Limit | Topic::Shut if depth == 0 => return None,
            Topic::Limit => Step::LimitAddressSpace,
            Topic::Shut => Step::ShutIn {
                how: random.pick(&SHUTS),
            },
            // Children have no arena.
            Topic::Library if depth > 0 => return None,
            Topic::Library => self.library((at, pages)),
            Topic::Signal => Step::Signal { at },
            Topic::RawThread => Step::RawThread { at },
            Topic::Fork if self.bare => return None,
            Topic::Fork => return self.fork(&[Birth::Fork, Birth::Spawn], depth),
            Topic::BareFork => {
                let births = [Birth::BareFork, Birth::Clone, Birth::Clone3];
                return self.fork(&births, depth);
            }
            Topic::Files | Topic::Shared => return None,
            Topic::Discard | Topic::Free | Topic::Guard | Topic::Inheritance | Topic::Hints => {
                self.advice(topic, (at, pages))
            }
        })
    }

    fn library(&mut self, (at, pages): (u32, u32)) -> Step {
        Step::Library {
            what: self.random.pick(&USES),
            at,
            pages,
        }
    }

    fn advice(&mut self, topic: Topic, (at, pages): (u32, u32)) -> Step {
        let moves = self.moves();
        let random = &mut self.random;
        let advice = match topic {
            Topic::Discard => random.pick(&[
                Advice::DontNeed,
                Advice::DontNeed,
                Advice::DontNeedLocked,
                Advice::Remove,
            ]),
            Topic::Free => Advice::Free,
            Topic::Guard => random.pick(&[Advice::GuardInstall, Advice::GuardRemove]),
            Topic::Inheritance => random.pick(&[
                Advice::WipeOnFork,
                Advice::WipeOnFork,
                Advice::KeepOnFork,
                Advice::DontFork,
                Advice::DontFork,
                Advice::DoFork,
            ]),
            _ => random.pick(&HINTS),
        };
        // Linux 6.18 itself loses pages if one process of a family frees them lazily and another then pages them out.
        let advice = if advice == Advice::PageOut && self.topics.contains(&Topic::Free) {
            Advice::Cold
        } else {
            advice
        };
        // vswap does not see advice from a ring, and then the memory may not merge where it merges natively.
        let must_be_seen = moves && matches!(advice, Advice::WipeOnFork | Advice::KeepOnFork);
        let door = if random.chance(50) || must_be_seen {
            Door::Madvise
        } else {
            random.pick(&DOORS)
        };
        Step::Advise {
            at,
            pages,
            advice,
            door,
        }
    }

    fn fork(&mut self, births: &[Birth], depth: u32) -> Option<Step> {
        if depth >= DEPTH_MAX || self.actors >= ACTORS_MAX {
            return None;
        }
        let child = self.actors;
        self.actors += 1;
        let how = self.random.pick(births);
        let end = match self.random.below(8) {
            0..=4 => End::Exit(self.random.below(50) as u8),
            5 => End::RawExit(self.random.below(50) as u8),
            _ => End::Signal(self.random.pick(&[9, 15])),
        };
        Some(Step::Fork {
            how,
            child,
            end,
            wait: self.random.chance(60),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_it_survives_its_text() {
        for seed in 0..50 {
            let made = plan(seed, &[]);
            assert_eq!(made, plan(seed, &[]));
            assert_eq!(Plan::parse(&made.text()).unwrap(), made);
            assert!(made.lines.len() >= 20);
        }
        assert_ne!(plan(1, &[]), plan(2, &[]));
    }

    #[test]
    fn every_kind_of_step_is_made() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..300 {
            for line in plan(seed, &[]).lines {
                let text = format!("{:?}", line.step);
                seen.insert(text.split([' ', '{']).next().unwrap_or("").to_owned());
            }
        }
        for kind in [
            "Map",
            "Unmap",
            "Move",
            "Resize",
            "Away",
            "Protect",
            "Advise",
            "Lock",
            "Unlock",
            "LockAll",
            "UnlockAll",
            "Seal",
            "Fill",
            "Check",
            "Brk",
            "LimitAddressSpace",
            "ShutIn",
            "Pause",
            "Signal",
            "RawThread",
            "Fork",
            "Library",
        ] {
            assert!(seen.contains(kind), "{kind} is never made, only {seen:?}");
        }
    }
}
