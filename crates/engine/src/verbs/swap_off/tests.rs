//! Unit tests of swap-offs. What other threads would do meanwhile is done from `cancel`, between two batches.

use std::cell::Cell;

use super::*;
use crate::area::AllocError;
use crate::areas::{NewArea, PRIORITY_DEFAULT};
use crate::base::pages::Page;
use crate::base::storage::Storage;
use crate::testing::{self, Probe, area_on, assert_holds, engine_with_areas, out, read};
use crate::verbs::leaving::Written;
use crate::verbs::swap_in::SwapIn;
use crate::words::backing_word::Pin;
use crate::zpool::testing::{Content, page_bytes};

const POOL_BYTES: u64 = 1 << 20;

fn id(index: usize) -> AreaId {
    AreaId::physical(index).expect("a number")
}

fn swap_off(engine: &Engine, index: usize) -> Result<(), SwapOffError> {
    engine.swap_off(id(index), &mut engine.scratch(), &|| false)
}

/// Pages of these seeds, in the area that is next. The pool has no room.
fn written(engine: &Engine, seeds: std::ops::Range<u64>) -> Vec<Entry> {
    let entries: Vec<Entry> = seeds.map(|seed| out(engine, Content::Text, seed)).collect();
    engine.write_out_all(0, &entries, &mut engine.scratch(), |_, outcome| {
        assert_eq!(outcome, Ok(Written::Physical));
    });
    entries
}

fn assert_all_hold(engine: &Engine, entries: &[Entry], expected: SwapIn) {
    for (seed, &entry) in (0..).zip(entries) {
        assert_holds(engine, entry, Content::Text, seed, expected);
    }
}

fn used(engine: &Engine) -> Vec<(AreaId, u64)> {
    let pages = |bytes| bytes / crate::base::pages::PAGE_BYTES as u64;
    let areas = engine.areas();
    areas
        .iter()
        .map(|area| (area.id, pages(area.used_bytes)))
        .collect()
}

