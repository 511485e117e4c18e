//! Tests at the far end of areas, 8 PiB less 2 MiB from their start, and of sparsely used areas.
//!
//! The first cluster that a test takes is placed at the end. What lies before it was never used, and must cost nothing.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::area::testing::{assert_sound, place_next};
use crate::area::{AllocError, NONFULL_FREE_MIN};
use crate::areas::{Discard, NewArea, PRIORITY_DEFAULT, Physical};
use crate::base::pages::{HeapPages, PAGE_BYTES, Page};
use crate::base::storage::{Storage, StorageError};
use crate::cluster::TABLE_PAGES;
use crate::codec::Codec;
use crate::engine::{Config, Engine};
use crate::groups::GroupId;
use crate::testing::{assert_holds, out, read, slot_of};
use crate::verbs::leaving::Written;
use crate::verbs::lookup::Lookup;
use crate::verbs::swap_in::{SwapIn, SwapInError};
use crate::verbs::write_out::WriteOutError;
use crate::words::entry::{AreaId, Entry};
use crate::words::geometry::{CLUSTERS_MAX, SLOTS_MAX, SLOTS_PER_CLUSTER};
use crate::words::shadow::Shadow;
use crate::words::slot::{COUNT_INLINE_MAX, Kind};
use crate::words::tier::TierId;
use crate::zpool::testing::Content;

const LAST_CLUSTER: u32 = CLUSTERS_MAX - 1;
const LAST_SLOT: u64 = SLOTS_MAX - 1;

/// Storage as long as an area can be. Only pages that were written take memory.
#[derive(Debug, Default)]
struct Vast(Mutex<HashMap<u64, Page>>);

impl Storage for Vast {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        let slots = self.0.lock().expect("no panic");
        for (slot, page) in (slot..).zip(pages) {
            page.0 = slots.get(&slot).ok_or(StorageError::Short)?.0;
        }
        Ok(())
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        assert!(slot + pages.len() as u64 <= SLOTS_MAX, "behind the end");
        let mut slots = self.0.lock().expect("no panic");
        slots.extend((slot..).zip(pages.iter().map(|&page| page.clone())));
        Ok(())
    }

    fn discard(&self, slots: Range<u64>) -> Result<(), StorageError> {
        let mut kept = self.0.lock().expect("no panic");
        kept.retain(|slot, _| !slots.contains(slot));
        Ok(())
    }
}

/// An engine that gives every CPU clusters of its own.
fn engine(cpus: usize, frames: usize, pool_limit_bytes: u64) -> (Engine, Arc<HeapPages>) {
    let pages = Arc::new(HeapPages::new());
    let config = Config {
        frames,
        cpus,
        codec: Codec::Lz4,
        pool_limit_bytes,
        checksums: true,
    };
    let engine = Engine::new(&config, Arc::clone(&pages) as _).expect("memory");
    (engine, pages)
}

/// An engine whose next virtual cluster is `next`. Its physical area is as long as can be, and goes on with its last
/// cluster.
fn at_the_end(next: u32, pool_limit_bytes: u64) -> (Engine, AreaId) {
    let (engine, _) = engine(1, SLOTS_PER_CLUSTER + 1, pool_limit_bytes);
    place_next(&engine.virtual_area, next);
    let area = engine.swap_on(NewArea {
        slots: SLOTS_MAX,
        bad: Vec::new(),
        priority: PRIORITY_DEFAULT,
        tier: TierId::default(),
        discard: Discard::Pages,
        rotating: false,
        storage: Box::new(Vast::default()),
    });
    let id = area.expect("not too large");
    place_next(&physical(&engine, id).area, LAST_CLUSTER);
    (engine, id)
}

fn physical(engine: &Engine, id: AreaId) -> &Physical {
    engine.areas.get(id).expect("in use")
}

/// Where a page is to go, which also decides its content.
#[derive(Debug, Clone, Copy)]
enum Home {
    Frame,
    Pool,
    Area,
}

const HOMES: [Home; 3] = [Home::Frame, Home::Pool, Home::Area];

impl Home {
    /// The homes in turn, such that the page in a cluster's last slot gets this one.
    fn of_slot(self, slot: usize) -> Home {
        HOMES[(self as usize + HOMES.len() * SLOTS_PER_CLUSTER - (SLOTS_PER_CLUSTER - 1 - slot))
            % HOMES.len()]
    }

    fn content(self) -> Content {
        match self {
            Home::Frame | Home::Pool => Content::Text,
            Home::Area => Content::Random,
        }
    }

    fn source(self) -> SwapIn {
        match self {
            Home::Frame => SwapIn::Cached,
            Home::Pool => SwapIn::Compressed,
            Home::Area => SwapIn::Physical,
        }
    }

    fn send(self, engine: &Engine, seed: u64) -> Entry {
        let entry = out(engine, self.content(), seed);
        let written = match self {
            Home::Frame => return entry,
            _ => engine
                .write_out(entry, &mut engine.scratch())
                .expect("room"),
        };
        match self {
            Home::Area => assert_eq!(written, Written::Physical),
            _ => assert!(matches!(written, Written::Compressed { .. }), "{written:?}"),
        }
        entry
    }
}

