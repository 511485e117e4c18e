//! Random operations against a naive model: a map from entry to content, count and group. The pool and the areas behind
//! it are so small that they fill up. Areas come and go, and their storage breaks now and then, at once or in the
//! middle of something. Groups come and go too, and have limits that keep pages out of the pool, the areas, or those of
//! some tier. Page tables name virtual slots, slots of areas, or some of both.
//!
//! The fuzz target `engine` drives the same model with operations that a fuzzer has chosen.

#![cfg(not(any(loom, shuttle)))]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use vswap_engine::{
    AllocError, AreaFigures, AreaId, BringBack, Codec, Config, Discard, DupError, Engine, Entry,
    HeapPages, Lookup, Mapping, NewArea, PAGE_BYTES, Page, Shadow, SwapIn, SwapInError,
    SwapOffError, WriteOutError, Written,
};

#[path = "naive/content.rs"]
mod content;
#[path = "naive/groups.rs"]
mod groups;
#[path = "naive/moving.rs"]
mod moving;
#[path = "naive/operation.rs"]
pub(crate) mod operation;
#[path = "naive/storage.rs"]
mod storage;

pub(crate) use content::Content;
use groups::{Charges, Groups};
pub(crate) use operation::Operation;
use storage::{Fragile, SOUND};

const FRAMES: usize = 8;
const POOL_LIMIT_BYTES: u64 = 12 * PAGE_BYTES as u64;
/// Slots of each area. One is bad.
const AREAS: [u64; 2] = [13, 10];
const AREAS_AT_ONCE_MAX: usize = 3;
const BAD: u64 = 3;
const OPERATIONS_MAX: usize = if cfg!(miri) { 30 } else { 400 };
const CASES: u32 = if cfg!(miri) { 1 } else { 150 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Cached,
    Zero,
    Stored,
    Area,
}

impl Where {
    /// Whether a page may be found there. A page in an area may also have been read ahead into a frame.
    fn agrees(self, from: SwapIn) -> bool {
        match self {
            Where::Cached => from == SwapIn::Cached,
            Where::Zero => from == SwapIn::Zero,
            Where::Stored => from == SwapIn::Compressed,
            Where::Area => {
                matches!(from, SwapIn::Physical | SwapIn::Cached | SwapIn::ReadAhead)
            }
        }
    }
}

#[derive(Debug)]
struct Expected {
    content: Content,
    count: u32,
    place: Where,
    /// How it is packed if it is in the pool and can be packed.
    codec: Codec,
    shadow: Shadow,
    /// Its index among the groups. `None` is the root.
    group: Option<usize>,
}

/// Which slots page tables name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mappings {
    Virtual,
    Direct,
    /// Virtual and direct in turn.
    Both,
}

impl Mappings {
    fn of_page(self, number: u64) -> Mapping {
        match self {
            Mappings::Virtual => Mapping::Virtual,
            Mappings::Direct => Mapping::Direct,
            Mappings::Both if number.is_multiple_of(2) => Mapping::Virtual,
            Mappings::Both => Mapping::Direct,
        }
    }
}

struct Run {
    engine: Engine,
    mappings: Mappings,
    model: HashMap<Entry, Expected>,
    /// Entries alive in order of birth, to choose from, and the last ones that died.
    alive: Vec<Entry>,
    dead: Vec<Entry>,
    scratch: vswap_engine::Scratch,
    born: u64,
    requests_left: Arc<AtomicU64>,
    areas: Vec<AreaId>,
    groups: Groups,
    codec: Codec,
}

impl Run {
    fn new(pages: &Arc<HeapPages>, codec: Codec, mappings: Mappings) -> Run {
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
            groups: Groups::new(&engine),
            codec,
            engine,
            mappings,
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
        let area = NewArea {
            slots,
            bad: if slots > BAD { vec![BAD] } else { vec![] },
            priority,
            tier: operation::tier(slots),
            discard: if slots.is_multiple_of(3) {
                Discard::Pages
            } else {
                Discard::Once
            },
            rotating: slots.is_multiple_of(2),
            storage: Box::new(Fragile::new(slots, &self.requests_left)),
        };
        let id = self.engine.swap_on(area).expect("a good area");
        assert!(!self.areas.contains(&id), "a number was given out twice");
        self.areas.push(id);
    }

