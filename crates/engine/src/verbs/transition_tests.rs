//! Each step of the table, and its failure half-way, for virtual and for directly mapped slots. The tests of races have
//! what other threads do meanwhile.

mod moving;

use crate::area::AllocError;
use crate::base::pages::{PAGE_BYTES, Page};
use crate::engine::Engine;
use crate::groups::{GroupId, GroupLimits};
use crate::testing::{
    self, BROKEN, Probe, assert_holds, charges, damage, engine_with_areas, group, read, slot_of,
    try_out,
};
use crate::verbs::leaving::{Coming, Written};
use crate::verbs::swap_in::{SwapIn, SwapInError};
use crate::verbs::swap_off::{BringBack, SwapOffError};
use crate::verbs::swap_out::Mapping;
use crate::verbs::write_back::WriteBack;
use crate::verbs::write_out::WriteOutError;
use crate::words::backing::{Backing, Stored};
use crate::words::backing_word::{Pin, place_fits};
use crate::words::entry::{AreaId, Entry};
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::shadow::Shadow;
use crate::words::slot::Kind;
use crate::zpool::testing::Content;

const MAPPINGS: [Mapping; 2] = [Mapping::Virtual, Mapping::Direct];
const FRAMES: usize = 16;
const POOL_BYTES: u64 = 1 << 22;
/// Slots of an area. The first is bad.
const SLOTS: u64 = 24;
/// How many pages a group may have in areas, unless a test says otherwise.
const MANY: u64 = 100;

/// The states of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Cached,
    Zero,
    Pool,
    Area,
    Ahead,
    Going,
}

/// An engine with one area. Its pages have this mapping and are of a group.
struct Bench {
    engine: Engine,
    probe: Probe,
    mapping: Mapping,
    group: GroupId,
}

impl Bench {
    fn new(mapping: Mapping, pool_bytes: u64) -> Bench {
        Bench::with(mapping, pool_bytes, SLOTS, MANY)
    }

    fn with(mapping: Mapping, pool_bytes: u64, slots: u64, group_pages: u64) -> Bench {
        let (engine, mut probes) = engine_with_areas(FRAMES, pool_bytes, &[slots]);
        Bench {
            group: group(&engine, "a", group_pages),
            engine,
            probe: probes.remove(0),
            mapping,
        }
    }

    fn is_direct(&self) -> bool {
        self.mapping == Mapping::Direct
    }

    fn out(&self, kind: Content, seed: u64) -> Entry {
        self.try_out(kind, seed).expect("a slot")
    }

    fn try_out(&self, kind: Content, seed: u64) -> Result<Entry, AllocError> {
        try_out(&self.engine, self.mapping, self.group, kind, seed)
    }

    fn out_zeros(&self) -> Entry {
        let frame = self.engine.frame().expect("a free frame");
        let placed = self.engine.place(0, frame, self.group, self.mapping);
        let mut placed = placed.map_err(|(_, error)| error).expect("a slot");
        placed.0.fill(0);
        placed.publish(Shadow::ABSENT)
    }

    fn write(&self, entries: &[Entry]) -> Vec<Result<Written, WriteOutError>> {
        let mut outcomes = Vec::new();
        let scratch = &mut self.engine.scratch();
        self.engine
            .write_out_all(0, entries, scratch, |_, outcome| outcomes.push(outcome));
        outcomes
    }

    fn write_back(&self, pages: usize) -> WriteBack {
        (0..3).for_each(|_| self.engine.begin_generation());
        self.engine.write_back(0, pages, &mut self.engine.scratch())
    }

    /// A page of text in this state, with content of this seed. If it is in an area, its neighbours are, too.
    fn in_state(&self, state: State, seed: u64) -> Entry {
        let entry = match state {
            State::Zero => self.out_zeros(),
            _ => self.out(Content::Text, seed),
        };
        if state != State::Cached {
            self.engine
                .set_pool_limit(if state == State::Pool { POOL_BYTES } else { 0 });
            self.write(&[entry])[0].expect("room");
        }
        if state == State::Ahead {
            let neighbour = self.in_state(State::Area, seed + 1);
            let (_, along) = self.read_around(neighbour).expect("readable");
            assert_eq!(along, 1);
            self.engine.put(neighbour);
        }
        assert_eq!(self.state(entry), state);
        entry
    }

    fn read_around(&self, entry: Entry) -> Result<(SwapIn, usize), SwapInError> {
        let mut page = Page::zeroed();
        let mut scratch = self.engine.scratch();
        self.engine
            .swap_in_around(entry, 4, &mut page, &mut scratch)
    }

