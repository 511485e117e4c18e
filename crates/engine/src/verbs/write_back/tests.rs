//! Unit tests of writing back: which pages go, and what is left when it fails. The tests of races and of the kernel's
//! bugs have what other threads do meanwhile.

use super::*;
use crate::areas::NewArea;
use crate::base::storage::StorageError;
use crate::testing::{
    BROKEN, Packing, Probe, area_on, assert_holds, damage, engine_with_areas, out, read,
};
use crate::verbs::swap_in::{SwapIn, SwapInError};
use crate::zpool::testing::Content;

const POOL_BYTES: u64 = 1 << 22;
const FRAMES: usize = 32;
/// Slots of an area with room for everything.
const ROOMY: u64 = 192;

fn engine(slots: u64) -> (Engine, Probe) {
    let (engine, mut probes) = engine_with_areas(FRAMES, POOL_BYTES, &[slots]);
    (engine, probes.remove(0))
}

/// Stores the page of a seed in the pool.
fn stored(engine: &Engine, seed: u64) -> Entry {
    stored_as(engine, Content::Text, seed)
}

fn stored_as(engine: &Engine, kind: Content, seed: u64) -> Entry {
    let entry = out(engine, kind, seed);
    let written = engine.write_out(entry, &mut engine.scratch());
    written.expect("room");
    assert_holds(engine, entry, kind, seed, SwapIn::Compressed);
    entry
}

fn stored_all(engine: &Engine, seeds: std::ops::Range<u64>) -> Vec<Entry> {
    seeds.map(|seed| stored(engine, seed)).collect()
}

fn write_back(engine: &Engine, budget_pages: usize) -> WriteBack {
    engine.write_back(0, budget_pages, &mut engine.scratch())
}

fn moved(pages: usize) -> WriteBack {
    WriteBack {
        pages,
        ..WriteBack::default()
    }
}

/// Checks that the page of each seed is in the expected place, and that reading it leaves it there.
fn assert_all_hold(engine: &Engine, first: u64, entries: &[Entry], expected: SwapIn) {
    for (seed, &entry) in (first..).zip(entries) {
        assert_holds(engine, entry, Content::Text, seed, expected);
    }
}

fn seeds_in_area(engine: &Engine, entries: &[Entry]) -> Vec<usize> {
    let in_area = |at: &usize| engine.is_physical(entries[*at]);
    (0..entries.len()).filter(in_area).collect()
}

fn begin_generations(engine: &Engine, times: usize) {
    (0..times).for_each(|_| engine.begin_generation());
}

#[test]
fn the_cold_goes_and_the_hot_stays() {
    let (engine, _) = engine(ROOMY);
    let old = stored_all(&engine, 0..8);
    begin_generations(&engine, 2);
    // Shared or kept pages are read and stay.
    assert_holds(&engine, old[2], Content::Text, 2, SwapIn::Compressed);
    assert_holds(&engine, old[5], Content::Text, 5, SwapIn::Compressed);
    let young = stored_all(&engine, 8..14);
    assert_eq!(write_back(&engine, 6), moved(6));
    assert_eq!(seeds_in_area(&engine, &old), [0, 1, 3, 4, 6, 7]);
    assert_eq!(seeds_in_area(&engine, &young), []);
    let stats = engine.stats();
    assert_eq!((stats.physical, stats.compressed), (6, 8));
    for (seed, &entry) in (0..).zip(&old) {
        let is_read = [2, 5].contains(&seed);
        let from = [SwapIn::Physical, SwapIn::Compressed][usize::from(is_read)];
        assert_holds(&engine, entry, Content::Text, seed, from);
    }
    assert_all_hold(&engine, 8, &young, SwapIn::Compressed);
    old.into_iter().chain(young).for_each(|e| engine.put(e));
    let stats = engine.stats();
    assert_eq!(
        (stats.slots_used, stats.physical, stats.pool_bytes),
        (0, 0, 0)
    );
}