    /// Swaps an area off. Whatever comes of it, each page is in the area or in its new home.
    fn swap_off(&mut self, id: AreaId) {
        let priority = |areas: &[AreaFigures]| {
            let of_it = areas.iter().find(|area| area.id == id);
            of_it.map(|area| area.priority)
        };
        let before = priority(&self.engine.areas());
        let result = self.empty(id);
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
        self.drop_clean_frames();
        for (&entry, page) in &mut self.model {
            if page.place == Where::Area && !self.engine.is_physical(entry) {
                page.place = Where::Stored;
            }
        }
    }

    /// Swaps an area off. Directly mapped pages go back to their programs and are no longer entries.
    fn empty(&mut self, id: AreaId) -> Result<(), SwapOffError> {
        let Run {
            engine,
            model,
            alive,
            dead,
            scratch,
            ..
        } = self;
        let mut own_scratch = engine.scratch();
        let mut bring_back = || {
            let mut unreadable = 0;
            alive.retain(|&entry| {
                if entry.area() != id {
                    return true;
                }
                let mut found = Box::new(Page([0x77; PAGE_BYTES]));
                let read = engine.swap_in(entry, &mut found, &mut own_scratch);
                if read.is_err() {
                    unreadable += 1;
                    return true;
                }
                let page = model.remove(&entry).expect("alive");
                assert!(found.0 == page.content.page().0, "content differs");
                (0..page.count).for_each(|_| engine.put(entry));
                dead.push(entry);
                false
            });
            BringBack::Done { unreadable }
        };
        engine.swap_off_mapped(id, scratch, &|| false, &mut bring_back)
    }

    /// Pages that were read ahead give up their frames when all frames are wanted.
    fn drop_clean_frames(&self) {
        let all: Vec<_> = std::iter::from_fn(|| self.engine.frame()).collect();
        assert_eq!(all.len(), FRAMES - self.cached());
    }

