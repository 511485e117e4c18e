//! The threads of an arena: the evictor, and those that read areas. All block signals, and none touches memory of the
//! program but the evictor, which copies pages that it has claimed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use vswap_sys::sigbus::Masked;

use crate::allowance::LOOK_EVERY;
use crate::error::ArenaError;
use crate::evict::Evictor;
use crate::observer;
use crate::reader::Reader;
use crate::state::Core;

/// Reads of an area that are under way at a time.
const READERS: usize = 4;
/// Pause after a round in which nothing could leave, and how many times as long as that round it is at least: two laps
/// of a large arena take a while.
const IN_VAIN: Duration = Duration::from_millis(5);
const IN_VAIN_TIMES: u32 = 4;
/// Empty clusters of an area, 2 MiB each, that are given back to its file system in a round.
const DISCARDS: usize = 4;

/// The running threads.
#[derive(Debug)]
pub struct Threads {
    core: Arc<Core>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts them.
    ///
    /// # Errors
    /// The system gives no thread. Those that were started end.
    pub fn start(core: &Arc<Core>) -> Result<Threads, ArenaError> {
        // Threads begin with the mask of the one that makes them.
        let _masked = Masked::new();
        let mut threads = Threads {
            core: Arc::clone(core),
            handles: Vec::new(),
        };
        threads.spawn("arena-evict", evict)?;
        if core.areas.any() {
            for _ in 0..READERS {
                threads.spawn("arena-read", read)?;
            }
        }
        if core.is_observed {
            threads.spawn("arena-observe", |core| observer::observe(core))?;
        }
        Ok(threads)
    }

    fn spawn(&mut self, name: &str, work: fn(&Arc<Core>)) -> Result<(), ArenaError> {
        let core = Arc::clone(&self.core);
        let started = Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&core));
        let what = "a thread";
        self.handles
            .push(started.map_err(|error| ArenaError::System { what, error })?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !self.core.is_at_home() {
            // Nobody to wait for. The share that each thread has of the core is never given up here, so the core stays,
            // and with it areas whose connections are the parent's.
            return;
        }
        self.core.is_over.store(true, Ordering::SeqCst);
        self.core.room.wanted.happened();
        self.core.reads.asked.happened();
        for handle in self.handles.drain(..) {
            // One that has panicked has ended too.
            let _ = handle.join();
        }
        self.core.retire_areas();
    }
}

fn evict(core: &Arc<Core>) {
    let mut evictor = Evictor::new(Arc::clone(core));
    let is_over = || core.is_over.load(Ordering::SeqCst);
    while !is_over() {
        core.put_owed();
        core.look_at_allowance();
        core.set_cap();
        evictor.evict_cold();
        let begun = Instant::now();
        let is_vain = evictor.make_room() && !core.exceed_allowance();
        let pause = IN_VAIN.max(begun.elapsed() * IN_VAIN_TIMES);
        if core.areas.any() {
            core.engine.discard(DISCARDS);
        }
        let look = core.allowance.is_of_run().then_some(LOOK_EVERY);
        let timeout = if is_vain { Some(pause) } else { look };
        core.room
            .wanted
            .wait_unless(timeout, || is_over() || (!is_vain && core.has_work()));
    }
}

fn read(core: &Arc<Core>) {
    let is_over = || core.is_over.load(Ordering::SeqCst);
    let mut reader = Reader::new(core);
    while !is_over() {
        while reader.read_some(core) {}
        core.reads
            .asked
            .wait_unless(None, || is_over() || !core.reads.is_empty());
    }
}
