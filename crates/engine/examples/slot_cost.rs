//! What slots cost: nanoseconds of the engine's operations on one thread, and bytes of metadata for each slot.
//!
//! `cargo run --release -p vswap-engine --example slot_cost`
//!
//! Each figure is the median over batches of the mean time in a batch. A batch is so long that reading the clock does
//! not matter, and so short that most batches see no interrupt. Targets: lookup 15 ns, slot 60 ns.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use vswap_engine::{
    Codec, Config, Engine, Entry, FrameMut, GroupId, HeapPages, Lookup, Mapping, PAGE_BYTES, Page,
    SLOTS_PER_CLUSTER, Shadow,
};

const BATCHES: usize = 400;
const BATCH_OPS: usize = 2000;
/// Pages that leave a program together.
const WINDOW: usize = 64;
/// Entries that lookups visit at random: as many as a burst of faults touches, 32 MiB of pages.
const ENTRIES: usize = 8192;
/// Odd, so that it visits every one of a power of two of entries, each far from the one before.
const STRIDE: usize = 2971;

/// Nanoseconds for one `op`: the median over batches, and the fastest batch, which says more on a busy machine.
#[derive(Clone, Copy)]
struct Cost {
    median: f64,
    best: f64,
}

impl Cost {
    fn of(mut means: Vec<f64>) -> Cost {
        means.sort_by(f64::total_cmp);
        Cost {
            median: means[means.len() / 2],
            best: means[0],
        }
    }
}

impl std::ops::Sub for Cost {
    type Output = Cost;
    fn sub(self, other: Cost) -> Cost {
        Cost {
            median: self.median - other.median,
            best: self.best - other.best,
        }
    }
}

fn cost(mut op: impl FnMut(usize)) -> Cost {
    let means = (0..BATCHES)
        .map(|batch| {
            let start = Instant::now();
            for at in 0..BATCH_OPS {
                op(batch * BATCH_OPS + at);
            }
            start.elapsed().as_nanos() as f64 / BATCH_OPS as f64
        })
        .collect();
    Cost::of(means)
}

fn engine(frames: usize) -> Engine {
    let config = Config {
        frames,
        cpus: 2,
        codec: Codec::Lz4,
        pool_limit_bytes: 1 << 30,
        checksums: true,
    };
    Engine::new(&config, Arc::new(HeapPages::new())).expect("memory for the engine")
}

/// A page that lz4 compresses to about a third.
fn fill(page: &mut Page, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in page.0.chunks_mut(16) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.fill(7);
        chunk[..4].copy_from_slice(&state.to_le_bytes()[..4]);
    }
}

fn swap_out(engine: &Engine, seed: u64) -> Entry {
    let mut frame = engine.frame().expect("a free frame");
    if seed > 0 {
        fill(&mut frame, seed);
    } else {
        frame.0.fill(0);
    }
    engine
        .swap_out(0, frame, Shadow::truncated(seed), GroupId::ROOT)
        .expect("a slot")
}

fn report(what: &str, cost: Cost) {
    println!(
        "{what:<52} {:>8.1} ns   best {:>8.1}",
        cost.median, cost.best
    );
}

fn lookups(engine: &Engine, entries: &[Entry], what: &str) {
    let mask = entries.len() - 1;
    let mut held = Vec::with_capacity(BATCH_OPS);
    let mut means = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let start = Instant::now();
        for at in 0..BATCH_OPS {
            held.push(engine.lookup(entries[(at * STRIDE) & mask]));
        }
        means.push(start.elapsed().as_nanos() as f64 / BATCH_OPS as f64);
        assert!(!held.iter().any(|found| matches!(found, Lookup::Gone)));
        // Release the frames that were found, outside the measured time.
        held.clear();
    }
    report(what, Cost::of(means));
    report(
        "  and let go",
        cost(|at| drop(engine.lookup(entries[(at * STRIDE) & mask]))),
    );
}

