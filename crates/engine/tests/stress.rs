//! Many threads on one engine. Each does random operations on shared entries for a few seconds, while one more thread
//! takes areas away and brings them back.
//!
//! A shared page table of locked places stands in for the pager's. Readers copy a place's entry and then swap it in
//! *without* the lock. So puts, write-outs and reuse of slot and frame happen during their reads. The first bytes of
//! every page give the seed that it was made from. A reader must always get one whole page, and if the place did not
//! change meanwhile, the place's page.

#![cfg(not(any(loom, shuttle)))]

#[path = "stress/clusters.rs"]
mod clusters;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vswap_engine::{
    Codec, Config, Discard, Engine, Entry, GroupId, GroupLimits, HeapPages, Lookup, NewArea,
    PAGE_BYTES, PRIORITY_DEFAULT, Page, RamStorage, Scratch, Shadow, SwapInError, SwapOffError,
    TierId, WriteOutError, Written,
};

const THREADS: u64 = if cfg!(miri) { 2 } else { 4 };
const PLACES: usize = 96;
const FRAMES: usize = 24;
const OPERATIONS: u64 = if cfg!(miri) { 12 } else { 60_000 };
/// Pages that are written out together.
const BATCH_MAX: usize = 5;
/// Small enough to be full now and then.
const POOL_LIMIT_BYTES: u64 = 24 * PAGE_BYTES as u64;
/// Slots of each of two areas. Together with the pool they are too few for all places.
const AREA_SLOTS: usize = 20;

/// The most areas that are swapped off in one run. Each one's tables are those of the area before it.
const EXCHANGES_MAX: u64 = if cfg!(miri) { 2 } else { 2000 };

type Place = Mutex<Option<(Entry, u64)>>;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
}

/// Content of a seed: zeros, a page that compresses, or one that does not. Each can be checked as a whole.
fn fill(page: &mut Page, seed: u64) {
    page.0.fill(0);
    if seed.is_multiple_of(5) {
        return;
    }
    let step = if seed.is_multiple_of(7) { 8 } else { 64 };
    let mut state = seed;
    for chunk in page.0.chunks_mut(step) {
        chunk[..8].copy_from_slice(&state.to_le_bytes());
        random(&mut state);
    }
}

fn assert_is(page: &Page, seed: u64) {
    let mut expected = Box::new(Page([0; PAGE_BYTES]));
    fill(&mut expected, seed);
    assert!(page.0 == expected.0, "not the page of seed {seed}");
}

/// Checks that the page is a whole one of those that were ever written.
fn assert_whole(page: &Page) {
    let seed = u64::from_le_bytes(page.0[..8].try_into().expect("eight bytes"));
    assert_is(page, seed);
}

struct Worker<'a> {
    engine: &'a Engine,
    places: &'a [Place],
    scratch: Scratch,
    page: Box<Page>,
    state: u64,
    thread: u64,
    made: u64,
    /// The root, and groups with limits.
    groups: [GroupId; 3],
    /// Pages that went to an area from their frame, and from the pool.
    written: u64,
    written_back: u64,
    /// Pages that were packed again.
    repacked: u64,
}

impl<'a> Worker<'a> {
    fn pick(&mut self, below: usize) -> usize {
        usize::try_from(random(&mut self.state)).expect("64 bits") % below
    }

