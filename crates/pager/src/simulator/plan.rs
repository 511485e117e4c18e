//! Plans: what the threads of a simulated program do. A seed gives a plan, and any part of a plan is a plan.

use std::ops::Range;

use super::memory::PROGRAM;
use super::random::Random;

const THREADS_MAX: u64 = 3;
const CALLS: Range<u64> = 3..14;
const PAGES_MAX: u64 = 6;
/// Forks inside forks end at this depth.
const FORKS_DEEP: u32 = 2;

/// Kinds of calls, to be combined with or. The bits are the numbers in `call`.
pub mod kind {
    pub const UNMAP: u64 = 0b111 << 14;
    pub const MAP: u64 = 0b1111 << 17;
    pub const DISCARD: u64 = 0b1111 << 21;
    pub const REMAP: u64 = 0b111 << 27;
    pub const ALL: u64 = u64::MAX;
}

/// One call of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Read(Range<u64>),
    Write(Range<u64>),
    /// munmap. It may fail as in a process that may not have more mappings.
    Unmap {
        range: Range<u64>,
        fails: bool,
    },
    /// mmap anywhere, or replacing what is there.
    Map {
        at: Option<u64>,
        pages: u64,
    },
    Discard(Range<u64>),
    Guard {
        range: Range<u64>,
        on: bool,
    },
    Protect {
        range: Range<u64>,
        writable: bool,
    },
    Remap {
        old: Range<u64>,
        pages: u64,
        to: Option<u64>,
    },
    /// A fork announced by libc's hooks, or a bare clone.
    Fork {
        announced: bool,
        child: Vec<Call>,
    },
}

/// The calls of each thread of the first process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub threads: Vec<Vec<Call>>,
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Plan {
        let mut random = Random::new(!seed);
        // Some kinds are left out, because frequent failures would hide rare ones.
        Plan::of(seed, random.next() | random.next())
    }

    /// The plan of a seed with only some kinds of calls. All plans have reads and writes.
    pub fn of(seed: u64, kinds: u64) -> Plan {
        let mut random = Random::new(seed);
        let threads = 1 + random.below(THREADS_MAX);
        let threads = (0..threads).map(|_| calls(&mut random, kinds, 0)).collect();
        Plan { threads }
    }

    /// All plans with one call or one thread less.
    pub fn smaller(&self) -> Vec<Plan> {
        let mut plans = Vec::new();
        for thread in 0..self.threads.len() {
            let mut without = self.clone();
            without.threads.remove(thread);
            if !without.threads.is_empty() {
                plans.push(without);
            }
            for calls in without_one(&self.threads[thread]) {
                let mut less = self.clone();
                less.threads[thread] = calls;
                plans.push(less);
            }
        }
        plans
    }
}

fn without_one(calls: &[Call]) -> Vec<Vec<Call>> {
    let mut all = Vec::new();
    for index in 0..calls.len() {
        let mut without = calls.to_vec();
        if let Call::Fork { announced, child } = without.remove(index) {
            for child in without_one(&child) {
                let mut less = calls.to_vec();
                less[index] = Call::Fork { announced, child };
                all.push(less);
            }
        }
        all.push(without);
    }
    all
}

fn calls(random: &mut Random, kinds: u64, depth: u32) -> Vec<Call> {
    let count = CALLS.start + random.below(CALLS.end - CALLS.start);
    (0..count >> depth)
        .map(|_| call(random, kinds, depth))
        .collect()
}

fn range(random: &mut Random) -> Range<u64> {
    let start = PROGRAM.start + random.below(PROGRAM.end - PROGRAM.start);
    let pages = 1 + random.below(PAGES_MAX);
    start..(start + pages).min(PROGRAM.end)
}

fn call(random: &mut Random, kinds: u64, depth: u32) -> Call {
    loop {
        let kind = random.below(32);
        let range = range(random);
        if kind >= 14 && kinds >> kind & 1 == 0 {
            continue;
        }
        let pages = 1 + random.below(PAGES_MAX);
        let at = range.start.min(PROGRAM.end - pages);
        return match kind {
            0..9 => Call::Write(range),
            9..14 => Call::Read(range),
            14..17 => Call::Unmap {
                range,
                fails: random.once_in(3),
            },
            17..20 => Call::Map { at: None, pages },
            20 => Call::Map {
                at: Some(at),
                pages,
            },
            21..25 => Call::Discard(range),
            25 => Call::Guard {
                range,
                on: random.once_in(2),
            },
            26 => Call::Protect {
                range,
                writable: random.once_in(2),
            },
            27 => {
                let old = range.end - range.start;
                Call::Remap {
                    old: range,
                    pages: old,
                    to: Some(PROGRAM.start + random.below(PROGRAM.end - PROGRAM.start - old)),
                }
            }
            28..30 => Call::Remap {
                old: range,
                pages,
                to: None,
            },
            _ if depth < FORKS_DEEP => Call::Fork {
                announced: !random.once_in(4),
                child: calls(random, kinds, depth + 1),
            },
            _ => continue,
        };
    }
}
