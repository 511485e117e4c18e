//! What it takes to ask an engine for its figures, by how much is swapped out: of all clusters, and by a recount. And
//! what it takes to give everything up, as when a process ends that has so much out.
//!
//! `cargo run --release -p vswap-engine --example figures_cost [GIB…]`, by default 1, 16 and 256. The pages are zeros,
//! which take slots and nothing else: 24 bytes of memory each with the list of entries, 6.3 GiB for a TiB.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_engine::{
    Codec, Config, Engine, Entry, GroupId, HeapPages, PAGE_BYTES, Recount, Shadow, Stats,
};

/// How often each is asked for.
const TIMES: usize = 100;
const GIBS: [u64; 3] = [1, 16, 256];

fn main() -> ExitCode {
    let given: Result<Vec<u64>, _> = std::env::args().skip(1).map(|arg| arg.parse()).collect();
    let sizes = match given {
        Ok(sizes) if sizes.is_empty() => GIBS.to_vec(),
        Ok(sizes) if sizes.iter().all(|gib| (1..=4096).contains(gib)) => sizes,
        _ => {
            eprintln!("expected sizes in GiB, whole numbers from 1 to 4096");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "swapped out, GiB   all clusters, us         recount, us              once around, calls   given up, ms"
    );
    sizes.into_iter().for_each(report);
    ExitCode::SUCCESS
}

fn report(gib: u64) {
    let (engine, entries) = filled((gib << 30) / PAGE_BYTES as u64);
    let whole = times(|| engine.stats());
    let mut recount = Recount::default();
    let around = (1..).find(|_| engine.recount(&mut recount) == engine.stats());
    let part = times(|| engine.recount(&mut recount));
    let begun = Instant::now();
    let mut puts = engine.puts();
    entries.into_iter().for_each(|entry| puts.put(entry));
    drop(puts);
    println!(
        "{gib:>16}   {:<22}   {:<22}   {:>18}   {:>12.1}",
        spread(&whole),
        spread(&part),
        around.unwrap_or_default(),
        begun.elapsed().as_secs_f64() * 1e3
    );
}

/// An engine with so many zero pages, and their entries.
fn filled(pages: u64) -> (Engine, Vec<Entry>) {
    let config = Config {
        frames: 64,
        cpus: 1,
        codec: Codec::Lz4,
        pool_limit_bytes: 1 << 20,
        checksums: true,
    };
    let engine = Engine::new(&config, Arc::new(HeapPages::new())).expect("memory for the engine");
    let mut scratch = engine.scratch();
    let mut entries = Vec::new();
    for _ in 0..pages {
        let mut frame = engine.frame().expect("a free frame");
        frame.0.fill(0);
        let entry = engine.swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT);
        let entry = entry.expect("a slot");
        engine
            .write_out(entry, &mut scratch)
            .expect("zeros go nowhere");
        entries.push(entry);
    }
    (engine, entries)
}

fn times(mut ask: impl FnMut() -> Stats) -> Vec<Duration> {
    let mut one = || {
        let begun = Instant::now();
        std::hint::black_box(ask());
        begun.elapsed()
    };
    let mut times: Vec<Duration> = (0..TIMES).map(|_| one()).collect();
    times.sort_unstable();
    times
}

/// Median, lowest and highest, in microseconds.
fn spread(times: &[Duration]) -> String {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let (median, last) = (times[times.len() / 2], times[times.len() - 1]);
    format!("{:.1} ({:.1}..{:.1})", us(median), us(times[0]), us(last))
}