#[test]
fn storage_that_keeps_pages_packed_gets_what_the_pool_has() {
    let (engine, _) = engine_with_areas(FRAMES, POOL_BYTES, &[]);
    let kind = |seed: u64| match seed % 3 {
        1 => Content::Random,
        _ => Content::Text,
    };
    let entries: Vec<Entry> = (0..24)
        .map(|seed| stored_as(&engine, kind(seed), seed))
        .collect();
    let packing = Packing::default();
    let area = area_on(&Probe::new(0), ROOMY);
    let storage = Box::new(packing.clone());
    let swapped_on = engine.swap_on(NewArea { storage, ..area });
    let area = swapped_on.expect("a good area");
    assert_eq!(write_back(&engine, 24), moved(24));
    let payloads = packing.payloads();
    let is_raw = |bytes: &&usize| **bytes == PAGE_BYTES;
    assert_eq!(payloads.len(), 24);
    assert_eq!(payloads.iter().filter(is_raw).count(), 8, "{payloads:?}");
    assert!(payloads.iter().sum::<usize>() < 20 * PAGE_BYTES);
    for (seed, &entry) in (0..).zip(&entries) {
        assert_holds(&engine, entry, kind(seed), seed, SwapIn::Physical);
    }
    let left = engine.swap_off(area, &mut engine.scratch(), &|| false);
    assert_eq!(left, Ok(()));
    for (seed, &entry) in (0..).zip(&entries) {
        assert_holds(&engine, entry, kind(seed), seed, SwapIn::Compressed);
    }
}

#[test]
fn damage_in_the_pool_does_not_travel() {
    let (engine, _) = engine_with_areas(FRAMES, POOL_BYTES, &[]);
    let entries = stored_all(&engine, 0..4);
    let packing = Packing::default();
    let area = area_on(&Probe::new(0), ROOMY);
    let storage = Box::new(packing.clone());
    engine
        .swap_on(NewArea { storage, ..area })
        .expect("a good area");
    damage(&engine, entries[1]);
    let done = write_back(&engine, 4);
    assert_eq!((done.pages, done.damaged), (3, 1));
    assert_eq!(packing.payloads().len(), 3);
    assert!(matches!(
        read(&engine, entries[1]),
        Err(SwapInError::Corrupt { .. })
    ));
}

#[test]
fn generations_go_one_after_the_other() {
    let (engine, _) = engine(ROOMY);
    // Each generation has every third page, so that ages do not follow the order of slots.
    let entries: Vec<Entry> = (0..12)
        .map(|seed| out(&engine, Content::Text, seed))
        .collect();
    for generation in [2, 0, 1] {
        for &entry in entries.iter().skip(generation).step_by(3) {
            engine
                .write_out(entry, &mut engine.scratch())
                .expect("room");
        }
        engine.begin_generation();
    }
    for (budget, oldest) in [(4, 2), (4, 0), (4, 1)] {
        let before = seeds_in_area(&engine, &entries);
        assert_eq!(write_back(&engine, budget), moved(budget));
        let mut gone = seeds_in_area(&engine, &entries);
        gone.retain(|at| !before.contains(at));
        assert_eq!(gone, [0, 3, 6, 9].map(|at| at + oldest));
    }
    assert_all_hold(&engine, 0, &entries, SwapIn::Physical);
    assert_eq!(write_back(&engine, 4), moved(0), "nothing is left");
}

#[test]
fn where_all_is_young_the_hand_still_finds_pages() {
    let (engine, probe) = engine(ROOMY);
    let entries = stored_all(&engine, 0..10);
    assert_eq!(write_back(&engine, 3), moved(3));
    assert_eq!(seeds_in_area(&engine, &entries), [0, 1, 2]);
    assert_eq!(probe.writes(), 1);
    let young = stored(&engine, 10);
    assert_eq!(write_back(&engine, 7), moved(7));
    assert_all_hold(&engine, 0, &entries, SwapIn::Physical);
    assert_holds(&engine, young, Content::Text, 10, SwapIn::Compressed);
}

#[test]
fn what_was_oldest_and_is_gone_hides_nothing() {
    let (engine, _) = engine(ROOMY);
    let entries: Vec<Entry> = (0..3)
        .map(|seed| out(&engine, Content::Text, seed))
        .collect();
    let store = |at: usize| engine.write_out(entries[at], &mut engine.scratch());
    store(1).expect("room");
    begin_generations(&engine, 2);
    store(0).expect("room");
    begin_generations(&engine, 3);
    // The hand has passed over the page before as the second oldest, and goes on behind this page.
    assert_eq!(write_back(&engine, 1), moved(1));
    assert_eq!(seeds_in_area(&engine, &entries), [1]);
    engine.put(entries[0]);
    store(2).expect("room");
    assert_eq!(write_back(&engine, 1), moved(1));
    assert_holds(&engine, entries[2], Content::Text, 2, SwapIn::Physical);
}

