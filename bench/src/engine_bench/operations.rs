//! Single operations of the engine through its public interface.
//!
//! An order-0 slot cannot be had without a frame, so allocation takes a frame too. The frame's own cost is measured
//! beside it. Each thread goes through a shuffle of its own of the entries, so that entries used one after the other
//! are not neighbours in memory.

use vswap_engine::{Codec, Config, Engine, Entry, PAGE_BYTES, Page, Scratch, SwapIn};

use crate::engine_bench::Failure;
use crate::engine_bench::cell::{BATCH, Cell, Meter, cpu};
use crate::engine_bench::pages::fill_words;
use crate::engine_bench::plan::{Plan, THREADS, in_order};
use crate::engine_bench::record::Sample;
use crate::engine_bench::setup::{self, swap_out};
use crate::random::Random;

/// Entries of each kind: 32 MiB of pages. Words, backing words and frame states together fit a second-level cache.
const ENTRIES: usize = 8192;
/// Entries of the large set: 4 GiB of pages, whose words alone are 8 MiB.
const FAR_ENTRIES: usize = 1 << 20;
/// Slots that all threads hold together while they free and allocate: 64 MiB of pages.
const HELD: usize = 1 << 14;
/// Frames: those with kept content, and the most that the threads hold.
const FRAMES: usize = ENTRIES + HELD + THREADS[THREADS.len() - 1];
/// Room for the entries of one kind, uncompressed.
const POOL_BYTES: u64 = (2 * ENTRIES * PAGE_BYTES) as u64;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Lookup,
    LookupZero,
    LookupFar,
    Frame,
    AllocFree,
    AllocFreeHeld,
    AllocFreeOldest,
    DupPut,
    InZero,
    InCached,
    InPool,
}

const ALL: [Op; 11] = [
    Op::Lookup,
    Op::LookupZero,
    Op::LookupFar,
    Op::Frame,
    Op::AllocFree,
    Op::AllocFreeHeld,
    Op::AllocFreeOldest,
    Op::DupPut,
    Op::InZero,
    Op::InCached,
    Op::InPool,
];

impl Op {
    const fn name(self) -> &'static str {
        match self {
            Op::Lookup => "lookup, cached (holds and lets go of the frame)",
            Op::LookupZero => "lookup, zero",
            Op::LookupFar => "lookup, zero, among 4 GiB of pages",
            Op::Frame => "frame, taken and given back",
            Op::AllocFree => "alloc+free of a slot, frame included",
            Op::AllocFreeHeld => "alloc+free, random ones of 16384 held",
            // Clusters become empty, and their tables' memory goes back to the system and is asked for again.
            Op::AllocFreeOldest => "alloc+free, the oldest of 16384 held",
            Op::DupPut => "dup+put",
            Op::InZero => "swap in, zero",
            Op::InCached => "swap in, cached",
            Op::InPool => "swap in, pool (lz4)",
        }
    }
}

/// An engine with entries of each kind.
struct Stage {
    engine: Engine,
    cached: Vec<Entry>,
    zero: Vec<Entry>,
    far: Vec<Entry>,
    pool: Vec<Entry>,
}

impl Stage {
    fn new(far: usize) -> Result<Stage, Failure> {
        let config = Config {
            codec: Codec::Lz4,
            pool_limit_bytes: POOL_BYTES,
            checksums: true,
            ..setup::without_pool(FRAMES)
        };
        let (engine, _) = setup::engine(&config)?;
        let mut stage = Stage {
            engine,
            cached: Vec::new(),
            zero: Vec::new(),
            far: Vec::new(),
            pool: Vec::new(),
        };
        let mut random = Random::new(0);
        let mut page = Box::new(Page::zeroed());
        stage.zero = stage.fill(ENTRIES, &page, true)?;
        stage.far = stage.fill(far, &page, true)?;
        // Words of five random and eleven zero bits each. lz4 compresses such a page to about half.
        fill_words(&mut page, || random.next() & 0x1f00_001f_0000_1f1f);
        stage.pool = stage.fill(ENTRIES, &page, true)?;
        stage.cached = stage.fill(ENTRIES, &page, false)?;
        for entries in [
            &mut stage.cached,
            &mut stage.zero,
            &mut stage.far,
            &mut stage.pool,
        ] {
            shuffle(entries, &mut random);
        }
        Ok(stage)
    }

