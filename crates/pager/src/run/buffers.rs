//! What a thread needs to bring pages back: contexts of the codec, and room for the pages.
//!
//! Threads that bring pages back all the time (readers, and threads that read areas) have their own buffers. Threads
//! that do so now and then, above all the evictors, borrow some for one call. So an idle process costs no buffers. The
//! lock of the spare buffers is innermost.

use vswap_engine::{Engine, Page, PageBuffer, Scratch};

use crate::base::lock::{Mutex, Row};
use crate::run::stats::{LatencyRecorder, Stats};

/// Most spare buffers. On a small machine about as many threads borrow at the same time. Buffers for more threads are
/// made and freed again.
const SPARE_MAX: usize = 4;

/// Buffers of one thread, used for one space after another.
#[derive(Debug)]
pub struct Buffers {
    /// Contexts of the codec.
    pub scratch: Scratch,
    /// How long faults took.
    pub recorder: LatencyRecorder,
    /// First page and number of pages of what was served, while the threads that wait for it have not been woken.
    pub served: Vec<(u64, u64)>,
    /// The pages being brought in. Grows to the longest window so far.
    pages: PageBuffer,
}

impl Buffers {
    /// Buffers for a thread that keeps them.
    pub fn new(engine: &Engine, stats: &Stats) -> Buffers {
        Buffers::recording(engine, stats.recorder())
    }

    fn recording(engine: &Engine, recorder: LatencyRecorder) -> Buffers {
        Buffers {
            scratch: engine.scratch(),
            recorder,
            served: Vec::new(),
            pages: engine.buffer(0),
        }
    }

    /// The contexts and room for `count` pages.
    pub fn parts(&mut self, count: usize) -> (&mut Scratch, &mut [Page]) {
        self.pages.grow(count);
        (&mut self.scratch, &mut self.pages[..count])
    }

    /// The pages that were brought in last.
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }
}

/// Buffers that nobody uses just now.
#[derive(Debug)]
pub struct SpareBuffers(Mutex<Spare>);

#[derive(Debug, Default)]
struct Spare {
    buffers: Vec<Buffers>,
    /// Shared by all who borrow: buffers come and go, but their measurements stay.
    recorder: Option<LatencyRecorder>,
}

impl Default for SpareBuffers {
    fn default() -> SpareBuffers {
        SpareBuffers(Mutex::new(
            Row::Innermost,
            "the spare buffers",
            Spare::default(),
        ))
    }
}

impl SpareBuffers {
    /// Borrow buffers.
    pub fn take(&self, engine: &Engine, stats: &Stats) -> Buffers {
        let (spare, recorder) = {
            let mut spare = self.0.lock();
            (spare.buffers.pop(), spare.recorder.clone())
        };
        if let Some(spare) = spare {
            return spare;
        }
        // Made without the lock, because the list of histograms has its own.
        let recorder = recorder.unwrap_or_else(|| {
            let made = stats.recorder();
            self.0.lock().recorder.get_or_insert(made).clone()
        });
        Buffers::recording(engine, recorder)
    }

    /// Give buffers back.
    pub fn give(&self, buffers: Buffers) {
        let mut spare = self.0.lock();
        if spare.buffers.len() < SPARE_MAX {
            spare.buffers.push(buffers);
        }
    }

    /// Borrow buffers for one call.
    pub fn with<R>(
        &self,
        engine: &Engine,
        stats: &Stats,
        call: impl FnOnce(&mut Buffers) -> R,
    ) -> R {
        let mut buffers = self.take(engine, stats);
        let result = call(&mut buffers);
        self.give(buffers);
        result
    }
}