#[test]
fn pages_go_to_the_pool_and_the_storage_is_closed() {
    let (engine, probes) = engine_with_areas(16, 0, &[24, 24]);
    let mut entries = written(&engine, 0..12);
    engine.put(entries.remove(11));
    engine.set_pool_limit(POOL_BYTES);
    let tables = engine.stats().table_bytes;
    assert_eq!(swap_off(&engine, 0), Ok(()));
    assert_all_hold(&engine, &entries, SwapIn::Compressed);
    let stats = engine.stats();
    assert_eq!((stats.physical, stats.compressed, stats.raw), (0, 11, 0));
    assert!(probes[0].is_closed() && !probes[1].is_closed());
    assert_eq!(used(&engine), [(id(1), 0)], "the other keeps its number");
    assert!(stats.table_bytes >= tables, "what stays of it is counted");
    assert_eq!(swap_off(&engine, 0), Err(SwapOffError::NotInUse));
    entries.into_iter().for_each(|entry| engine.put(entry));
    assert_eq!(engine.stats().slots_used, 0);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn without_a_pool_pages_go_to_another_area_in_runs() {
    let (engine, probes) = engine_with_areas(16, 0, &[24, 24]);
    let entries = written(&engine, 0..12);
    assert_eq!(used(&engine), [(id(0), 12), (id(1), 0)]);
    assert_eq!(swap_off(&engine, 0), Ok(()));
    assert_eq!(used(&engine), [(id(1), 12)]);
    if crate::words::geometry::SLOTS_PER_CLUSTER > 16 {
        assert_eq!((probes[0].reads(), probes[1].writes()), (1, 1));
    }
    assert_all_hold(&engine, &entries, SwapIn::Physical);
}

#[test]
fn a_page_of_zeros_becomes_a_flag_and_one_that_does_not_compress_stays_whole() {
    let (engine, probes) = engine_with_areas(4, 0, &[24]);
    let zeros = written(&engine, 0..1)[0];
    probes[0]
        .write(1, &[&Page::zeroed()])
        .expect("the slot behind the header");
    engine.set_pool_limit(POOL_BYTES);
    let random = out(&engine, Content::Random, 7);
    let result = engine.write_out(random, &mut engine.scratch());
    assert_eq!(result, Ok(Written::Physical));
    assert_eq!(swap_off(&engine, 0), Ok(()));
    let (from, page) = read(&engine, zeros).expect("not lost");
    assert!(from == SwapIn::Zero && page.is_zero());
    assert_holds(&engine, random, Content::Random, 7, SwapIn::Compressed);
    assert_eq!((engine.stats().zero, engine.stats().raw), (1, 1));
    engine.put(zeros);
    assert_eq!(engine.stats().zero, 0);
}

#[test]
#[cfg_attr(miri, ignore = "makes more areas than the interpreter has time for")]
fn a_number_is_used_again_and_priorities_stay() {
    let (engine, _) = engine_with_areas(4, 0, &[]);
    let swap_on = |priority| {
        let area = NewArea {
            priority,
            ..area_on(&Probe::new(8), 8)
        };
        engine.swap_on(area).expect("a good area")
    };
    let ids = [5, PRIORITY_DEFAULT, 7].map(swap_on);
    for _ in 0..2 {
        engine
            .swap_off(ids[0], &mut engine.scratch(), &|| false)
            .expect("empty");
        let priorities: Vec<i16> = engine.areas().iter().map(|area| area.priority).collect();
        assert_eq!(priorities, [PRIORITY_DEFAULT, 7]);
        assert_eq!(swap_on(9), ids[0]);
        let page = written(&engine, 0..1);
        assert_eq!(
            engine.areas()[0].used_bytes,
            crate::base::pages::PAGE_BYTES as u64
        );
        assert_all_hold(&engine, &page, SwapIn::Physical);
        engine.put(page[0]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn without_room_the_area_is_back_in_its_place() {
    let (engine, probes) = engine_with_areas(16, 0, &[16, 8]);
    let mut entries = written(&engine, 0..10);
    let result = swap_off(&engine, 0);
    assert!(
        matches!(result, Err(SwapOffError::NoRoom { pages: 1.. })),
        "{result:?}"
    );
    assert!(!probes[0].is_closed() && !engine.areas()[0].closing);
    assert_all_hold(&engine, &entries, SwapIn::Physical);
    // 22 slots, and all of them are given out again.
    entries.extend(written(&engine, 10..22));
    assert_eq!(used(&engine), [(id(0), 15), (id(1), 7)]);
    assert_all_hold(&engine, &entries, SwapIn::Physical);
    engine.set_pool_limit(POOL_BYTES);
    assert_eq!(swap_off(&engine, 0), Ok(()));
    let pool = |entry: &&Entry| !engine.is_physical(**entry);
    assert_eq!(entries.iter().filter(pool).count(), 15);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_page_that_cannot_be_read_stays_and_is_reported() {
    let (engine, probes) = engine_with_areas(16, 0, &[24]);
    let entries = written(&engine, 0..10);
    engine.set_pool_limit(POOL_BYTES);
    let bad = [2, 4].map(|at: usize| testing::slot_of(&engine, entries[at]));
    probes[0].unreadable(&bad);
    let result = swap_off(&engine, 0);
    assert_eq!(result, Err(SwapOffError::Unreadable { pages: 2 }));
    assert_eq!(engine.stats().physical, 2);
    assert!(engine.is_physical(entries[2]) && engine.is_physical(entries[4]));
    probes[0].unreadable(&bad[..1]);
    let result = swap_off(&engine, 0);
    assert_eq!(result, Err(SwapOffError::Unreadable { pages: 1 }));
    engine.put(entries[2]);
    assert_eq!(swap_off(&engine, 0), Ok(()));
    assert!(probes[0].is_closed());
    for seed in (0..10).filter(|seed| *seed != 2) {
        let entry = entries[usize::try_from(seed).expect("small")];
        assert_holds(&engine, entry, Content::Text, seed, SwapIn::Compressed);
    }
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn areas_that_refuse_pages_are_no_room_and_lose_none() {
    let (engine, probes) = engine_with_areas(16, 0, &[24, 24]);
    let entries = written(&engine, 0..10);
    probes[1].broken(true);
    let result = swap_off(&engine, 0);
    assert_eq!(result, Err(SwapOffError::NoRoom { pages: 10 }));
    assert_all_hold(&engine, &entries, SwapIn::Physical);
    assert_eq!(used(&engine), [(id(0), 10), (id(1), 0)]);
}

#[test]
fn it_can_be_cancelled_and_is_refused_a_second_time_meanwhile() {
    let (engine, _) = engine_with_areas(16, 0, &[24]);
    let entries = written(&engine, 0..4);
    engine.set_pool_limit(POOL_BYTES);
    let second = || {
        assert!(engine.areas()[0].closing);
        assert_eq!(swap_off(&engine, 0), Err(SwapOffError::UnderWay));
        true
    };
    let result = engine.swap_off(id(0), &mut engine.scratch(), &second);
    assert_eq!(result, Err(SwapOffError::Cancelled { pages: 4 }));
    assert!(!engine.areas()[0].closing);
    assert_all_hold(&engine, &entries, SwapIn::Physical);
    assert_eq!(swap_off(&engine, 0), Ok(()));
}

#[test]
fn a_closed_area_gives_out_nothing_and_is_waited_for() {
    let (engine, probes) = engine_with_areas(16, 0, &[24]);
    // A writer has taken a slot and not yet told the virtual slot.
    let page = out(&engine, Content::Text, 0);
    let slot = testing::slot(&engine.areas, 0, page.offset()).expect("room");
    let asked = Cell::new(0);
    let writer = || {
        assert_eq!(testing::slot(&engine.areas, 0, 1), None);
        assert_eq!(testing::slot(&engine.areas, 1, 1), None);
        asked.set(asked.get() + 1);
        if asked.get() == 5 {
            _ = engine.areas.give_back(slot);
        }
        false
    };
    let result = engine.swap_off(id(0), &mut engine.scratch(), &writer);
    assert_eq!(result, Ok(()));
    assert!(asked.get() > 5);
    assert!(probes[0].is_closed());
    assert_holds(&engine, page, Content::Text, 0, SwapIn::Cached);
    let refused = testing::slot(&engine.areas, 0, 1);
    assert_eq!(refused, None, "{}", AllocError::Full);
}

#[test]
fn readers_are_waited_for_and_a_put_meanwhile_leaves_nothing() {
    let (engine, probes) = engine_with_areas(16, 0, &[24]);
    let entries = written(&engine, 0..3);
    engine.set_pool_limit(POOL_BYTES);
    let at = |entry| engine.virtual_area.locate(entry).expect("in use");
    for &entry in &entries[..2] {
        let (cluster, slot) = at(entry);
        assert!(matches!(engine.pin(cluster, slot), Pin::Taken(_)));
    }
    let asked = Cell::new(0);
    let readers = || {
        asked.set(asked.get() + 1);
        match asked.get() {
            2 => engine.put(entries[1]),
            4 => engine.unpin_entry(entries[0]),
            6 => engine.unpin_entry(entries[1]),
            _ => {}
        }
        false
    };
    let result = engine.swap_off(id(0), &mut engine.scratch(), &readers);
    assert_eq!(result, Ok(()));
    assert!(asked.get() >= 6 && probes[0].is_closed());
    let stats = engine.stats();
    assert_eq!(
        (stats.slots_used, stats.compressed, stats.physical),
        (2, 2, 0)
    );
    assert_holds(&engine, entries[0], Content::Text, 0, SwapIn::Compressed);
    assert_holds(&engine, entries[2], Content::Text, 2, SwapIn::Compressed);
}

#[test]
fn the_word_of_a_slot_is_not_believed() {
    let (engine, _) = engine_with_areas(16, 0, &[24]);
    let entries = written(&engine, 0..2);
    engine.set_pool_limit(POOL_BYTES);
    // A slot that is about to be freed: its virtual slot already has another page.
    let stale = testing::slot(&engine.areas, 0, entries[0].offset()).expect("room");
    assert_eq!(engine.pin_behind(stale, entries[0]), Pin::Nothing);
    let asked = Cell::new(0);
    let late = || {
        asked.set(asked.get() + 1);
        if asked.get() == 3 {
            _ = engine.areas.free(stale);
        }
        false
    };
    let result = engine.swap_off(id(0), &mut engine.scratch(), &late);
    assert_eq!(result, Ok(()));
    assert_all_hold(&engine, &entries, SwapIn::Compressed);
    assert_eq!(engine.stats().compressed, 2);
    assert!(page_bytes(Content::Text, 0) != page_bytes(Content::Text, 1));
}
