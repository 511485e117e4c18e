//! What a thread needs to bring a page back: contexts of the codec, and a page to unpack into. Made beforehand, because
//! a handler may not allocate.
//!
//! A desk is held for one page, with signals blocked, and nobody faults meanwhile. So whoever finds all of them taken
//! has one soon. The locks are only ever tried.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use vswap_engine::{Engine, Page, PageBuffer, Scratch};

/// More than so many threads do not unpack at the same time.
const DESKS_MOST: usize = 32;

/// One desk.
#[derive(Debug)]
pub struct Desk {
    scratch: Scratch,
    buffer: PageBuffer,
}

impl Desk {
    /// A desk in the engine's memory.
    pub fn new(engine: &Engine) -> Desk {
        Desk {
            scratch: engine.scratch(),
            buffer: engine.buffer(1),
        }
    }

    /// The page and the contexts.
    pub fn parts(&mut self) -> (&mut Page, &mut Scratch) {
        (&mut self.buffer[0], &mut self.scratch)
    }
}

/// All desks.
#[derive(Debug)]
pub struct Desks {
    desks: Box<[Mutex<Desk>]>,
    /// Where the next one begins to look, so that they do not all try the same.
    next: AtomicUsize,
}

impl Desks {
    /// Desks for so many processors.
    pub fn new(engine: &Engine, cpus: usize) -> Desks {
        // One more, for a thread that was put aside while it held one.
        let count = (cpus + 1).min(DESKS_MOST);
        Desks {
            desks: (0..count).map(|_| Mutex::new(Desk::new(engine))).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Works at a desk.
    pub fn with<R>(&self, work: impl FnOnce(&mut Desk) -> R) -> R {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        loop {
            for at in 0..self.desks.len() {
                let desk = &self.desks[(start.wrapping_add(at)) % self.desks.len()];
                if let Ok(mut desk) = desk.try_lock() {
                    return work(&mut desk);
                }
            }
            std::thread::yield_now();
        }
    }
}
