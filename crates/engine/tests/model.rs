//! Random operations against a naive model: a map from entry to content and count. The pool and the areas behind it are
//! small enough to fill up, areas come and go, and their storage breaks down now and then, at once or in the middle of
//! something.
//!
//! The fuzz target `engine` drives the same model, with operations that a fuzzer has chosen.

#![cfg(not(any(loom, shuttle)))]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use vswap_engine::{
    AreaFigures, AreaId, Codec, Config, Discard, DupError, Engine, Entry, HeapPages, Lookup,
    NewArea, PAGE_BYTES, Page, RamStorage, Shadow, Storage, StorageError, SwapIn, SwapInError,
    SwapOffError, WriteOutError, Written,
};

const FRAMES: usize = 6;
const POOL_LIMIT_BYTES: u64 = 12 * PAGE_BYTES as u64;
/// Slots of each area, one of which is bad.
const AREAS: [u64; 2] = [13, 10];
const AREAS_AT_ONCE_MAX: usize = 3;
const BAD: u64 = 3;
const OPERATIONS_MAX: usize = if cfg!(miri) { 30 } else { 400 };
const CASES: u32 = if cfg!(miri) { 1 } else { 150 };

/// One step; the indexes choose among the entries that are alive.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    SwapOut { content: Content, cpu: usize },
    WriteOut(usize),
    WriteOutAll { at: usize, pages: usize },
    SwapIn(usize),
    SwapInAll { at: usize, count: usize },
    Dup { at: usize, times: u8 },
    Put { at: usize, times: u8 },
    Compact,
    Discard { budget: usize },
    Limit { pages: u64 },
    SwapOn { slots: u64, priority: i16 },
    SwapOff { at: usize },
    Break { after: u64 },
    Mend,
}

/// Storage of all areas, which breaks after some more requests and is mended.
#[derive(Debug)]
struct Fragile {
    ram: RamStorage,
    requests_left: Arc<AtomicU64>,
}

/// So many requests that it never breaks.
const SOUND: u64 = u64::MAX;

impl Fragile {
    fn check(&self) -> Result<(), StorageError> {
        let one_less = |left: u64| match left {
            0 => None,
            SOUND => Some(SOUND),
            left => Some(left - 1),
        };
        let order = Ordering::Relaxed;
        let left = self.requests_left.fetch_update(order, order, one_less);
        left.map(|_| ())
            .map_err(|_| StorageError::Failed { errno: 5 })
    }
}

impl Storage for Fragile {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        self.check()?;
        self.ram.read(slot, pages)
    }

    fn discard(&self, slots: Range<u64>) -> Result<(), StorageError> {
        self.check()?;
        self.ram.discard(slots)
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        self.check()?;
        self.ram.write(slot, pages)
    }
}

/// What a page is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Zero,
    /// Packs well: one byte over and over, with a few others.
    Dense(u8),
    /// Does not pack.
    Random(u64),
}

impl Content {
    fn fill(self, page: &mut Page) {
        match self {
            Content::Zero => page.0.fill(0),
            Content::Dense(byte) => {
                page.0.fill(byte);
                for (at, mark) in page.0.iter_mut().step_by(97).enumerate() {
                    *mark = at.to_le_bytes()[0];
                }
            }
            Content::Random(seed) => {
                let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                for chunk in page.0.chunks_mut(8) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    chunk.copy_from_slice(&state.to_le_bytes());
                }
            }
        }
    }

    fn page(self) -> Box<Page> {
        let mut page = Box::new(Page([0; PAGE_BYTES]));
        self.fill(&mut page);
        page
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Cached,
    Zero,
    Stored,
    Area,
}

impl Where {
    fn from(self) -> SwapIn {
        match self {
            Where::Cached => SwapIn::Cached,
            Where::Zero => SwapIn::Zero,
            Where::Stored => SwapIn::Compressed,
            Where::Area => SwapIn::Physical,
        }
    }
}