    fn fill(&self, count: usize, page: &Page, leave: bool) -> Result<Vec<Entry>, Failure> {
        let mut scratch = self.engine.scratch();
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = swap_out(&self.engine, 0, |frame| frame.0 = page.0)?;
            if leave {
                let written = self.engine.write_out(entry, &mut scratch);
                written.map_err(Failure::of("a page could not be stored"))?;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    fn entries(&self, op: Op) -> &[Entry] {
        match op {
            Op::LookupZero | Op::InZero | Op::DupPut => &self.zero,
            Op::LookupFar => &self.far,
            Op::InPool => &self.pool,
            _ => &self.cached,
        }
    }
}

fn shuffle(entries: &mut [Entry], random: &mut Random) {
    for at in (1..entries.len()).rev() {
        entries.swap(at, random.below(at + 1));
    }
}

/// Measures every operation with every number of threads.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Sample>, Failure> {
    let meter = Meter::new(plan.cell);
    let far = if plan.quick { ENTRIES } else { FAR_ENTRIES };
    let stage = Stage::new(far)?;
    let mut samples = Vec::new();
    for backwards in plan.backwards_by_round() {
        for threads in THREADS {
            for op in in_order(&ALL, backwards) {
                if !plan.wants(op.name(), "engine") {
                    continue;
                }
                let cell = measure(&meter, &stage, op, threads)?;
                samples.push(Sample {
                    table_bytes: stage.engine.stats().table_bytes,
                    ..Sample::new(op.name(), "engine", threads, &cell)
                });
            }
        }
    }
    Ok(samples)
}

fn measure(meter: &Meter, stage: &Stage, op: Op, threads: usize) -> Result<Cell, Failure> {
    meter.run(threads, |thread| {
        let mut worker = Worker::new(stage, op, thread, HELD / threads)?;
        Ok(move || worker.batch())
    })
}

/// One thread's part.
struct Worker<'a> {
    engine: &'a Engine,
    op: Op,
    entries: &'a [Entry],
    /// The thread's position in the entries.
    at: usize,
    held: Vec<Entry>,
    random: Random,
    scratch: Scratch,
    page: Box<Page>,
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.held.iter().for_each(|&entry| self.engine.put(entry));
    }
}

impl<'a> Worker<'a> {
    fn new(stage: &'a Stage, op: Op, thread: usize, held: usize) -> Result<Worker<'a>, Failure> {
        let entries = stage.entries(op);
        let mut random = Random::new(thread as u64);
        let mut worker = Worker {
            engine: &stage.engine,
            op,
            entries,
            at: random.below(entries.len()),
            held: Vec::new(),
            random,
            scratch: stage.engine.scratch(),
            page: Box::new(Page::zeroed()),
        };
        if matches!(op, Op::AllocFreeHeld | Op::AllocFreeOldest) {
            for _ in 0..held {
                worker.held.push(worker.alloc(cpu())?);
            }
        }
        Ok(worker)
    }

    fn batch(&mut self) -> Result<(), Failure> {
        match self.op {
            Op::Lookup | Op::LookupZero | Op::LookupFar => {
                for _ in 0..BATCH {
                    let entry = self.next();
                    std::hint::black_box(self.engine.lookup(entry));
                }
            }
            Op::Frame => {
                for _ in 0..BATCH {
                    std::hint::black_box(self.engine.frame());
                }
            }
            Op::AllocFree => self.alloc_free()?,
            Op::AllocFreeHeld | Op::AllocFreeOldest => self.replace()?,
            Op::DupPut => self.dup_put()?,
            Op::InZero | Op::InCached | Op::InPool => self.swap_in()?,
        }
        Ok(())
    }

    fn next(&mut self) -> Entry {
        self.at = if self.at + 1 < self.entries.len() {
            self.at + 1
        } else {
            0
        };
        self.entries[self.at]
    }

    fn alloc(&self, cpu: usize) -> Result<Entry, Failure> {
        swap_out(self.engine, cpu, |_| ())
    }

    fn alloc_free(&mut self) -> Result<(), Failure> {
        let cpu = cpu();
        for _ in 0..BATCH {
            let entry = self.alloc(cpu)?;
            self.engine.put(entry);
        }
        Ok(())
    }

    fn replace(&mut self) -> Result<(), Failure> {
        let cpu = cpu();
        for _ in 0..BATCH {
            self.at = match self.op {
                Op::AllocFreeHeld => self.random.below(self.held.len()),
                _ => (self.at + 1) % self.held.len(),
            };
            self.engine.put(self.held[self.at]);
            self.held[self.at] = self.alloc(cpu)?;
        }
        Ok(())
    }

    fn dup_put(&mut self) -> Result<(), Failure> {
        for _ in 0..BATCH {
            let entry = self.next();
            self.engine
                .dup(entry)
                .map_err(Failure::of("an entry could not be shared"))?;
            self.engine.put(entry);
        }
        Ok(())
    }

    fn swap_in(&mut self) -> Result<(), Failure> {
        let expected = match self.op {
            Op::InZero => SwapIn::Zero,
            Op::InCached => SwapIn::Cached,
            _ => SwapIn::Compressed,
        };
        for _ in 0..BATCH {
            let entry = self.next();
            let from = self
                .engine
                .swap_in(entry, &mut self.page, &mut self.scratch);
            let from = from.map_err(Failure::of("a page did not come back"))?;
            if from != expected {
                return Err(Failure::new(format!(
                    "a page came from {from:?}, expected {expected:?}"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vswap_engine::Lookup;

    use super::*;

    #[test]
    fn every_operation_runs_and_leaves_the_engine_as_it_was() {
        let meter = Meter::new(Duration::from_millis(1));
        let stage = Stage::new(ENTRIES).unwrap();
        let before = stage.engine.stats();
        assert_eq!(
            (before.zero, before.compressed),
            (2 * ENTRIES as u64, ENTRIES as u64)
        );
        assert!(matches!(
            stage.engine.lookup(stage.cached[0]),
            Lookup::Cached(_)
        ));
        for op in ALL {
            assert!(measure(&meter, &stage, op, 2).unwrap().ops > 0, "{op:?}");
        }
        let after = stage.engine.stats();
        assert_eq!(
            (after.slots_used, after.frames_used),
            (before.slots_used, before.frames_used)
        );
    }
}