    fn state(&self, entry: Entry) -> State {
        let (cluster, slot) = self.engine.locate(entry).expect("a cluster");
        let guard = cluster.lock().expect("used once");
        let (word, backing) = (guard.word(slot), guard.backing(slot));
        if let Some(stored) = backing.stored() {
            assert!(place_fits(entry, stored), "{entry:?} {stored:?}");
        }
        match (word.kind(), backing.stored()) {
            _ if backing.is_abandoned() => State::Going,
            (Kind::Null, None) => State::Free,
            (Kind::Cached(_), None) if !word.is_zero() => State::Cached,
            (Kind::Shadow(_), None) if word.is_zero() => State::Zero,
            (Kind::Shadow(_), Some(Stored::Pool(_))) => State::Pool,
            (Kind::Shadow(_), Some(Stored::Physical(_))) => State::Area,
            (Kind::Cached(_), Some(_)) => State::Ahead,
            // The slot of a directly mapped page now belongs to another page.
            (Kind::Pointer { .. }, None) => State::Free,
            lost => panic!("no state: {lost:?}"),
        }
    }

    fn assert_states(&self, entries: &[Entry], state: State) {
        for &entry in entries {
            assert_eq!(self.state(entry), state, "{entry:?} {:?}", self.mapping);
        }
    }

    /// Checks how many slots the group is charged for: those of all `pages` if they are directly mapped, else those
    /// `behind` virtual slots.
    fn assert_slots_charged(&self, pages: u64, behind: u64) {
        let slots = if self.is_direct() { pages } else { behind };
        assert_eq!(
            charges(&self.engine, self.group).0,
            slots,
            "{:?}",
            self.mapping
        );
        assert_eq!(self.engine.stats().physical, slots);
    }

    /// Checks that nothing is left and nothing is charged.
    fn assert_empty(&self) {
        let stats = self.engine.stats();
        assert_eq!((stats.slots_used, stats.physical, stats.direct), (0, 0, 0));
        assert_eq!(
            (stats.zero, stats.frames_used, stats.payload_bytes),
            (0, 0, 0)
        );
        assert_eq!(charges(&self.engine, self.group), (0, 0));
        self.engine
            .remove_group(self.group)
            .expect("nothing names it");
    }

    fn end(&self, entries: impl IntoIterator<Item = Entry>) {
        entries.into_iter().for_each(|entry| self.engine.put(entry));
        self.assert_empty();
    }
}

fn for_both(test: impl Fn(Mapping)) {
    MAPPINGS.into_iter().for_each(test);
}

/// Whoever fetches a page gives it to a program. So nothing of what lay there before may be left.
#[test]
fn a_page_that_comes_back_is_written_whole() {
    for mapping in MAPPINGS {
        for (state, seed) in [
            State::Cached,
            State::Zero,
            State::Pool,
            State::Area,
            State::Ahead,
        ]
        .into_iter()
        .zip(1..)
        {
            let [first, second] = [0x00, 0xff].map(|before| {
                let bench = Bench::new(mapping, POOL_BYTES);
                let entry = bench.in_state(state, seed);
                let mut page = Page([before; PAGE_BYTES]);
                let mut scratch = bench.engine.scratch();
                let read = bench.engine.swap_in(entry, &mut page, &mut scratch);
                read.expect("readable");
                page
            });
            assert!(first == second, "{mapping:?} {state:?}");
        }
    }
}

#[test]
fn free_becomes_cached() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, 0);
        let entry = bench.out(Content::Text, 1);
        assert_eq!(
            (bench.state(entry), entry.is_direct()),
            (State::Cached, bench.is_direct())
        );
        bench.assert_slots_charged(1, 0);
        assert_holds(&bench.engine, entry, Content::Text, 1, SwapIn::Cached);
        bench.end([entry]);
        assert_eq!(bench.state(entry), State::Free);
    });
}

#[test]
fn a_page_that_does_not_come_leaves_its_slot_and_frame_free() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, 0);
        let frame = bench.engine.frame().expect("free");
        let placed = bench.engine.place(0, frame, bench.group, mapping);
        let placed = placed.map_err(|(_, error)| error).expect("a slot");
        bench.assert_slots_charged(1, 0);
        assert!(bench.engine.remove_group(bench.group).is_err());
        // Somebody may still have the name of a page that was there before.
        let entry = placed.entry();
        assert_eq!(bench.write(&[entry]), [Err(WriteOutError::NotCached)]);
        assert_eq!(read(&bench.engine, entry).unwrap_err(), SwapInError::Gone);
        assert!(bench.engine.dup(entry).is_err());
        bench.engine.put(entry);
        assert_eq!(bench.engine.stats().slots_used, 1);
        drop(placed);
        bench.assert_empty();
    });
}

