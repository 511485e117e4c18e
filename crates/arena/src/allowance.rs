//! How much RAM an arena may take now: what was asked for, or what the `vswap run` around it grants of that.
//!
//! A grant is no promise that less is enough. Where nothing more can leave, because neither pool nor area has a place,
//! the arena takes more than it is granted, step by step up to what was asked for. Otherwise a run whose limit is
//! lowered would kill a program that did nothing wrong. From time to time it tries again to do with less.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use vswap_sys::grant::Grant;

/// The least RAM: what the engine and the desks take beside, and some windows of pages.
pub const RAM_LEAST_BYTES: u64 = 8 << 20;
/// How often the run is asked.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a new arena waits for the first answer. The run looks about as often as the arena does, unless it is busy.
const FIRST_PATIENCE: Duration = Duration::from_millis(300);
/// More than was granted is taken in steps of one part in so many of the RAM, and given back in smaller ones.
const STEP_PART: u64 = 16;
const BACK_PART: u64 = 128;

/// What was asked for, and what may be taken.
#[derive(Debug)]
pub struct Allowance {
    asked_bytes: u64,
    asked_pool_bytes: u64,
    ram_bytes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    source: Source,
    looked: Instant,
    /// Less than this was not enough lately.
    needed_bytes: u64,
}

/// Who says how much.
#[derive(Debug)]
enum Source {
    /// Nobody: there is no run.
    Nobody,
    Run(Grant),
    #[cfg(test)]
    Test(std::sync::Arc<AtomicU64>),
}

impl Source {
    fn bytes(&mut self) -> Option<u64> {
        match self {
            Source::Nobody => None,
            Source::Run(grant) => grant.bytes(),
            #[cfg(test)]
            Source::Test(bytes) => Some(bytes.load(Ordering::SeqCst)),
        }
    }
}

/// What may be taken has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// What the pool may take.
    pub pool_bytes: u64,
}

impl Allowance {
    /// For an arena that wants so much RAM, and so much of it for its pool. Waits a moment for the run, if there is
    /// one.
    pub fn new(asked_bytes: u64, asked_pool_bytes: u64) -> Allowance {
        let source = match Grant::new(asked_bytes) {
            Some(mut grant) => {
                grant.wait(FIRST_PATIENCE);
                Source::Run(grant)
            }
            None => Source::Nobody,
        };
        Allowance::from(asked_bytes, asked_pool_bytes, source)
    }

    fn from(asked_bytes: u64, asked_pool_bytes: u64, source: Source) -> Allowance {
        let allowance = Allowance {
            asked_bytes,
            asked_pool_bytes,
            ram_bytes: AtomicU64::new(asked_bytes),
            state: Mutex::new(State {
                source,
                looked: Instant::now(),
                needed_bytes: 0,
            }),
        };
        allowance.set(0);
        allowance
    }

    /// RAM that may be taken now.
    pub fn ram_bytes(&self) -> u64 {
        self.ram_bytes.load(Ordering::SeqCst)
    }

    /// What the pool may take of it: as large a part as was asked for.
    pub fn pool_bytes(&self) -> u64 {
        let part = u128::from(self.asked_pool_bytes) * u128::from(self.ram_bytes());
        u64::try_from(part / u128::from(self.asked_bytes.max(1))).unwrap_or(u64::MAX)
    }

    /// Does a run say how much it is?
    pub fn is_of_run(&self) -> bool {
        !matches!(self.lock().source, Source::Nobody)
    }

    /// Asks the run, if it was not asked for a while. For the evictor.
    pub fn look(&self) -> Option<Changed> {
        let needed_bytes = {
            let mut state = self.lock();
            if state.looked.elapsed() < LOOK_EVERY {
                return None;
            }
            state.looked = Instant::now();
            state.needed_bytes -= state.needed_bytes.div_ceil(BACK_PART);
            state.needed_bytes
        };
        self.set(needed_bytes)
    }

    /// Nothing more can leave: takes more than was granted. None if that is all that was asked for already.
    pub fn exceed(&self) -> Option<Changed> {
        let bytes = self.ram_bytes();
        let more = bytes
            .saturating_add(bytes / STEP_PART)
            .min(self.asked_bytes);
        self.lock().needed_bytes = more;
        self.set(more)
    }

    fn set(&self, needed_bytes: u64) -> Option<Changed> {
        let granted = self.lock().source.bytes().unwrap_or(self.asked_bytes);
        let bytes = granted
            .max(RAM_LEAST_BYTES)
            .max(needed_bytes)
            .min(self.asked_bytes);
        let before = self.ram_bytes.swap(bytes, Ordering::SeqCst);
        (before != bytes).then(|| Changed {
            pool_bytes: self.pool_bytes(),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Allowance {
    /// Has a test say how much it is from now on.
    pub fn follow(&self, bytes: &std::sync::Arc<AtomicU64>) {
        self.lock().source = Source::Test(std::sync::Arc::clone(bytes));
    }
}