    /// Whether the page is in its area and also read ahead into a frame.
    fn is_ahead(&self, entry: Entry, page: &Expected) -> bool {
        page.place == Where::Area && matches!(self.engine.lookup(entry), Lookup::Cached(_))
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
            Operation::SwapOut {
                content,
                cpu,
                group,
            } => self.swap_out(content, cpu, group),
            Operation::WriteOut(at) => {
                if let Some(entry) = self.choose(at) {
                    self.write_out(entry);
                }
            }
            Operation::WriteOutAll { at, pages } => self.write_out_all(at, pages),
            Operation::WriteBack { pages } => self.write_back(pages),
            Operation::Demote { pages } => self.demote(pages),
            Operation::Repack { pages } => self.repack(pages),
            Operation::BeginGeneration => self.engine.begin_generation(),
            Operation::SwapIn(at) => {
                if let Some(entry) = self.choose(at) {
                    self.verify(entry);
                }
            }
            Operation::SwapInAll { at, count } => self.verify_all(at, count),
            Operation::SwapInAround { at, window } => {
                if let Some(entry) = self.choose(at) {
                    self.verify_around(entry, window);
                }
            }
            Operation::Dup { at, times } => {
                if let Some(entry) = self.choose(at) {
                    self.dup(entry, times);
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
            Operation::LimitGroup { at, limits } => self.groups.limit(&self.engine, at, limits),
            Operation::RemoveGroup { at } => {
                let pages = self.model.values();
                let of = |at| pages.clone().filter(|page| page.group == Some(at)).count() as u64;
                self.groups.remove(&self.engine, at, of);
            }
            Operation::Break { after } => self.requests_left.store(after, Ordering::Relaxed),
            Operation::Mend => self.requests_left.store(SOUND, Ordering::Relaxed),
        }
        // The figures go through every size class, which takes Miri seconds.
        if !cfg!(miri) {
            self.check_figures();
            self.check_groups();
        }
    }

    fn dup(&mut self, entry: Entry, times: u8) {
        for _ in 0..times {
            assert_eq!(self.engine.dup(entry), Ok(()));
        }
        self.model.get_mut(&entry).expect("alive").count += u32::from(times);
    }

    /// What a page takes up in the pool if it goes there.
    fn payload_bytes(&mut self, content: Content, codec: Codec) -> u64 {
        let packed = codec.compress(&content.page(), &mut self.scratch);
        packed.map_or(PAGE_BYTES, <[u8]>::len) as u64
    }

    fn check_groups(&mut self) {
        let pages = self.model.values().map(|page| (page.content, page.codec));
        let pages: Vec<(Content, Codec)> = pages.collect();
        let payloads: Vec<u64> = pages
            .into_iter()
            .map(|(of, codec)| self.payload_bytes(of, codec))
            .collect();
        let of_pages = |at| {
            let mut sum = Charges::default();
            let pages = self.model.iter().zip(&payloads);
            for ((entry, page), payload_bytes) in pages.filter(|((_, of), _)| of.group == Some(at))
            {
                if page.place == Where::Stored {
                    sum.pool_bytes += payload_bytes;
                }
                if page.place == Where::Area || entry.is_direct() {
                    sum.swap_bytes += PAGE_BYTES as u64;
                }
            }
            sum
        };
        self.groups.check(&self.engine, of_pages);
    }

    fn swap_out(&mut self, content: Content, cpu: usize, group: usize) {
        let Some(mut frame) = self.engine.frame() else {
            assert_eq!(self.cached(), FRAMES, "no frame though some are free");
            return;
        };
        frame.0.fill(0x55);
        self.born += 1;
        let shadow = Shadow::truncated(self.born);
        let (group, id) = self.groups.choose(group);
        let mapping = self.mappings.of_page(self.born);
        let entry = match self.engine.place(cpu, frame, id, mapping) {
            Ok(mut placed) => {
                content.fill(&mut placed);
                placed.publish(shadow)
            }
            Err((_, AllocError::NoSlot)) if mapping == Mapping::Direct => {
                return self.expect_full();
            }
            Err((_, AllocError::Limited)) if mapping == Mapping::Direct => {
                return self.groups.expect_no_slot(group);
            }
            Err((_, error)) => return self.groups.expect_refused(group, error),
        };
        assert_eq!(entry.is_direct(), mapping == Mapping::Direct);
        let page = Expected {
            content,
            count: 1,
            place: Where::Cached,
            codec: self.codec,
            shadow,
            group,
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
        self.expect_written(entry, result, true);
    }

    /// Writes out pages in frames, from the one at `at` on, all together.
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
            self.expect_written(entry, result, false);
        }
    }

    /// Checks that a page was refused only because no area has a slot for it.
    fn expect_full(&self) {
        let mut areas = self.engine.areas().into_iter();
        assert!(
            areas.all(|area| area.failing || area.used_bytes == area.size_bytes),
            "a page was refused though there was room"
        );
    }