/// Takes every slot of the last cluster.
fn fill(engine: &Engine, home: impl Fn(usize) -> Home) -> Vec<Entry> {
    let slots = 0..SLOTS_PER_CLUSTER;
    let entries: Vec<Entry> = slots
        .map(|slot| home(slot).send(engine, slot as u64))
        .collect();
    for (slot, entry) in entries.iter().enumerate() {
        assert_eq!(entry.position(), (LAST_CLUSTER, slot));
    }
    entries
}

fn assert_all_hold(engine: &Engine, entries: &[Entry], home: impl Fn(usize) -> Home) {
    for (slot, &entry) in entries.iter().enumerate() {
        let home = home(slot);
        assert_holds(engine, entry, home.content(), slot as u64, home.source());
    }
}

fn assert_full(engine: &Engine) {
    let frame = engine.frame().expect("one more than slots");
    let refused = engine.swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT);
    assert!(matches!(refused, Err((_, AllocError::Full))), "{refused:?}");
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn the_last_slot_serves_as_any_other_and_there_is_none_behind_it() {
    for last in HOMES {
        let (engine, _) = at_the_end(LAST_CLUSTER, 1 << 24);
        let home = |slot| last.of_slot(slot);
        let entries = fill(&engine, home);
        let end = entries[SLOTS_PER_CLUSTER - 1];
        assert_eq!(end.offset(), LAST_SLOT);
        assert_eq!(Entry::from_raw(end.raw()), Some(end));
        assert_full(&engine);
        assert_eq!(engine.stats().alloc_reject, 1);
        assert_eq!(Entry::from_raw(end.raw() + 1), None);
        assert_eq!(Entry::at(AreaId::VIRTUAL, SLOTS_MAX), None);
        assert_all_hold(&engine, &entries, home);
        for count in 2..=2 * u32::from(COUNT_INLINE_MAX) {
            engine.dup(end).expect("room");
            assert_eq!(engine.count(end), count);
        }
        assert_all_hold(&engine, &entries, home);
        (1..engine.count(end)).for_each(|_| engine.put(end));
        assert_eq!(engine.count(end), 1);
        assert_all_hold(&engine, &entries, home);
        assert_eq!(assert_sound(&engine.virtual_area), SLOTS_PER_CLUSTER as u64);
        entries.iter().for_each(|&entry| engine.put(entry));
        assert!(matches!(engine.lookup(end), Lookup::Gone));
        let gone = read(&engine, end).map(|(from, _)| from);
        assert_eq!(gone, Err(SwapInError::Gone));
        let stats = engine.stats();
        assert_eq!((stats.slots_used, stats.frames_used), (0, 0));
        assert_eq!((stats.physical, stats.pool_bytes), (0, 0));
    }
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn the_last_cluster_is_found_again_when_slots_of_it_are_free() {
    let (engine, _) = at_the_end(LAST_CLUSTER, 1 << 24);
    for _ in 0..2 {
        // First in a new cluster, then in one from the list of free clusters.
        let entries = fill(&engine, |_| Home::Pool);
        assert_full(&engine);
        // From the list of clusters with few free slots, and of those with many.
        for count in [1, NONFULL_FREE_MIN] {
            let (freed, kept) = entries.split_at(count);
            for &entry in freed {
                engine.put(entry);
                assert_sound(&engine.virtual_area);
            }
            let seeds = 1000..1000 + count as u64;
            let mut again: Vec<Entry> = seeds
                .clone()
                .map(|seed| Home::Pool.send(&engine, seed))
                .collect();
            assert_full(&engine);
            for (seed, &entry) in seeds.zip(&again) {
                assert_holds(&engine, entry, Content::Text, seed, SwapIn::Compressed);
            }
            again.sort_unstable();
            assert_eq!(again, freed);
            for (slot, &entry) in (count as u64..).zip(kept) {
                assert_holds(&engine, entry, Content::Text, slot, SwapIn::Compressed);
            }
        }
        entries.iter().for_each(|&entry| engine.put(entry));
        assert_eq!(assert_sound(&engine.virtual_area), 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn the_last_slots_of_both_kinds_of_area_name_each_other() {
    let (engine, id) = at_the_end(LAST_CLUSTER, 0);
    let home = |_| Home::Area;
    let entries = fill(&engine, home);
    let area = &physical(&engine, id).area;
    for &entry in &entries {
        let slot = slot_of(&engine, entry);
        assert_eq!(slot, entry.offset(), "both were taken in order");
        let behind = Entry::at(id, slot).expect("a slot");
        let (cluster, place) = area.locate(behind).expect("used");
        let offset = entry.offset();
        let pointer = Kind::Pointer { offset };
        assert_eq!(cluster.word(place).kind(), pointer);
    }
    assert_all_hold(&engine, &entries, home);
    let figures = engine.areas()[0];
    assert_eq!(figures.size_bytes, SLOTS_MAX * PAGE_BYTES as u64);
    assert_eq!(figures.used_bytes, (SLOTS_PER_CLUSTER * PAGE_BYTES) as u64);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_physical_area_has_no_slot_behind_its_last() {
    let (engine, _) = at_the_end(LAST_CLUSTER - 1, 0);
    // One more page than there are slots left.
    let all = 0..=SLOTS_PER_CLUSTER as u64;
    let entries: Vec<Entry> = all
        .map(|seed| out(&engine, Content::Random, seed))
        .collect();
    let mut refused = Vec::new();
    engine.write_out_all(
        0,
        &entries,
        &mut engine.scratch(),
        |entry, written| match written {
            Ok(written) => assert_eq!(written, Written::Physical),
            Err(error) => refused.push((entry, error)),
        },
    );
    assert_eq!(refused, [(entries[SLOTS_PER_CLUSTER], WriteOutError::Full)]);
    for (seed, &entry) in entries.iter().enumerate() {
        let home = if seed < SLOTS_PER_CLUSTER {
            Home::Area
        } else {
            Home::Frame
        };
        assert_holds(&engine, entry, Content::Random, seed as u64, home.source());
    }
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn an_area_of_which_the_last_cluster_is_used_is_swapped_off_and_discarded() {
    let (engine, id) = at_the_end(LAST_CLUSTER, 0);
    let entries = fill(&engine, |_| Home::Area);
    let (freed, kept) = entries.split_at(SLOTS_PER_CLUSTER / 2);
    engine.set_pool_limit(1 << 24);
    freed.iter().for_each(|&entry| engine.put(entry));
    assert_eq!(
        engine.swap_off(id, &mut engine.scratch(), &|| false),
        Ok(())
    );
    assert!(engine.areas().is_empty());
    for (seed, &entry) in (freed.len() as u64..).zip(kept) {
        assert_holds(&engine, entry, Content::Random, seed, SwapIn::Compressed);
        engine.put(entry);
    }
    let (engine, _) = at_the_end(LAST_CLUSTER, 0);
    fill(&engine, |_| Home::Area)
        .into_iter()
        .for_each(|entry| engine.put(entry));
    assert_eq!(engine.discard(2), 1);
    assert_eq!(engine.areas()[0].pages_discarded, SLOTS_PER_CLUSTER as u64);
}

/// Clusters of the sparse area. An eighth of the whole area, 1 PiB, is divided evenly between them.
const SPARSE_CLUSTERS: usize = if SLOTS_PER_CLUSTER == 512 { 64 } else { 4 };
const SPARSE_STEP: usize = CLUSTERS_MAX as usize / 8 / SPARSE_CLUSTERS;

#[test]
fn an_area_used_here_and_there_costs_what_is_used() {
    let (engine, pages) = engine(SPARSE_CLUSTERS, 1, 1 << 24);
    let (idle, idle_pages) = (engine.stats(), pages.pages_out());
    let ids = (0..SPARSE_CLUSTERS).map(|at| at * SPARSE_STEP);
    let entries: Vec<Entry> = ids
        .enumerate()
        .map(|(cpu, id)| {
            let id = u32::try_from(id).expect("below CLUSTERS_MAX");
            place_next(&engine.virtual_area, id);
            let mut frame = engine.frame().expect("written out");
            frame.0.fill(0);
            let entry = engine.swap_out(cpu, frame, Shadow::ABSENT, GroupId::ROOT);
            let entry = entry.expect("memory");
            assert_eq!(entry.position(), (id, 0));
            let written = engine.write_out(entry, &mut engine.scratch());
            assert_eq!(written, Ok(Written::Zero));
            entry
        })
        .collect();
    let stats = engine.stats();
    assert_eq!(stats.clusters, SPARSE_CLUSTERS as u64);
    // Each has two tables, and nothing else came from the page source.
    let tables = SPARSE_CLUSTERS * 2 * TABLE_PAGES;
    assert_eq!(pages.pages_out() - idle_pages, tables);
    // Besides the tables there are the records, those of neighbours in the same leaf, and the tree above them. That is
    // far less than the 32 GiB of records for a PiB.
    let each = (stats.table_bytes - idle.table_bytes) / SPARSE_CLUSTERS as u64;
    assert!(each <= 56 << 10, "{each} bytes a cluster");
    for &entry in &entries {
        let (from, page) = read(&engine, entry).expect("in use");
        assert!(from == SwapIn::Zero && page.is_zero());
    }
    let between = Entry::at(AreaId::VIRTUAL, entries[1].offset() - 1).expect("an offset");
    assert!(matches!(engine.lookup(between), Lookup::Gone));
    assert_eq!(engine.count(between), 0);
    engine.put(between);
    assert_eq!(assert_sound(&engine.virtual_area), SPARSE_CLUSTERS as u64);
    entries.into_iter().for_each(|entry| engine.put(entry));
    assert_eq!(assert_sound(&engine.virtual_area), 0);
}