fn swap_ins(engine: &Engine, entries: &[Entry], what: &str) {
    let mut scratch = engine.scratch();
    let mut page = Box::new(Page([0; PAGE_BYTES]));
    let mask = entries.len() - 1;
    let ns = cost(|at| {
        let entry = entries[(at * STRIDE) & mask];
        engine
            .swap_in(entry, &mut page, &mut scratch)
            .expect("stored");
        black_box(&page);
    });
    report(what, ns);
}

/// A page of a window: its frame, its slot, and all given back. First with a slot for each page that has come, then
/// with slots for all pages before they come.
fn windows(engine: &Engine) {
    let mut entries = Vec::with_capacity(WINDOW);
    let mut window = |fill: &dyn Fn(Vec<FrameMut<'_>>, &mut Vec<Entry>)| {
        let means = (0..BATCHES).map(|_| {
            let start = Instant::now();
            for _ in 0..BATCH_OPS / WINDOW {
                let frames = std::iter::from_fn(|| engine.frame()).take(WINDOW);
                fill(frames.collect(), &mut entries);
                entries.drain(..).for_each(|entry| engine.put(entry));
            }
            let pages = BATCH_OPS / WINDOW * WINDOW;
            start.elapsed().as_nanos() as f64 / pages as f64
        });
        Cost::of(means.collect())
    };
    let one_by_one = window(&|frames, entries| {
        let out = |frame| engine.swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT);
        entries.extend(frames.into_iter().map(|frame| out(frame).expect("a slot")));
    });
    let placed = window(&|frames, entries| {
        let (placed, _) = engine.place_all(0, frames, GroupId::ROOT, Mapping::Virtual);
        entries.extend(placed.into_iter().map(|page| page.publish(Shadow::ABSENT)));
    });
    report("page of a window: frame, slot, put", one_by_one);
    report("  the same, with all slots before the pages", placed);
}

fn main() {
    let small = engine(64);
    let frames = cost(|_| drop(black_box(small.frame())));
    let both = cost(|_| {
        let frame = small.frame().expect("a free frame");
        let entry = small
            .swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT)
            .expect("a slot");
        small.put(black_box(entry));
    });
    report("frame: take and give back", frames);
    report("frame + slot: take, publish, put", both);
    report("slot alone: allocate and free (difference)", both - frames);
    windows(&small);
    let entry = swap_out(&small, 1);
    let dups = cost(|_| {
        small.dup(entry).expect("in use");
        small.put(entry);
    });
    report("dup and put of a shared entry", dups);

    let large = engine(ENTRIES);
    let seeds = 1..=ENTRIES as u64;
    let entries: Vec<Entry> = seeds.map(|seed| swap_out(&large, seed)).collect();
    lookups(
        &large,
        &entries,
        "lookup, cached: claim the frame and look again",
    );
    swap_ins(&large, &entries, "swap_in, cached");
    let mut scratch = large.scratch();
    let start = Instant::now();
    for &entry in &entries {
        large
            .write_out(entry, &mut scratch)
            .expect("room in the pool");
    }
    let mean = start.elapsed().as_nanos() as f64 / ENTRIES as f64;
    report(
        "write_out, lz4 (mean)",
        Cost {
            median: mean,
            best: mean,
        },
    );
    lookups(&large, &entries, "lookup, stored");
    swap_ins(&large, &entries, "swap_in, compressed");
    let zeros: Vec<Entry> = (0..64).map(|_| swap_out(&large, 0)).collect();
    for &entry in &zeros {
        large
            .write_out(entry, &mut scratch)
            .expect("zeros need no room");
    }
    swap_ins(&large, &zeros, "swap_in, zero");

    let stats = large.stats();
    println!(
        "{} slots in {} clusters of {SLOTS_PER_CLUSTER}; payload {} bytes a page, pool memory {:.3} of it",
        stats.slots_used,
        stats.clusters,
        stats.payload_bytes / stats.compressed,
        stats.pool_bytes as f64 / stats.payload_bytes as f64,
    );
    for entry in entries.into_iter().chain(zeros) {
        large.put(entry);
    }
    let idle = large.stats();
    println!(
        "metadata: {} KiB in use, {} KiB idle (frame states for {ENTRIES} frames included)",
        stats.table_bytes / 1024,
        idle.table_bytes / 1024,
    );
}