    fn expect_written(
        &mut self,
        entry: Entry,
        result: Result<Written, WriteOutError>,
        is_alone: bool,
    ) {
        let (group, content) = (self.model[&entry].group, self.model[&entry].content);
        match result {
            Err(WriteOutError::Full) => {
                assert!(!entry.is_direct(), "it has a slot");
                self.expect_full();
            }
            Err(WriteOutError::Limited) => {
                let payload_bytes = self.payload_bytes(content, self.codec);
                self.groups.expect_limited(group, payload_bytes, is_alone);
            }
            Ok(Written::Physical) => assert!(self.groups.writes_back(group)),
            _ => {}
        }
        let page = self.model.get_mut(&entry).expect("alive");
        match (page.place, page.content, result) {
            (Where::Cached, Content::Zero, Ok(Written::Zero)) => page.place = Where::Zero,
            (Where::Cached, Content::Dense(_), Ok(Written::Compressed { bytes })) => {
                assert!(bytes < PAGE_BYTES / 2);
                page.place = Where::Stored;
            }
            (Where::Cached, Content::Random(_), Ok(Written::Raw))
            | (Where::Cached, Content::Narrow(_), Ok(Written::Raw | Written::Compressed { .. })) => {
                page.place = Where::Stored;
            }
            (Where::Cached, Content::Zero, Ok(Written::Physical)) => panic!("zeros are stored"),
            (Where::Cached, _, Ok(Written::Physical)) => page.place = Where::Area,
            (
                Where::Cached,
                Content::Dense(_) | Content::Random(_) | Content::Narrow(_),
                Err(WriteOutError::Full | WriteOutError::Limited | WriteOutError::Unwritable(_)),
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
        self.verify_around(entry, 1);
    }

    fn verify_around(&mut self, entry: Entry, window: usize) {
        let page = &self.model[&entry];
        let is_ahead = self.is_ahead(entry, page);
        let is_broken = self.requests_left() == 0;
        let mut found = Box::new(Page([0x77; PAGE_BYTES]));
        let result = self
            .engine
            .swap_in_around(entry, window, &mut found, &mut self.scratch);
        if page.place == Where::Area && is_broken && !is_ahead {
            assert!(matches!(result, Err(SwapInError::Unreadable { .. })));
            return;
        }
        let (from, along) = result.expect("alive");
        assert!(page.place.agrees(from), "{from:?} of {:?}", page.place);
        assert_eq!(
            from == SwapIn::Physical,
            page.place == Where::Area && !is_ahead
        );
        assert!(along < window, "{along} pages came along");
        let is_physical = self.engine.is_physical(entry);
        assert_eq!(is_physical, from == SwapIn::Physical);
        assert!(
            found.0 == page.content.page().0,
            "{entry:?}: content differs"
        );
        assert_eq!(self.engine.count(entry), page.count);
        assert_eq!(self.engine.shadow(entry), Some(page.shadow));
        match (self.engine.lookup(entry), page.place) {
            (Lookup::Cached(frame), Where::Cached) => assert!(frame.0 == found.0),
            (Lookup::Cached(frame), Where::Area) if is_ahead => assert!(frame.0 == found.0),
            (Lookup::Zero, Where::Zero) | (Lookup::Stored, Where::Stored | Where::Area) => {}
            unexpected => panic!("lookup: {unexpected:?}"),
        }
    }

    /// Like `verify`, for neighbours in order of birth, perhaps with some of them twice.
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
                assert!(page.place.agrees(outcome.expect("alive")));
                assert!(pages[at].0 == page.content.page().0, "content differs");
            }
        }
    }

    fn check_figures(&self) {
        assert_eq!(self.engine.is_valid(), Ok(()));
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
        let direct = self.model.keys().filter(|entry| entry.is_direct()).count() as u64;
        let behind =
            |(entry, page): (&Entry, &Expected)| !entry.is_direct() && page.place == Where::Area;
        let behind = self.model.iter().filter(|&one| behind(one)).count() as u64;
        assert_eq!((stats.physical, stats.direct), (direct + behind, direct));
        let ahead = self
            .model
            .iter()
            .filter(|&(&entry, page)| self.is_ahead(entry, page));
        assert_eq!(
            stats.frames_used,
            places(Where::Cached) + ahead.count() as u64
        );
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
        self.check_groups();
        let stats = self.engine.stats();
        assert_eq!(
            (stats.pool_bytes, stats.payload_bytes, stats.damaged),
            (0, 0, 0)
        );
    }
}

/// Takes the steps, checks everything after each, and frees everything at the end.
pub(crate) fn follow(operations: &[Operation], codec: Codec, mappings: Mappings) {
    let pages = Arc::new(HeapPages::new());
    let mut run = Run::new(&pages, codec, mappings);
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
        operations in prop::collection::vec(operation::operation(), 1..OPERATIONS_MAX),
        zstd in any::<bool>(),
        mappings in prop_oneof![Just(Mappings::Virtual), Just(Mappings::Direct), Just(Mappings::Both)],
    ) {
        follow(&operations, if zstd { Codec::Zstd } else { Codec::Lz4 }, mappings);
    }
}