#[derive(Debug)]
struct Expected {
    content: Content,
    count: u32,
    place: Where,
    shadow: Shadow,
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        2 => Just(Content::Zero),
        4 => (1..=255u8).prop_map(Content::Dense),
        2 => any::<u64>().prop_map(Content::Random),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let at = 0..1000usize;
    prop_oneof![
        8 => (content(), 0..5usize).prop_map(|(content, cpu)| Operation::SwapOut { content, cpu }),
        6 => at.clone().prop_map(Operation::WriteOut),
        2 => (at.clone(), 2..=FRAMES).prop_map(|(at, pages)| Operation::WriteOutAll { at, pages }),
        4 => at.clone().prop_map(Operation::SwapIn),
        2 => (at.clone(), 0..12usize)
            .prop_map(|(at, count)| Operation::SwapInAll { at, count }),
        3 => (at.clone(), 1..20u8).prop_map(|(at, times)| Operation::Dup { at, times }),
        6 => (at, 1..20u8).prop_map(|(at, times)| Operation::Put { at, times }),
        1 => Just(Operation::Compact),
        1 => (0..3usize).prop_map(|budget| Operation::Discard { budget }),
        1 => (0..24u64).prop_map(|pages| Operation::Limit { pages }),
        1 => (1..40u64, 0..3i16)
            .prop_map(|(slots, priority)| Operation::SwapOn { slots, priority }),
        2 => (0..4usize).prop_map(|at| Operation::SwapOff { at }),
        1 => (0..6u64).prop_map(|after| Operation::Break { after }),
        2 => Just(Operation::Mend),
    ]
}

struct Run {
    engine: Engine,
    model: HashMap<Entry, Expected>,
    /// Entries alive, in order of birth, for choosing; and the last ones that died.
    alive: Vec<Entry>,
    dead: Vec<Entry>,
    scratch: vswap_engine::Scratch,
    born: u64,
    requests_left: Arc<AtomicU64>,
    areas: Vec<AreaId>,
}

impl Run {
    fn new(pages: &Arc<HeapPages>, codec: Codec) -> Run {
        let config = Config {
            frames: FRAMES,
            cpus: 3,
            codec,
            pool_limit_bytes: POOL_LIMIT_BYTES,
            checksums: true,
        };
        let engine = Engine::new(&config, Arc::clone(pages) as _).expect("memory");
        let scratch = engine.scratch();
        let mut run = Run {
            engine,
            model: HashMap::new(),
            alive: Vec::new(),
            dead: Vec::new(),
            scratch,
            born: 0,
            requests_left: Arc::new(AtomicU64::new(SOUND)),
            areas: Vec::new(),
        };
        for (priority, slots) in (0..).zip(AREAS) {
            run.swap_on(slots, priority);
        }
        run
    }

    fn swap_on(&mut self, slots: u64, priority: i16) {
        let storage = Fragile {
            ram: RamStorage::new(usize::try_from(slots).expect("few")),
            requests_left: Arc::clone(&self.requests_left),
        };
        let area = NewArea {
            slots,
            bad: if slots > BAD { vec![BAD] } else { vec![] },
            priority,
            discard: if slots.is_multiple_of(3) {
                Discard::Pages
            } else {
                Discard::Once
            },
            rotating: slots.is_multiple_of(2),
            storage: Box::new(storage),
        };
        let id = self.engine.swap_on(area).expect("a good area");
        assert!(!self.areas.contains(&id), "a number was given out twice");
        self.areas.push(id);
    }

    /// Whatever comes of it, each page is in the area or in its new home.
    fn swap_off(&mut self, id: AreaId) {
        let priority = |areas: &[AreaFigures]| {
            let of_it = areas.iter().find(|area| area.id == id);
            of_it.map(|area| area.priority)
        };
        let before = priority(&self.engine.areas());
        let result = self.engine.swap_off(id, &mut self.scratch, &|| false);
        let after = priority(&self.engine.areas());
        match result {
            Ok(()) => {
                assert_eq!(after, None);
                self.areas.retain(|&other| other != id);
            }
            Err(SwapOffError::NoRoom { .. }) => assert_eq!(after, before),
            Err(SwapOffError::Unreadable { .. }) => {
                assert_eq!(after, before);
                assert!(self.requests_left() == 0, "sound storage was not read");
            }
            Err(unexpected) => panic!("{unexpected}"),
        }
        for (&entry, page) in &mut self.model {
            if page.place == Where::Area && !self.engine.is_physical(entry) {
                page.place = Where::Stored;
            }
        }
    }

    fn requests_left(&self) -> u64 {
        self.requests_left.load(Ordering::Relaxed)
    }

    fn choose(&self, at: usize) -> Option<Entry> {
        self.alive.get(at % self.alive.len().max(1)).copied()
    }

    fn cached(&self) -> usize {
        self.model
            .values()
            .filter(|page| page.place == Where::Cached)
            .count()
    }

