//! Clusters are used and emptied again and again, while threads swap in their pages.
//!
//! Keepers fill whole clusters with pages. When all have done so, they all let go. After each such tide only the
//! clusters that CPUs allocate from may be left. Meanwhile other threads bring back pages at random. They do so without
//! a reference, or with one of their own, which may be the last of a page and of a cluster.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use vswap_engine::{
    Codec, Config, Engine, Entry, GroupId, HeapPages, PAGE_BYTES, Page, SLOTS_PER_CLUSTER, Scratch,
    Shadow, SwapInError, WriteOutError,
};

use super::{Place, assert_is, assert_whole, fill, random};

const KEEPERS: usize = 2;
const FAULTERS: usize = 2;
const CPUS: usize = 2;
/// A test of a second or two, with clusters of either size.
const TIDES: u64 = if SLOTS_PER_CLUSTER == 512 { 60 } else { 2000 };
/// Pages of a keeper at high tide: two and a half clusters.
const PLACES: usize = 2 * SLOTS_PER_CLUSTER + SLOTS_PER_CLUSTER / 2;
/// Pages that wait in frames to be written out.
const WINDOW: usize = 8;

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn clusters_go_and_come_while_pages_of_them_are_swapped_in() {
    let pages = Arc::new(HeapPages::new());
    let config = Config {
        frames: KEEPERS * WINDOW,
        cpus: CPUS,
        codec: Codec::Lz4,
        pool_limit_bytes: (2 * KEEPERS * PLACES * PAGE_BYTES) as u64,
        checksums: true,
    };
    let engine = Engine::new(&config, Arc::clone(&pages) as _).expect("memory");
    let places: Vec<Place> = (0..KEEPERS * PLACES).map(|_| Mutex::new(None)).collect();
    let stop = AtomicBool::new(false);
    let (engine, places, stop) = (&engine, &places[..], &stop);
    let faults: u64 = std::thread::scope(|scope| {
        let faulters: Vec<_> = (0..FAULTERS)
            .map(|thread| scope.spawn(move || Faulter::new(engine, places, thread).run(stop)))
            .collect();
        let stops = StopsAtItsEnd(stop);
        for tide in 0..TIDES {
            keepers(places, |thread, own| {
                rise(engine, own, thread, tide * KEEPERS as u64 + thread as u64);
            });
            let full = (KEEPERS * PLACES / SLOTS_PER_CLUSTER) as u64;
            assert!(engine.stats().clusters >= full);
            keepers(places, |_, own| fall(engine, own));
            // A faulter may have the last reference to a page at this moment.
            let left = engine.stats().clusters;
            assert!(
                left <= (CPUS + FAULTERS) as u64,
                "{left} clusters at low tide"
            );
        }
        drop(stops);
        faulters
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .sum()
    });
    assert!(faults > TIDES, "{faults} pages were brought back");
    let stats = engine.stats();
    assert_eq!((stats.slots_used, stats.zero, stats.frames_used), (0, 0, 0));
    assert_eq!(
        (stats.pool_bytes, stats.damaged, stats.alloc_reject),
        (0, 0, 0)
    );
    assert!(stats.clusters <= CPUS as u64);
}

/// Stops the faulters, which must not outlive a failed test.
struct StopsAtItsEnd<'a>(&'a AtomicBool);

impl Drop for StopsAtItsEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets each keeper work on its own places.
fn keepers(places: &[Place], work: impl Fn(usize, &[Place]) + Sync) {
    std::thread::scope(|scope| {
        for (thread, own) in places.chunks(PLACES).enumerate() {
            let work = &work;
            scope.spawn(move || work(thread, own));
        }
    });
}

/// Fills places with pages of this generation.
fn rise(engine: &Engine, own: &[Place], cpu: usize, generation: u64) {
    let mut scratch = engine.scratch();
    // Never 0, and never the same twice.
    let seeds = (generation * PLACES as u64 + 1..).step_by(WINDOW);
    for (part, seeds) in own.chunks(WINDOW).zip(seeds) {
        put_in(engine, part, cpu, seeds, &mut scratch);
    }
}

fn fall(engine: &Engine, own: &[Place]) {
    for place in own {
        let taken = place.lock().expect("no panic").take();
        engine.put(taken.expect("filled").0);
    }
}

/// Swaps a page out for each place, and writes them out.
fn put_in(engine: &Engine, places: &[Place], cpu: usize, seeds: u64, scratch: &mut Scratch) {
    let mut entries = Vec::with_capacity(WINDOW);
    for (seed, place) in (seeds..).zip(places) {
        // A faulter that looks at a frame holds it for a moment longer than its page needs it.
        let mut frame = loop {
            match engine.frame() {
                Some(frame) => break frame,
                None => std::thread::yield_now(),
            }
        };
        fill(&mut frame, seed);
        let swapped = engine.swap_out(cpu, frame, Shadow::ABSENT, GroupId::ROOT);
        let entry = swapped.expect("memory for a slot");
        *place.lock().expect("no panic") = Some((entry, seed));
        entries.push(entry);
    }
    engine.write_out_all(cpu, &entries, scratch, |_, written| {
        assert!(
            written.is_ok() || written == Err(WriteOutError::Busy),
            "{written:?}"
        );
    });
}

/// Brings pages back.
struct Faulter<'a> {
    engine: &'a Engine,
    places: &'a [Place],
    scratch: Scratch,
    page: Box<Page>,
    state: u64,
}

impl<'a> Faulter<'a> {
    fn new(engine: &'a Engine, places: &'a [Place], thread: usize) -> Faulter<'a> {
        Faulter {
            engine,
            places,
            scratch: engine.scratch(),
            page: Box::new(Page::zeroed()),
            state: 0x0f0f_1234_5678_9abd + thread as u64,
        }
    }

    fn run(mut self, stop: &AtomicBool) -> u64 {
        let mut faults = 0;
        while !stop.load(Ordering::Relaxed) {
            let at = usize::try_from(random(&mut self.state)).expect("64 bits");
            let place = &self.places[at % self.places.len()];
            let is_ours = random(&mut self.state).is_multiple_of(2);
            let found = place.lock().expect("no panic").inspect(|(entry, _)| {
                if is_ours {
                    self.engine
                        .dup(*entry)
                        .expect("in use: its place is locked");
                }
            });
            let Some((entry, seed)) = found else {
                continue;
            };
            faults += u64::from(if is_ours {
                self.shared(entry, seed)
            } else {
                self.unshared(entry, seed, place)
            });
        }
        faults
    }

    /// We have a reference, so the page stays until we put it.
    fn shared(&mut self, entry: Entry, seed: u64) -> bool {
        let found = self
            .engine
            .swap_in(entry, &mut self.page, &mut self.scratch);
        found.expect("we hold a reference");
        assert_is(&self.page, seed);
        self.engine.put(entry);
        true
    }

    /// At any moment the page may go and another page may take its slot.
    fn unshared(&mut self, entry: Entry, seed: u64, place: &Place) -> bool {
        let found = self
            .engine
            .swap_in(entry, &mut self.page, &mut self.scratch);
        let stayed = *place.lock().expect("no panic") == Some((entry, seed));
        match found {
            Ok(_) if stayed => assert_is(&self.page, seed),
            Ok(_) if self.page.is_zero() => {}
            Ok(_) => assert_whole(&self.page),
            Err(SwapInError::Gone) => assert!(!stayed, "an entry in use was not found"),
            Err(error) => panic!("{error}"),
        }
        found.is_ok()
    }
}