#[test]
#[cfg_attr(miri, ignore = "more steps than the interpreter has time for")]
fn numbers_of_generations_are_used_again() {
    let (engine, _) = engine(ROOMY);
    for round in 0..4 {
        let old = stored_all(&engine, 0..3);
        // More generations than can be told apart. The pages must not seem young again.
        begin_generations(&engine, 300);
        let young = stored_all(&engine, 3..6);
        assert_eq!(write_back(&engine, 3), moved(3), "round {round}");
        assert_all_hold(&engine, 0, &old, SwapIn::Physical);
        assert_all_hold(&engine, 3, &young, SwapIn::Compressed);
        old.into_iter().chain(young).for_each(|e| engine.put(e));
    }
}

/// Storage fails at every request in turn, in each way that it can. What was written before is in the area. All else is
/// in the pool as before, and goes when there is room. Nothing is left behind.
#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_failure_at_any_request_costs_no_page() {
    // Bad slots divide the area into rows of at most three, so that there are several requests.
    let bad: Vec<u64> = (0..64).step_by(4).collect();
    for error in [BROKEN, StorageError::Full, StorageError::Short] {
        for requests in 0..5 {
            let (engine, _) = engine_with_areas(FRAMES, POOL_BYTES, &[]);
            let probe = Probe::new(64);
            let area = area_on(&probe, 64);
            let bad = bad.clone();
            engine
                .swap_on(NewArea { bad, ..area })
                .expect("a good area");
            let entries = stored_all(&engine, 0..12);
            probe.refuse_writes(requests, Some(error));
            let done = write_back(&engine, 12);
            assert_eq!(done.pages + done.refused, 12, "{done:?}");
            assert_eq!(done.refused > 0, requests < 4, "{done:?}");
            let stats = engine.stats();
            let (written, stayed) = (done.pages as u64, done.refused as u64);
            assert_eq!((stats.physical, stats.compressed), (written, stayed));
            assert_verified(&engine, &entries);
            if done.refused > 0 {
                let again = write_back(&engine, 12);
                assert_eq!((again.pages, again.homeless > 0), (0, true), "passed over");
                let other = area_on(&Probe::new(64), 64);
                engine.swap_on(other).expect("a good area");
                assert_eq!(write_back(&engine, 12), moved(done.refused));
            }
            assert_all_hold(&engine, 0, &entries, SwapIn::Physical);
            entries.into_iter().for_each(|entry| engine.put(entry));
            let stats = engine.stats();
            assert_eq!(
                (stats.slots_used, stats.physical, stats.pool_bytes),
                (0, 0, 0)
            );
        }
    }
}

fn assert_verified(engine: &Engine, entries: &[Entry]) {
    for (seed, &entry) in (0..).zip(entries) {
        let from = match engine.is_physical(entry) {
            true => SwapIn::Physical,
            false => SwapIn::Compressed,
        };
        assert_holds(engine, entry, Content::Text, seed, from);
    }
}

#[test]
fn an_area_without_room_costs_no_decompression() {
    const SLOTS: u64 = 5;
    let (engine, probe) = engine(SLOTS);
    let entries = stored_all(&engine, 0..8);
    damage(&engine, entries[6]);
    let room = usize::try_from(SLOTS - 1).expect("few");
    let done = write_back(&engine, 8);
    assert_eq!(
        (done.pages, done.homeless, done.damaged),
        (room, 8 - room, 0)
    );
    let writes = probe.writes();
    let done = write_back(&engine, 8);
    assert_eq!(done.pages + done.damaged, 0);
    assert!(done.homeless > 0 && done.homeless <= 8, "{done:?}");
    assert_eq!((probe.writes(), engine.stats().damaged), (writes, 0));
    assert_all_hold(&engine, 0, &entries[..room], SwapIn::Physical);
    assert_all_hold(&engine, room as u64, &entries[room..6], SwapIn::Compressed);
    assert_holds(&engine, entries[7], Content::Text, 7, SwapIn::Compressed);
    // A slot is free again. The coldest page is damaged and does not take it.
    engine.put(entries[0]);
    begin_generations(&engine, 2);
    assert_eq!(write_back(&engine, 1).damaged, 1);
    assert_eq!(write_back(&engine, 1), moved(1));
}