    fn step(&mut self, operation: &Operation) {
        match *operation {
            Operation::SwapOut { content, cpu } => self.swap_out(content, cpu),
            Operation::WriteOut(at) => {
                if let Some(entry) = self.choose(at) {
                    self.write_out(entry);
                }
            }
            Operation::WriteOutAll { at, pages } => self.write_out_all(at, pages),
            Operation::SwapIn(at) => {
                if let Some(entry) = self.choose(at) {
                    self.verify(entry);
                }
            }
            Operation::SwapInAll { at, count } => self.verify_all(at, count),
            Operation::Dup { at, times } => {
                if let Some(entry) = self.choose(at) {
                    for _ in 0..times {
                        assert_eq!(self.engine.dup(entry), Ok(()));
                    }
                    self.model.get_mut(&entry).expect("alive").count += u32::from(times);
                }
            }
            Operation::Put { at, times } => {
                if let Some(entry) = self.choose(at) {
                    self.put(entry, u32::from(times));
                }
            }
            Operation::Compact => {
                self.engine.compact(usize::MAX);
            }
            Operation::Discard { budget } => {
                assert!(self.engine.discard(budget) <= budget);
            }
            Operation::Limit { pages } => {
                self.engine.set_pool_limit(pages * PAGE_BYTES as u64);
            }
            Operation::SwapOn { slots, priority } => {
                if self.areas.len() < AREAS_AT_ONCE_MAX {
                    self.swap_on(slots, priority);
                }
            }
            Operation::SwapOff { at } => {
                if let Some(&id) = self.areas.get(at) {
                    self.swap_off(id);
                }
            }
            Operation::Break { after } => self.requests_left.store(after, Ordering::Relaxed),
            Operation::Mend => self.requests_left.store(SOUND, Ordering::Relaxed),
        }
        // Figures go through every size class, which takes the interpreter seconds.
        if !cfg!(miri) {
            self.check_figures();
        }
    }

    fn swap_out(&mut self, content: Content, cpu: usize) {
        let Some(mut frame) = self.engine.frame() else {
            assert_eq!(self.cached(), FRAMES, "no frame though some are free");
            return;
        };
        content.fill(&mut frame);
        self.born += 1;
        let shadow = Shadow::truncated(self.born);
        let entry = self
            .engine
            .swap_out(cpu, frame, shadow)
            .expect("memory for a slot");
        let page = Expected {
            content,
            count: 1,
            place: Where::Cached,
            shadow,
        };
        assert!(
            self.model.insert(entry, page).is_none(),
            "a slot was given out twice"
        );
        self.alive.push(entry);
        self.dead.retain(|&dead| dead != entry);
    }

    fn write_out(&mut self, entry: Entry) {
        let result = self.engine.write_out(entry, &mut self.scratch);
        self.expect_written(entry, result);
    }

    /// The pages in frames from the one at `at` on, so that they are written together.
    fn write_out_all(&mut self, at: usize, pages: usize) {
        let start = at % self.alive.len().max(1);
        let in_turn = self.alive[start..].iter().chain(&self.alive[..start]);
        let cached = in_turn.filter(|entry| self.model[entry].place == Where::Cached);
        let entries: Vec<Entry> = cached.copied().take(pages).collect();
        let mut results = Vec::new();
        let done = |entry, result| results.push((entry, result));
        self.engine
            .write_out_all(at % 3, &entries, &mut self.scratch, done);
        assert_eq!(results.len(), entries.len());
        for (entry, result) in results {
            self.expect_written(entry, result);
        }
    }

    /// No page is refused as long as some area has a slot for it.
    fn expect_full(&self) {
        let mut areas = self.engine.areas().into_iter();
        assert!(
            areas.all(|area| area.failing || area.used_bytes == area.size_bytes),
            "a page was refused though there was room"
        );
    }

    fn expect_written(&mut self, entry: Entry, result: Result<Written, WriteOutError>) {
        if result == Err(WriteOutError::Full) {
            self.expect_full();
        }
        let page = self.model.get_mut(&entry).expect("alive");
        match (page.place, page.content, result) {
            (Where::Cached, Content::Zero, Ok(Written::Zero)) => page.place = Where::Zero,
            (Where::Cached, Content::Dense(_), Ok(Written::Compressed { bytes })) => {
                assert!(bytes < PAGE_BYTES / 2);
                page.place = Where::Stored;
            }
            (Where::Cached, Content::Random(_), Ok(Written::Raw)) => page.place = Where::Stored,
            (Where::Cached, Content::Dense(_) | Content::Random(_), Ok(Written::Physical)) => {
                page.place = Where::Area;
            }
            (
                Where::Cached,
                Content::Dense(_) | Content::Random(_),
                Err(WriteOutError::Full | WriteOutError::Unwritable(_)),
            )
            | (Where::Zero | Where::Stored | Where::Area, _, Err(WriteOutError::NotCached)) => {}
            unexpected => panic!("write_out: {unexpected:?}"),
        }
    }

    fn put(&mut self, entry: Entry, times: u32) {
        let page = self.model.get_mut(&entry).expect("alive");
        for _ in 0..times.min(page.count) {
            self.engine.put(entry);
            page.count -= 1;
        }
        if page.count == 0 {
            self.model.remove(&entry);
            self.alive.retain(|&alive| alive != entry);
            self.dead.push(entry);
        }
    }