    fn place(&mut self) -> &'a Place {
        &self.places[self.pick(PLACES)]
    }

    fn peek(&mut self) -> Option<(Entry, u64)> {
        *self.place().lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&mut self) {
        for _ in 0..OPERATIONS {
            match random(&mut self.state) % 13 {
                0..3 => self.swap_out(),
                3..6 => self.write_out(),
                6..8 => self.swap_in(),
                8 => self.share(),
                9 => {
                    self.engine.compact(1);
                }
                10 => self.write_back(),
                11 => self.repack(),
                _ => self.drop_one(),
            }
        }
    }

    fn swap_out(&mut self) {
        let Some(mut frame) = self.engine.frame() else {
            return self.write_out();
        };
        self.made += 1;
        // Never 0, because the seed in a page's first bytes tells the page from one of zeros.
        let seed = self.made * THREADS + self.thread + 1;
        fill(&mut frame, seed);
        // Any CPU number: threads migrate.
        let cpu = self.pick(64);
        let shadow = Shadow::truncated(seed);
        let group = self.groups[self.pick(3)];
        let entry = self
            .engine
            .swap_out(cpu, frame, shadow, group)
            .expect("memory for a slot");
        let old = self.place().lock().unwrap().replace((entry, seed));
        if let Some((old, _)) = old {
            self.engine.put(old);
        }
    }

    fn write_out(&mut self) {
        let wanted = 1 + self.pick(BATCH_MAX);
        let entries: Vec<Entry> = (0..wanted).filter_map(|_| Some(self.peek()?.0)).collect();
        let cpu = self.pick(64);
        let (mut refused, mut written) = (0, 0);
        self.engine
            .write_out_all(cpu, &entries, &mut self.scratch, |_, result| match result {
                Ok(Written::Physical) => written += 1,
                Ok(_) | Err(WriteOutError::Busy | WriteOutError::NotCached) => {}
                Err(WriteOutError::Full | WriteOutError::Limited) => refused += 1,
                Err(error @ WriteOutError::Unwritable(_)) => panic!("{error}"),
            });
        self.written += written;
        (0..refused).for_each(|_| self.drop_one());
    }

    fn write_back(&mut self) {
        let (cpu, pages) = (self.pick(64), 1 + self.pick(BATCH_MAX));
        let done = self.engine.write_back(cpu, pages, &mut self.scratch);
        assert_eq!((done.refused, done.damaged), (0, 0));
        self.written_back += done.pages as u64;
        if self.pick(4) == 0 {
            self.engine.begin_generation();
        }
    }

    fn repack(&mut self) {
        let pages = 1 + self.pick(BATCH_MAX);
        let done = self.engine.repack(pages, &mut self.scratch);
        assert_eq!(done.damaged, 0);
        self.repacked += done.pages as u64;
    }

    fn swap_in(&mut self) {
        let at = self.pick(PLACES);
        let Some((entry, seed)) = *self.places[at].lock().unwrap() else {
            return;
        };
        let result = self
            .engine
            .swap_in(entry, &mut self.page, &mut self.scratch);
        // If the place still has the entry, the entry stayed alive all the time, because seeds are never used twice.
        let stayed = *self.places[at].lock().unwrap() == Some((entry, seed));
        match result {
            Ok(_) => {
                if stayed {
                    assert_is(&self.page, seed);
                } else if !self.page.is_zero() {
                    assert_whole(&self.page);
                }
            }
            Err(SwapInError::Gone) => assert!(!stayed, "an entry in use was not found"),
            Err(error) => panic!("{error}"),
        }
        if let Lookup::Cached(frame) = self.engine.lookup(entry)
            && !frame.is_zero()
        {
            assert_whole(&frame);
        }
    }

    /// Adds references under the place's lock, as a fork does, and takes them away without it.
    fn share(&mut self) {
        let times = random(&mut self.state) % 20;
        let place = self.place().lock().unwrap_or_else(PoisonError::into_inner);
        let Some((entry, seed)) = *place else {
            return;
        };
        for _ in 0..times {
            self.engine.dup(entry).expect("in use: its place is locked");
        }
        drop(place);
        for _ in 0..times {
            self.engine
                .swap_in(entry, &mut self.page, &mut self.scratch)
                .expect("we hold a reference");
            assert_is(&self.page, seed);
            self.engine.put(entry);
        }
    }

    fn drop_one(&mut self) {
        let taken = self.place().lock().unwrap().take();
        if let Some((entry, _)) = taken {
            self.engine.put(entry);
        }
    }
}

fn new_area(tier: u64) -> NewArea {
    NewArea {
        slots: AREA_SLOTS as u64,
        bad: vec![0],
        priority: PRIORITY_DEFAULT,
        tier: tier_id(tier),
        discard: Discard::Pages,
        rotating: false,
        storage: Box::new(RamStorage::new(AREA_SLOTS)),
    }
}

fn tier_id(number: u64) -> TierId {
    let tier = usize::try_from(number).ok().and_then(TierId::new);
    tier.expect("few")
}