#[test]
fn a_directly_mapped_page_needs_a_slot_and_a_virtual_one_does_not() {
    for_both(|mapping| {
        let bench = Bench::with(mapping, 0, 4, MANY);
        let entries: Vec<Entry> = (1..4).map(|seed| bench.out(Content::Text, seed)).collect();
        let fourth = bench.try_out(Content::Text, 4);
        if bench.is_direct() {
            assert_eq!(fourth, Err(AllocError::NoSlot));
            assert_eq!(bench.engine.stats().alloc_reject, 1);
            bench.engine.put(entries[1]);
            let again = bench.out(Content::Text, 5);
            assert_eq!(again, entries[1], "the slot that was freed");
        }
        assert_holds(&bench.engine, entries[0], Content::Text, 1, SwapIn::Cached);
        bench.end(entries.into_iter().chain(fourth.ok()));
    });
}

#[test]
fn a_charge_that_fails_after_the_slot_was_taken_gives_it_back() {
    for_both(|mapping| {
        let bench = Bench::with(mapping, 0, SLOTS, 2);
        let entries: Vec<Entry> = (1..3).map(|seed| bench.out(Content::Text, seed)).collect();
        let third = bench.try_out(Content::Text, 3);
        if bench.is_direct() {
            assert_eq!(third, Err(AllocError::Limited));
            bench.assert_slots_charged(2, 0);
            assert_eq!(bench.engine.stats().slots_used, 2);
            let events = testing::figures_of(&bench.engine, bench.group).events;
            assert_eq!((events.swap_fail, events.swap_max), (1, 1));
        }
        assert_eq!(
            bench.engine.stats().frames_used,
            2 + u64::from(third.is_ok())
        );
        bench.end(entries.into_iter().chain(third.ok()));
    });
}

#[test]
fn no_slot_is_taken_for_a_group_that_is_gone() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, 0);
        bench.engine.remove_group(bench.group).expect("empty");
        assert_eq!(bench.try_out(Content::Text, 1), Err(AllocError::NoGroup));
        let stats = bench.engine.stats();
        assert_eq!(
            (stats.slots_used, stats.physical, stats.frames_used),
            (0, 0, 0)
        );
    });
}

#[test]
fn cached_becomes_zero() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, POOL_BYTES);
        let entry = bench.in_state(State::Zero, 1);
        bench.assert_slots_charged(1, 0);
        assert_eq!(bench.engine.stats().zero, 1);
        let (from, page) = read(&bench.engine, entry).expect("not lost");
        assert!(from == SwapIn::Zero && page.is_zero());
        assert_eq!(bench.probe.writes(), 0);
        bench.end([entry]);
    });
}

#[test]
fn cached_becomes_pool() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, POOL_BYTES);
        let entry = bench.in_state(State::Pool, 1);
        bench.assert_slots_charged(1, 0);
        let (_, bytes) = charges(&bench.engine, bench.group);
        assert_eq!(bytes, bench.engine.stats().payload_bytes);
        assert_holds(&bench.engine, entry, Content::Text, 1, SwapIn::Compressed);
        bench.end([entry]);
    });
}

/// The pool takes some pages of a batch, and the areas take the rest.
#[test]
fn a_pool_that_is_full_at_a_page_of_a_batch_leaves_the_rest_to_areas() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, 0);
        let entries: Vec<Entry> = (1..=8).map(|seed| bench.out(Content::Text, seed)).collect();
        let limits = GroupLimits {
            pool_max_bytes: PAGE_BYTES as u64,
            ..GroupLimits::default()
        };
        bench.engine.set_pool_limit(POOL_BYTES);
        bench
            .engine
            .set_group_limits(bench.group, limits)
            .expect("there");
        let outcomes = bench.write(&entries);
        let in_area = outcomes
            .iter()
            .filter(|one| **one == Ok(Written::Physical))
            .count();
        assert!(
            outcomes.iter().all(Result::is_ok) && (1..8).contains(&in_area),
            "{outcomes:?}"
        );
        for (seed, (&entry, outcome)) in (1..).zip(entries.iter().zip(&outcomes)) {
            let (state, from) = match outcome {
                Ok(Written::Physical) => (State::Area, SwapIn::Physical),
                _ => (State::Pool, SwapIn::Compressed),
            };
            assert_eq!(bench.state(entry), state);
            assert_holds(&bench.engine, entry, Content::Text, seed, from);
        }
        bench.assert_slots_charged(8, in_area as u64);
        bench.end(entries);
    });
}