    fn verify(&mut self, entry: Entry) {
        let page = &self.model[&entry];
        let is_broken = self.requests_left() == 0;
        let mut found = Box::new(Page([0x77; PAGE_BYTES]));
        let result = self.engine.swap_in(entry, &mut found, &mut self.scratch);
        if page.place == Where::Area && is_broken {
            assert!(matches!(result, Err(SwapInError::Unreadable { .. })));
            return;
        }
        let from = result.expect("alive");
        assert_eq!(from, page.place.from());
        let is_physical = self.engine.is_physical(entry);
        assert_eq!(is_physical, page.place == Where::Area);
        assert!(
            found.0 == page.content.page().0,
            "{entry:?}: content differs"
        );
        assert_eq!(self.engine.count(entry), page.count);
        assert_eq!(self.engine.shadow(entry), Some(page.shadow));
        match (self.engine.lookup(entry), page.place) {
            (Lookup::Cached(frame), Where::Cached) => assert!(frame.0 == found.0),
            (Lookup::Zero, Where::Zero) | (Lookup::Stored, Where::Stored | Where::Area) => {}
            unexpected => panic!("lookup: {unexpected:?}"),
        }
    }

    /// As `verify`, of neighbours in order of birth, and perhaps of some of them twice.
    fn verify_all(&mut self, at: usize, count: usize) {
        let entries: Vec<Entry> = (at..at + count).filter_map(|at| self.choose(at)).collect();
        let mut pages = vec![Page([0x77; PAGE_BYTES]); entries.len()];
        let mut outcomes = Vec::new();
        self.engine.swap_in_all(
            &entries,
            &mut pages.iter_mut().collect::<Vec<_>>(),
            &mut self.scratch,
            |at, outcome| outcomes.push((at, outcome)),
        );
        outcomes.sort_unstable_by_key(|(at, _)| *at);
        assert!(outcomes.iter().map(|(at, _)| *at).eq(0..entries.len()));
        for (at, outcome) in outcomes {
            let page = &self.model[&entries[at]];
            if outcome.is_err() && page.place == Where::Area && self.requests_left() == 0 {
                assert!(matches!(outcome, Err(SwapInError::Unreadable { .. })));
            } else {
                assert_eq!(outcome, Ok(page.place.from()));
                assert!(pages[at].0 == page.content.page().0, "content differs");
            }
        }
    }

    fn check_figures(&self) {
        let stats = self.engine.stats();
        let places = |place| {
            self.model
                .values()
                .filter(|page| page.place == place)
                .count() as u64
        };
        assert_eq!(stats.slots_used, self.model.len() as u64);
        assert_eq!(stats.zero, places(Where::Zero));
        assert_eq!(stats.compressed + stats.raw, places(Where::Stored));
        assert_eq!(stats.physical, places(Where::Area));
        assert_eq!(stats.frames_used, places(Where::Cached));
    }

    fn end(mut self) {
        self.requests_left.store(SOUND, Ordering::Relaxed);
        for entry in self.alive.clone() {
            self.verify(entry);
        }
        for &entry in &self.dead {
            let mut page = Box::new(Page([0; PAGE_BYTES]));
            let result = self.engine.swap_in(entry, &mut page, &mut self.scratch);
            assert_eq!(result, Err(SwapInError::Gone));
            assert_eq!(self.engine.dup(entry), Err(DupError::Gone));
        }
        for entry in self.alive.clone() {
            self.put(entry, u32::MAX);
        }
        self.check_figures();
        let stats = self.engine.stats();
        assert_eq!(
            (stats.pool_bytes, stats.payload_bytes, stats.damaged),
            (0, 0, 0)
        );
    }
}

/// Takes the steps, looks at everything after each, and lets go of everything at the end.
pub(crate) fn follow(operations: &[Operation], codec: Codec) {
    let pages = Arc::new(HeapPages::new());
    let mut run = Run::new(&pages, codec);
    for operation in operations {
        run.step(operation);
    }
    run.end();
    assert_eq!(pages.pages_out(), 0);
}

fn configuration() -> ProptestConfig {
    let mut configuration = ProptestConfig::with_cases(CASES);
    // Miri has no files; the seeds of failures are printed anyway.
    configuration.failure_persistence = None;
    configuration
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn the_engine_does_what_a_map_does(
        operations in prop::collection::vec(operation(), 1..OPERATIONS_MAX),
        zstd in any::<bool>(),
    ) {
        follow(&operations, if zstd { Codec::Zstd } else { Codec::Lz4 });
    }
}