/// The root; a group that may have little of one tier and nothing of another; and one inside it, with limits of its
/// own.
fn groups(engine: &Engine) -> [GroupId; 3] {
    let add = |name: &str, tiers: [u64; 3]| {
        let mut limits = GroupLimits::default();
        for (max_bytes, pages) in limits.tier_max_bytes.iter_mut().zip(tiers) {
            *max_bytes = pages * PAGE_BYTES as u64;
        }
        let name = name.parse().expect("a good name");
        engine.add_group(&name, limits).expect("a new group")
    };
    [
        GroupId::ROOT,
        add("a", [6, 0, 1 << 20]),
        add("a/b", [4, 9, 5]),
    ]
}

/// Swaps off one area after the other, and another one on each time, until told to stop.
fn exchange_areas(engine: &Engine, stop: &AtomicBool) -> u64 {
    let mut scratch = engine.scratch();
    let mut exchanged = 0;
    let is_over = || stop.load(Ordering::Relaxed);
    while !is_over() && exchanged < EXCHANGES_MAX {
        let id = engine.areas()[0].id;
        match engine.swap_off(id, &mut scratch, &is_over) {
            Ok(()) => {
                exchanged += 1;
                let area = new_area(exchanged % 3);
                engine.swap_on(area).expect("a good area");
            }
            Err(SwapOffError::NoRoom { .. }) => std::thread::yield_now(),
            Err(SwapOffError::Cancelled { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    exchanged
}

/// Checks that every place has its page, and that only the place's own reference is left.
fn verify_and_put(engine: &Engine, places: &[Place]) {
    let mut scratch = engine.scratch();
    let mut page = Box::new(Page([0; PAGE_BYTES]));
    for place in places {
        if let Some((entry, seed)) = place.lock().unwrap().take() {
            engine
                .swap_in(entry, &mut page, &mut scratch)
                .expect("in use");
            assert_is(&page, seed);
            assert_eq!(engine.count(entry), 1);
            engine.put(entry);
        }
    }
}

#[test]
fn threads_find_every_byte_and_leave_nothing_behind() {
    let pages = Arc::new(HeapPages::new());
    let config = Config {
        frames: FRAMES,
        cpus: 2,
        codec: Codec::Lz4,
        pool_limit_bytes: POOL_LIMIT_BYTES,
        checksums: true,
    };
    let engine = Engine::new(&config, Arc::clone(&pages) as _).expect("memory");
    for tier in 0..2 {
        engine.swap_on(new_area(tier)).expect("a good area");
    }
    let groups = groups(&engine);
    let places: Vec<Place> = (0..PLACES).map(|_| Mutex::new(None)).collect();
    let stop = AtomicBool::new(false);
    let (exchanged, written) = std::thread::scope(|scope| {
        let exchanger = scope.spawn(|| exchange_areas(&engine, &stop));
        let start = |thread| {
            let (engine, places) = (&engine, &places[..]);
            scope.spawn(move || {
                let mut worker = Worker {
                    engine,
                    places,
                    scratch: engine.scratch(),
                    page: Box::new(Page([0; PAGE_BYTES])),
                    state: 0x1234_5678_9abc_def1 + thread,
                    thread,
                    groups,
                    made: 0,
                    written: 0,
                    written_back: 0,
                    repacked: 0,
                };
                worker.run();
                [worker.written, worker.written_back, worker.repacked]
            })
        };
        let workers: Vec<_> = (0..THREADS).map(start).collect();
        let workers = workers.into_iter();
        let of_each: Vec<[u64; 3]> = workers
            .map(|worker| worker.join().expect("no panic"))
            .collect();
        let sum = |which: usize| of_each.iter().map(|pages| pages[which]).sum::<u64>();
        let written = [0, 1, 2].map(sum);
        stop.store(true, Ordering::Relaxed);
        (exchanger.join().expect("no panic"), written)
    });
    verify_and_put(&engine, &places);
    assert_eq!(engine.is_valid(), Ok(()));
    let stats = engine.stats();
    assert_eq!((stats.slots_used, stats.zero, stats.frames_used), (0, 0, 0));
    assert_eq!(
        (stats.compressed, stats.raw, stats.pool_bytes, stats.damaged),
        (0, 0, 0, 0)
    );
    assert_eq!(stats.physical, 0);
    assert!(
        cfg!(miri) || written.into_iter().all(|pages| pages > 1000),
        "areas or codecs had nothing to do: {written:?} pages"
    );
    assert!(
        cfg!(miri) || exchanged > 10,
        "{exchanged} areas were exchanged"
    );
    drop(engine);
    assert_eq!(pages.pages_out(), 0);
}
