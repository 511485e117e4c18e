//! The engine is refused memory for a while: first there are few slots and no tables for more, then memory is back.
//!
//! Unsafe is needed because the engine takes its memory as raw pointers from a source that has to promise what it is.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vswap_engine::{Engine, Entry, GroupId, HeapPages, PageSource, Shadow, Written};

use super::actors;
use super::clock;
use super::random::Random;
use crate::life::run::Run;

/// Most slots that are left while memory is refused.
const SLOTS_MAX: u64 = 12;
/// Microseconds until memory is back.
const US_MAX: u64 = 400;

/// Memory that can be refused.
#[derive(Default)]
pub struct Scarce {
    heap: HeapPages,
    is_refused: AtomicBool,
}

// SAFETY: all runs come from the heap source. Unsafe because the trait is.
unsafe impl PageSource for Scarce {
    fn alloc(&self, pages: usize) -> Option<NonNull<u8>> {
        let is_refused = self.is_refused.load(Ordering::Relaxed);
        (!is_refused).then(|| self.heap.alloc(pages)).flatten()
    }

    unsafe fn free(&self, run: NonNull<u8>, pages: usize) {
        // SAFETY: the caller's contract is passed on.
        unsafe { self.heap.free(run, pages) };
    }
}

/// What simulations saw, all together.
#[derive(Default)]
pub struct Seen {
    /// Windows that found no slot.
    pub refused: AtomicU64,
    /// Pages that left while memory was refused, and all that left.
    pub out_before: AtomicU64,
    pub out: AtomicU64,
}

/// One shortage: the source, and entries that take up the slots there are.
pub struct Shortage {
    source: Arc<Scarce>,
    hoard: Mutex<Vec<Entry>>,
    pub seen: Seen,
}

impl Shortage {
    pub fn new(source: Arc<Scarce>) -> Shortage {
        Shortage {
            source,
            hoard: Mutex::new(Vec::new()),
            seen: Seen::default(),
        }
    }

    /// Refuse memory from now on, and take all slots that have tables but a few.
    pub fn begin(&self, engine: &Engine, seed: u64) {
        self.source.is_refused.store(true, Ordering::Relaxed);
        let mut scratch = engine.scratch();
        let mut hoard = Vec::new();
        loop {
            let mut frame = engine.frame().expect("a free frame");
            frame.0.fill(0);
            let Ok(entry) = engine.swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT) else {
                break;
            };
            let written = engine.write_out(entry, &mut scratch);
            assert_eq!(written, Ok(Written::Zero));
            hoard.push(entry);
        }
        let left = usize::try_from(Random::new(seed).below(SLOTS_MAX)).unwrap_or(0);
        let from = hoard.len().saturating_sub(left);
        hoard.drain(from..).for_each(|entry| engine.put(entry));
        *self.hoard() = hoard;
    }

    /// Start the actor that gives memory again after a while, as a writer notes it.
    pub fn end_later(self: &Arc<Shortage>, run: &Arc<Run>, seed: u64) {
        let (shortage, run) = (Arc::clone(self), Arc::clone(run));
        let pause = Duration::from_micros(Random::new(!seed).below(US_MAX));
        actors::spawn("memory", move || {
            clock::sleep(pause);
            let out = run.serving.stats.pages_out.get();
            shortage.seen.out_before.fetch_add(out, Ordering::Relaxed);
            shortage.end(&run.serving.engine);
            run.serving.limit.note_full(false, false);
        });
    }

    /// Give memory again, if it is still refused.
    pub fn end(&self, engine: &Engine) {
        self.source.is_refused.store(false, Ordering::Relaxed);
        let hoard = std::mem::take(&mut *self.hoard());
        hoard.into_iter().for_each(|entry| engine.put(entry));
    }

    fn hoard(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.hoard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
