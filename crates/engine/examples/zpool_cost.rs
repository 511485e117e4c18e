//! What a page costs in the compressed pool: nanoseconds per step, and bytes of memory per byte of payload.
//!
//! `cargo run --release -p vswap-engine --example zpool_cost [PAGES]`, 20000 pages by default. Content comes from
//! seeds. One thread. Each step is timed by itself for each page and the median is printed, so that other work on the
//! machine does not count. The clock's own cost is subtracted.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vswap_engine::codec::Codec;
use vswap_engine::pages::{HeapPages, PAGE_BYTES, Page, PageSource};
use vswap_engine::zpool::{Handle, Pool};

#[path = "../src/zpool/testing.rs"]
mod testing;
use testing::{Content, page_bytes, seeded};

const PAGES_DEFAULT: usize = 20_000;

/// Different pages per kind of content. They are stored again and again with one byte changed.
const SAMPLES: u64 = 512;

/// Keeps every run that it gets back for the next caller with that length. So the example times the pool, and not the
/// kernel's first touch of fresh memory.
struct WarmPages {
    fresh: HeapPages,
    idle: Mutex<[Vec<usize>; 9]>,
}

impl WarmPages {
    fn idle(&self) -> MutexGuard<'_, [Vec<usize>; 9]> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: Runs come from HeapPages and are given to one caller at a time. Unsafe because the trait is.
unsafe impl PageSource for WarmPages {
    fn alloc(&self, pages: usize) -> Option<NonNull<u8>> {
        let idle = self.idle().get_mut(pages)?.pop();
        match idle {
            Some(run) => NonNull::new(std::ptr::with_exposed_provenance_mut(run)),
            None => self.fresh.alloc(pages),
        }
    }

    unsafe fn free(&self, run: NonNull<u8>, pages: usize) {
        if let Some(idle) = self.idle().get_mut(pages) {
            idle.push(run.as_ptr().expose_provenance());
        }
    }
}

/// Median of times, in nanoseconds.
struct Times {
    samples: Vec<Duration>,
    clock: Duration,
}

impl Times {
    fn new(clock: Duration) -> Times {
        Times {
            samples: Vec::new(),
            clock,
        }
    }

    fn time<R>(&mut self, step: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = black_box(step());
        self.samples.push(start.elapsed());
        result
    }

    fn p50(mut self) -> u128 {
        self.samples.sort_unstable();
        let middle = self
            .samples
            .get(self.samples.len() / 2)
            .copied()
            .unwrap_or_default();
        middle.saturating_sub(self.clock).as_nanos()
    }
}

fn clock_cost() -> Duration {
    let mut times = Times::new(Duration::ZERO);
    for _ in 0..10_000 {
        times.time(|| ());
    }
    Duration::from_nanos(u64::try_from(times.p50()).unwrap_or(0))
}

fn order(len: usize) -> Vec<usize> {
    let mut random = seeded(99);
    let mut order: Vec<usize> = (0..len).collect();
    for at in (1..len).rev() {
        order.swap(at, usize::try_from(random()).unwrap_or(0) % (at + 1));
    }
    order
}

/// Payloads that are loaded again and again, which shows what the pool adds when nothing comes from far memory.
const NEAR: usize = 64;

/// Stores `pages` pages with timing, after a first round that only warms the page source.
fn fill(
    pool: &Pool,
    samples: &[Page],
    codec: Codec,
    pages: usize,
    [compress, store]: [&mut Times; 2],
) -> Vec<Handle> {
    let mut scratch = codec.scratch();
    let mut handles: Vec<Handle> = Vec::with_capacity(pages);
    for _round in ["warm", "measured"] {
        for handle in handles.drain(..) {
            pool.free(handle);
        }
        compress.samples.clear();
        store.samples.clear();
        for at in 0..pages {
            let page = &samples[at % samples.len()];
            let packed = compress.time(|| codec.compress(page, &mut scratch));
            let payload = packed.unwrap_or(&page.0);
            let stored = store.time(|| pool.store(payload));
            handles.push(stored.expect("no limit"));
        }
    }
    handles
}

fn measure(kind: Content, codec: Codec, pages: usize, clock: Duration) {
    let samples: Vec<Page> = (0..SAMPLES)
        .map(|seed| Page(*page_bytes(kind, seed)))
        .collect();
    let mut scratch = codec.scratch();
    let source = WarmPages {
        fresh: HeapPages::new(),
        idle: Mutex::default(),
    };
    let pool = Pool::new(Arc::new(source), u64::MAX);
    let fresh = || Times::new(clock);
    let [
        mut compress,
        mut store,
        mut far,
        mut near,
        mut decompress,
        mut free,
    ] = [fresh(), fresh(), fresh(), fresh(), fresh(), fresh()];
    let handles = fill(&pool, &samples, codec, pages, [&mut compress, &mut store]);
    let stats = pool.stats();
    let mut dst = Page::zeroed();
    // In random order, as faults come: payload and entry are seldom in a near cache.
    for at in order(handles.len()) {
        let handle = handles[at];
        far.time(|| pool.with(handle, <[u8]>::len).expect("stored"));
        decompress
            .time(|| pool.with(handle, |payload| scratch.decompress(payload, &mut dst)))
            .expect("stored")
            .expect("compressed just now");
        assert!(
            dst == samples[at % samples.len()],
            "page {at} came back changed"
        );
    }
    let (mut store_near, mut free_near) = (fresh(), fresh());
    let sample = codec
        .compress(&samples[0], &mut scratch)
        .unwrap_or(&samples[0].0)
        .to_vec();
    for at in 0..pages {
        let handle = store_near.time(|| pool.store(&sample)).expect("no limit");
        free_near.time(|| pool.free(handle));
        near.time(|| pool.with(handles[at % NEAR], <[u8]>::len).expect("stored"));
    }
    for at in order(handles.len()) {
        free.time(|| pool.free(handles[at]));
    }
    let objects = stats.objects.max(1) as f64;
    println!(
        "{:<7} {:<5} {:>8.0} {:>9} {:>5}/{:>4} {:>5}/{:>4} {:>11} {:>5}/{:>4} {:>8.2} {:>11.1}",
        format!("{kind:?}"),
        format!("{codec:?}"),
        stats.payload_bytes as f64 / objects,
        compress.p50(),
        store_near.p50(),
        store.p50(),
        near.p50(),
        far.p50(),
        decompress.p50(),
        free_near.p50(),
        free.p50(),
        100.0 * (stats.span_bytes as f64 / stats.payload_bytes as f64 - 1.0),
        stats.table_bytes as f64 / objects,
    );
}

fn main() {
    let pages = std::env::args().nth(1).and_then(|pages| pages.parse().ok());
    let pages = pages.unwrap_or(PAGES_DEFAULT);
    let clock = clock_cost();
    println!(
        "{pages} pages of {PAGE_BYTES} bytes per line; p50 in ns; the clock's {clock:?} taken off"
    );
    println!(
        "content codec  payload  compress store near/far  load near/far decompress free near/far spare % table B/obj"
    );
    for kind in [
        Content::Heap,
        Content::Text,
        Content::Sparse,
        Content::Random,
    ] {
        for codec in [Codec::Lz4, Codec::Zstd] {
            measure(kind, codec, pages, clock);
        }
    }
}
