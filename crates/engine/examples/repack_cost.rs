//! What packing again costs, and what it gives: `cargo run --release -p vswap-engine --example repack_cost [PAGES]`.
//!
//! Fills a pool with pages as lz4 packs them, packs all of them again, and moves them together. Every page is read and
//! verified before and after. The content is generated: real heaps differ from it.

#[path = "../src/zpool/testing.rs"]
mod content;

use std::sync::Arc;
use std::time::{Duration, Instant};

use content::{Content, page_bytes};
use vswap_engine::{
    Codec, Config, Engine, Entry, GroupId, HeapPages, PAGE_BYTES, Page, Scratch, Shadow,
};

const PAGES_DEFAULT: usize = 40_000;
/// Pages of different content. More would take longer to make than to measure.
const SAMPLES: usize = 512;

fn engine(pages: usize) -> Engine {
    let config = Config {
        frames: 16,
        cpus: 1,
        codec: Codec::Lz4,
        pool_limit_bytes: (pages * PAGE_BYTES) as u64,
        checksums: true,
    };
    Engine::new(&config, Arc::new(HeapPages::new())).expect("memory")
}

/// Stores a page. Returns the time that packing and storing took.
fn store(engine: &Engine, page: &Page, scratch: &mut Scratch) -> (Entry, Duration) {
    let mut frame = engine.frame().expect("a free frame");
    frame.0.copy_from_slice(&page.0);
    let entry = engine.swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT);
    let entry = entry.expect("a slot");
    let since = Instant::now();
    engine.write_out(entry, scratch).expect("room");
    (entry, since.elapsed())
}

/// Reads and verifies all pages. Returns the median time of a read in ns.
fn read_all(engine: &Engine, entries: &[Entry], samples: &[Page], scratch: &mut Scratch) -> u128 {
    let mut page = Page::zeroed();
    let mut times: Vec<Duration> = Vec::with_capacity(entries.len());
    // In an order that no cache knows beforehand.
    for at in (0..entries.len()).map(|at| at * 7919 % entries.len()) {
        let since = Instant::now();
        engine
            .swap_in(entries[at], &mut page, scratch)
            .expect("stored");
        times.push(since.elapsed());
        assert!(page == samples[at % samples.len()], "page {at} differs");
    }
    times.sort_unstable();
    times[times.len() / 2].as_nanos()
}

fn measure(kind: Content, pages: usize) {
    let samples: Vec<Page> = (0..SAMPLES as u64)
        .map(|seed| Page(*page_bytes(kind, seed)))
        .collect();
    let engine = engine(2 * pages);
    let mut scratch = engine.scratch();
    let (mut entries, mut out) = (Vec::with_capacity(pages), Duration::ZERO);
    for at in 0..pages {
        let (entry, took) = store(&engine, &samples[at % SAMPLES], &mut scratch);
        entries.push(entry);
        out += took;
    }
    let read_before = read_all(&engine, &entries, &samples, &mut scratch);
    let before = engine.stats();
    (0..2).for_each(|_| engine.begin_generation());
    let since = Instant::now();
    let done = engine.repack(usize::MAX, &mut scratch);
    let took = since.elapsed();
    engine.compact(usize::MAX);
    let after = engine.stats();
    let read_after = read_all(&engine, &entries, &samples, &mut scratch);
    let per_page = |bytes: u64| bytes as f64 / pages as f64;
    println!(
        "{:<7} {:>6} {:>6} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>8.2} {:>8.2} {:>9} {:>9}",
        format!("{kind:?}"),
        done.pages,
        done.dense,
        per_page(before.payload_bytes),
        per_page(after.payload_bytes),
        per_page(before.pool_bytes),
        per_page(after.pool_bytes),
        out.as_secs_f64() * 1e6 / pages as f64,
        took.as_secs_f64() * 1e6 / pages as f64,
        read_before,
        read_after,
    );
}

fn main() {
    let pages = std::env::args().nth(1).and_then(|pages| pages.parse().ok());
    let pages = pages.unwrap_or(PAGES_DEFAULT);
    println!("{pages} pages of each kind; bytes and us are for each page, reads are medians in ns");
    println!(
        "content  again  dense payload      now   memory      now   out us again us   read ns       now"
    );
    for kind in [
        Content::Heap,
        Content::Text,
        Content::Sparse,
        Content::Random,
    ] {
        measure(kind, pages);
    }
}