#[test]
fn cached_becomes_area() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, 0);
        let entries: Vec<Entry> = (1..=8).map(|seed| bench.out(Content::Text, seed)).collect();
        assert_eq!(bench.write(&entries), [Ok(Written::Physical); 8]);
        bench.assert_states(&entries, State::Area);
        bench.assert_slots_charged(8, 8);
        if SLOTS_PER_CLUSTER > 16 {
            assert_eq!(bench.probe.writes(), 1, "neighbours");
        }
        for (seed, &entry) in (1..).zip(&entries) {
            assert!(bench.engine.is_physical(entry));
            assert_holds(&bench.engine, entry, Content::Text, seed, SwapIn::Physical);
            let slot = slot_of(&bench.engine, entry);
            assert!(!bench.is_direct() || slot == entry.offset());
        }
        bench.end(entries);
    });
}

/// Pages of which every other one is put, so that each remaining page needs a request of its own.
fn scattered(bench: &Bench, pages: u64) -> Vec<Entry> {
    let all: Vec<Entry> = (0..2 * pages)
        .map(|seed| bench.out(Content::Text, seed))
        .collect();
    let (kept, between): (Vec<_>, Vec<_>) = (0..).zip(all).partition(|(at, _)| at % 2 == 0);
    between
        .into_iter()
        .for_each(|(_, entry)| bench.engine.put(entry));
    kept.into_iter().map(|(_, entry)| entry).collect()
}

#[test]
fn a_store_that_fails_at_any_page_leaves_that_page_cached_and_charged_as_before() {
    for_both(|mapping| {
        for good in 0..4 {
            let bench = Bench::new(mapping, 0);
            let entries = scattered(&bench, 4);
            bench.probe.refuse_writes(good, Some(BROKEN));
            let outcomes: Vec<_> = if bench.is_direct() {
                bench.write(&entries)
            } else {
                entries
                    .iter()
                    .flat_map(|&entry| bench.write(&[entry]))
                    .collect()
            };
            for (at, &entry) in entries.iter().enumerate() {
                let is_written = (at as u64) < good;
                let (state, from) = if is_written {
                    (State::Area, SwapIn::Physical)
                } else {
                    (State::Cached, SwapIn::Cached)
                };
                assert_eq!(outcomes[at].is_ok(), is_written, "{outcomes:?}");
                assert_eq!(bench.state(entry), state);
                assert_holds(&bench.engine, entry, Content::Text, 2 * at as u64, from);
            }
            bench.assert_slots_charged(4, good);
            bench.probe.refuse_writes(0, None);
            bench.end(entries);
        }
    });
}

#[test]
fn an_area_that_is_full_refuses_virtual_pages_and_never_those_that_have_their_slots() {
    for_both(|mapping| {
        let bench = Bench::with(mapping, 0, 4, MANY);
        let entries: Vec<Entry> = (1..4).map(|seed| bench.out(Content::Text, seed)).collect();
        assert_eq!(bench.write(&entries), [Ok(Written::Physical); 3]);
        if let Ok(fourth) = bench.try_out(Content::Text, 4) {
            assert_eq!(bench.write(&[fourth]), [Err(WriteOutError::Full)]);
            assert_eq!(bench.state(fourth), State::Cached);
            bench.engine.put(fourth);
        }
        bench.assert_states(&entries, State::Area);
        bench.assert_slots_charged(3, 3);
        bench.end(entries);
    });
}

#[test]
fn a_group_that_may_not_write_back_keeps_its_pages_out_of_its_slots() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, 0);
        let limits = GroupLimits {
            writeback: false,
            ..GroupLimits::default()
        };
        bench
            .engine
            .set_group_limits(bench.group, limits)
            .expect("there");
        let entry = bench.out(Content::Text, 1);
        assert_eq!(bench.write(&[entry]), [Err(WriteOutError::Limited)]);
        assert_eq!(bench.state(entry), State::Cached);
        bench.assert_slots_charged(1, 0);
        bench.engine.set_pool_limit(POOL_BYTES);
        let noise = bench.out(Content::Random, 2);
        assert_eq!(bench.write(&[noise]), [Ok(Written::Raw)]);
        assert!(matches!(
            bench.write(&[entry])[..],
            [Ok(Written::Compressed { .. })]
        ));
        assert_eq!((bench.write_back(2).limited, bench.probe.writes()), (2, 0));
        bench.assert_states(&[entry, noise], State::Pool);
        bench.end([entry, noise]);
    });
}