#[test]
fn without_areas_nothing_is_moved() {
    let (engine, _) = engine_with_areas(FRAMES, POOL_BYTES, &[]);
    let entries = stored_all(&engine, 0..4);
    let done = write_back(&engine, 4);
    assert_eq!((done.pages, done.homeless), (0, 4));
    assert_all_hold(&engine, 0, &entries, SwapIn::Compressed);
    let (empty, _) = engine_with_areas(FRAMES, POOL_BYTES, &[64]);
    assert_eq!(write_back(&empty, 4), moved(0));
}

#[test]
fn what_is_damaged_stays_and_is_tried_once() {
    let (engine, probe) = engine(ROOMY);
    let entries = stored_all(&engine, 0..6);
    damage(&engine, entries[3]);
    begin_generations(&engine, 2);
    let done = write_back(&engine, 6);
    assert_eq!((done.pages, done.damaged), (5, 1));
    assert_eq!(engine.stats().damaged, 1);
    assert_eq!(engine.stats().physical, 5, "its slot is free again");
    begin_generations(&engine, 4);
    assert_eq!(write_back(&engine, 6), moved(0));
    assert_eq!(engine.stats().damaged, 1, "not looked at again");
    // Whoever touches the page gets the error, now and later.
    for _ in 0..2 {
        let error = read(&engine, entries[3]).unwrap_err();
        assert!(matches!(error, SwapInError::Corrupt { .. }), "{error}");
        begin_generations(&engine, 2);
    }
    assert_eq!(write_back(&engine, 6), moved(0));
    for (seed, &entry) in (0..).zip(&entries).filter(|(seed, _)| *seed != 3) {
        assert_holds(&engine, entry, Content::Text, seed, SwapIn::Physical);
    }
    entries.into_iter().for_each(|entry| engine.put(entry));
    assert_eq!((engine.stats().slots_used, probe.reads() > 0), (0, true));
}

/// The hand ignores zeros, pages in frames and pages in areas.
#[test]
fn only_what_is_in_the_pool_is_taken() {
    let (engine, _) = engine(ROOMY);
    let zero = engine.frame().map(|mut frame| {
        frame.0.fill(0);
        let entry = engine.swap_out(
            0,
            frame,
            crate::words::shadow::Shadow::ABSENT,
            GroupId::ROOT,
        );
        entry.expect("a slot")
    });
    let zero = zero.expect("a free frame");
    engine.write_out(zero, &mut engine.scratch()).expect("zero");
    let random = out(&engine, Content::Random, 1);
    engine
        .write_out(random, &mut engine.scratch())
        .expect("room");
    let packed = stored(&engine, 2);
    let cached = out(&engine, Content::Text, 3);
    assert_eq!(write_back(&engine, 8), moved(1));
    assert!(read(&engine, zero).expect("not lost").1.is_zero());
    assert_holds(&engine, random, Content::Random, 1, SwapIn::Physical);
    assert_holds(&engine, packed, Content::Text, 2, SwapIn::Physical);
    assert_holds(&engine, cached, Content::Text, 3, SwapIn::Cached);
    assert_eq!(engine.stats().physical, 2);
}

/// A page stored raw for lack of a slot leaves the pool when there is a slot.
#[test]
fn a_raw_page_leaves_the_pool_whole() {
    let (engine, _) = engine_with_areas(FRAMES, POOL_BYTES, &[]);
    let entry = out(&engine, Content::Random, 5);
    engine
        .write_out(entry, &mut engine.scratch())
        .expect("room");
    assert_eq!(engine.stats().raw, 1);
    let probe = Probe::new(8);
    engine.swap_on(area_on(&probe, 8)).expect("a good area");
    assert_eq!(write_back(&engine, 1), moved(1));
    assert_holds(&engine, entry, Content::Random, 5, SwapIn::Physical);
    assert_eq!((engine.stats().raw, engine.stats().pool_bytes), (0, 0));
}
