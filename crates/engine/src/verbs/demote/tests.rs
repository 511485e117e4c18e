//! Unit tests of demotion: which pages go where, and what is left when it fails. The tests of races have what other
//! threads do meanwhile.

use std::cell::Cell;
use std::time::Duration;

use super::*;
use crate::areas::NewArea;
use crate::base::pages::PAGE_BYTES;
use crate::groups::GroupId;
use crate::testing::{
    BROKEN, Probe, area_on, assert_holds, charges, engine_with_areas, group, out_of, read, slot_of,
};
use crate::verbs::leaving::Written;
use crate::verbs::swap_in::{SwapIn, SwapInError};
use crate::words::entry::AreaId;
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::zpool::testing::Content;

const CLUSTER: u64 = SLOTS_PER_CLUSTER as u64;
const FRAMES: usize = 8;
/// Clusters of a tier.
const CLUSTERS: u64 = 8;
const TIER: u64 = CLUSTERS * CLUSTER;
/// A tier is crowded when it has fewer free slots than a cluster has slots.
const PART: u64 = CLUSTERS;
const ALL: usize = 1 << 16;

/// An engine without a pool, with tiers of these sizes, the highest first. No tier has a bad slot, because a cluster
/// with a bad slot is never empty.
fn tiers(sizes: &[u64]) -> (Engine, Vec<Probe>) {
    tiers_of(sizes, &[2, 1, 0])
}

fn tiers_of(sizes: &[u64], priorities: &[i16]) -> (Engine, Vec<Probe>) {
    let (engine, _) = engine_with_areas(FRAMES, 0, &[]);
    let mut probes = Vec::new();
    for (&slots, &priority) in sizes.iter().zip(priorities) {
        let probe = Probe::new(slots);
        let area = NewArea {
            bad: Vec::new(),
            priority,
            ..area_on(&probe, slots)
        };
        engine.swap_on(area).expect("a good area");
        probes.push(probe);
    }
    (engine, probes)
}

/// Pages of these seeds, in the highest area that has room.
fn written(engine: &Engine, seeds: std::ops::Range<u64>) -> Vec<Entry> {
    written_of(engine, GroupId::ROOT, seeds)
}

fn written_of(engine: &Engine, group: GroupId, seeds: std::ops::Range<u64>) -> Vec<Entry> {
    let seeds: Vec<u64> = seeds.collect();
    let mut entries = Vec::new();
    for seeds in seeds.chunks(FRAMES) {
        let batch = seeds
            .iter()
            .map(|&seed| out_of(engine, group, Content::Text, seed));
        let batch: Vec<Entry> = batch.collect();
        engine.write_out_all(0, &batch, &mut engine.scratch(), |_, outcome| {
            assert_eq!(outcome, Ok(Written::Physical));
        });
        entries.extend(batch);
    }
    entries
}

fn demote(engine: &Engine, budget_pages: usize) -> Demotion {
    engine.demote(0, PART, budget_pages, &mut engine.scratch())
}

fn moved(pages: u64) -> Demotion {
    Demotion {
        pages: usize::try_from(pages).expect("few"),
        ..Demotion::default()
    }
}

/// Pages in each area, by number, which here is also by priority.
fn used(engine: &Engine) -> Vec<u64> {
    let areas = engine.areas();
    let pages = areas.iter().map(|area| area.used_bytes / PAGE_BYTES as u64);
    pages.collect()
}

fn assert_all_hold(engine: &Engine, entries: &[Entry]) {
    for (seed, &entry) in (0..).zip(entries) {
        assert_holds(engine, entry, Content::Text, seed, SwapIn::Physical);
    }
}

/// Checks that the areas' counters agree with the clusters.
fn assert_counted(engine: &Engine) {
    for area in engine.areas() {
        let physical = engine.areas.get(area.id).expect("in use");
        let free_bytes = area.size_bytes - area.used_bytes;
        assert_eq!(physical.free_slots() * PAGE_BYTES as u64, free_bytes);
    }
}

/// Checks that all areas have their pages, and that nothing is left when these are put.
fn assert_all_hold_and_go(engine: &Engine, entries: Vec<Entry>) {
    assert_all_hold(engine, &entries);
    assert_counted(engine);
    entries.into_iter().for_each(|entry| engine.put(entry));
    assert_counted(engine);
    assert!(used(engine).iter().all(|&pages| pages == 0));
    assert_eq!(engine.stats().slots_used, 0);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn what_was_written_first_goes_down_until_there_is_room_again() {
    let (engine, _) = tiers(&[TIER, 2 * TIER]);
    let mut entries = written(&engine, 0..TIER - CLUSTER);
    assert!(!engine.is_tier_crowded(PART));
    assert_eq!(demote(&engine, ALL), Demotion::default(), "there is room");
    entries.extend(written(&engine, TIER - CLUSTER..TIER));
    assert!(engine.is_tier_crowded(PART));
    assert_eq!(demote(&engine, ALL), moved(CLUSTER));
    assert!(!engine.is_tier_crowded(PART));
    assert_eq!(used(&engine), [TIER - CLUSTER, CLUSTER]);
    assert_counted(&engine);
    let low: Vec<bool> = entries
        .iter()
        .map(|&entry| engine.lies_low(entry))
        .collect();
    let first = usize::try_from(CLUSTER).expect("few");
    assert!(low[..first].iter().all(|low| *low) && !low[first..].contains(&true));
    entries.extend(written(&engine, TIER..TIER + 2));
    assert_eq!(
        used(&engine),
        [TIER - CLUSTER + 2, CLUSTER],
        "the highest first, as before"
    );
    assert_all_hold_and_go(&engine, entries);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn pages_go_down_in_rows() {
    let (engine, probes) = tiers(&[TIER, 2 * TIER]);
    let entries = written(&engine, 0..TIER);
    let reads = probes[0].reads();
    assert_eq!(demote(&engine, ALL), moved(CLUSTER));
    let batches = CLUSTER.div_ceil(BATCH_PAGES as u64);
    assert_eq!(probes[0].reads() - reads, batches);
    assert_eq!(probes[1].writes(), batches);
    assert_all_hold_and_go(&engine, entries);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_page_that_is_read_has_a_second_chance() {
    let (engine, _) = tiers(&[TIER, 2 * TIER]);
    let entries = written(&engine, 0..TIER);
    assert_holds(&engine, entries[0], Content::Text, 0, SwapIn::Physical);
    demote(&engine, ALL);
    assert!(!engine.lies_low(entries[0]) && engine.lies_low(entries[1]));
    // Nobody reads it until the hand comes by again.
    let rest = used(&engine)[0];
    assert_eq!(engine.demote(0, 1, ALL, &mut engine.scratch()), moved(rest));
    assert_all_hold_and_go(&engine, entries);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn the_lowest_tier_is_looked_at_first() {
    let (engine, _) = tiers(&[TIER, TIER, TIER]);
    let entries = written(&engine, 0..2 * TIER);
    assert_eq!(used(&engine), [TIER, TIER, 0]);
    assert_eq!(demote(&engine, ALL), moved(2 * CLUSTER));
    assert_eq!(used(&engine), [TIER - CLUSTER, TIER, CLUSTER]);
    assert_all_hold_and_go(&engine, entries);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn room_between_pages_that_stayed_is_used_before_a_lower_area() {
    let (engine, _) = tiers(&[TIER, 2 * TIER]);
    let mut entries = written(&engine, 0..TIER);
    for (seed, &entry) in (0..).zip(&entries).step_by(FRAMES / 2) {
        assert_holds(&engine, entry, Content::Text, seed, SwapIn::Physical);
    }
    demote(&engine, ALL);
    let before = used(&engine);
    entries.extend(written(&engine, TIER..TIER + CLUSTER));
    let after = used(&engine);
    assert_eq!(after, [before[0] + CLUSTER, before[1]]);
    assert_all_hold_and_go(&engine, entries);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn equals_are_no_tiers() {
    let (engine, _) = tiers_of(&[TIER, TIER], &[1, 1]);
    let entries = written(&engine, 0..TIER);
    assert!(!engine.is_tier_crowded(1));
    assert!(!entries.iter().any(|&entry| engine.lies_low(entry)));
    assert_eq!(demote(&engine, ALL), moved(0));
    assert_all_hold_and_go(&engine, entries);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn without_room_below_nothing_is_read() {
    let (engine, probes) = tiers(&[TIER, CLUSTER]);
    let entries = written(&engine, 0..TIER + CLUSTER);
    assert_eq!(used(&engine), [TIER, CLUSTER]);
    assert!(!engine.is_tier_crowded(PART));
    let reads = probes[0].reads();
    assert_eq!(demote(&engine, ALL), moved(0));
    assert_eq!(probes[0].reads(), reads);
    assert_all_hold_and_go(&engine, entries);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn what_finds_no_room_half_way_stays() {
    let (engine, _) = tiers(&[TIER, CLUSTER]);
    let entries = written(&engine, 0..TIER);
    let done = engine.demote(0, 1, ALL, &mut engine.scratch());
    assert_eq!(done.pages as u64, CLUSTER);
    assert!(done.homeless > 0, "{done:?}");
    assert_eq!(used(&engine), [TIER - CLUSTER, CLUSTER]);
    assert_all_hold_and_go(&engine, entries);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_failure_at_any_request_costs_no_page() {
    let requests = CLUSTER.div_ceil(BATCH_PAGES as u64);
    for fails in 0..requests.min(4) {
        let (engine, probes) = tiers(&[TIER, 2 * TIER]);
        let entries = written(&engine, 0..TIER);
        probes[1].refuse_writes(fails, Some(BROKEN));
        let done = demote(&engine, ALL);
        assert!(
            done.refused > 0 && (done.pages == 0) == (fails == 0),
            "{done:?}"
        );
        assert_eq!(used(&engine), [TIER - done.pages as u64, done.pages as u64]);
        assert!(engine.areas()[1].failing);
        assert!(!engine.is_tier_crowded(PART), "what fails has no room");
        assert_all_hold(&engine, &entries);
        probes[1].refuse_writes(0, None);
        assert_all_hold_and_go(&engine, entries);
    }
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn what_cannot_be_read_stays_and_the_others_go() {
    let (engine, probes) = tiers(&[TIER, 2 * TIER]);
    let mut entries = written(&engine, 0..TIER);
    let bad = slot_of(&engine, entries[1]);
    probes[0].unreadable(&[bad]);
    let done = demote(&engine, ALL);
    assert!(done.pages as u64 >= CLUSTER, "{done:?}");
    assert_eq!(done.unreadable, 1);
    let failed = read(&engine, entries[1]).expect_err("broken");
    assert!(matches!(failed, SwapInError::Unreadable { .. }), "{failed}");
    probes[0].unreadable(&[]);
    assert_all_hold(&engine, &entries);
    engine.put(entries.remove(1));
    entries.into_iter().for_each(|entry| engine.put(entry));
    assert_eq!(used(&engine), [0, 0]);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_group_at_its_limit_is_charged_what_it_was() {
    let (engine, _) = tiers(&[TIER, 2 * TIER]);
    let id = group(&engine, "a", TIER);
    let entries = written_of(&engine, id, 0..TIER);
    assert_eq!(charges(&engine, id), (TIER, 0));
    assert_eq!(demote(&engine, ALL), moved(CLUSTER));
    assert_eq!(charges(&engine, id), (TIER, 0));
    assert_all_hold_and_go(&engine, entries);
    assert_eq!(charges(&engine, id), (0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn the_lower_area_can_be_swapped_off_afterwards() {
    let (engine, _) = tiers(&[TIER, TIER]);
    let entries = written(&engine, 0..TIER);
    assert_eq!(demote(&engine, ALL), moved(CLUSTER));
    let id = AreaId::physical(1).expect("a number");
    // If a slot did not name its page, this would go on for ever.
    let looks = Cell::new(0);
    let cancel = || looks.replace(looks.get() + 1) > 1000;
    assert_eq!(engine.swap_off(id, &mut engine.scratch(), &cancel), Ok(()));
    assert_eq!(used(&engine), [TIER]);
    assert_all_hold_and_go(&engine, entries);
}

#[test]
fn an_area_without_another_is_no_tier() {
    let (engine, _) = tiers(&[TIER]);
    let entries = written(&engine, 0..CLUSTER);
    assert!(!engine.is_tier_crowded(1));
    assert_eq!(demote(&engine, ALL), moved(0));
    assert_all_hold_and_go(&engine, entries);
}

fn measure(engine: &Engine, area: usize, lone: Duration, times: usize) {
    let id = engine.areas()[area].id;
    (0..times).for_each(|_| engine.areas.note_read(id, 1, lone));
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn among_equals_pages_go_where_they_are_cheap_to_bring_back_while_there_is_room() {
    let (engine, _) = tiers_of(&[TIER, CLUSTER, TIER], &[1, 0, 0]);
    measure(&engine, 1, Duration::from_micros(100), 1);
    measure(&engine, 2, Duration::from_millis(1), 1);
    let mut entries = written(&engine, 0..TIER);
    assert_eq!(demote(&engine, ALL), moved(CLUSTER));
    assert_eq!(used(&engine), [TIER - CLUSTER, CLUSTER, 0]);
    entries.extend(written(&engine, TIER..TIER + CLUSTER));
    assert_eq!(demote(&engine, ALL), moved(CLUSTER));
    assert_eq!(used(&engine), [TIER - CLUSTER, CLUSTER, CLUSTER]);
    assert_all_hold_and_go(&engine, entries);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn equals_take_turns_until_one_is_measured_to_be_dear() {
    let (engine, _) = tiers_of(&[TIER, TIER, TIER], &[1, 0, 0]);
    let mut entries = Vec::new();
    let mut below = || {
        let pages = CLUSTER + entries.len() as u64;
        let next = if entries.is_empty() { TIER } else { pages };
        entries.extend(written(&engine, entries.len() as u64..next));
        assert_eq!(demote(&engine, ALL), moved(CLUSTER));
        let used = used(&engine);
        (used[1], used[2])
    };
    assert_eq!(below(), (CLUSTER / 2, CLUSTER / 2));
    measure(&engine, 1, Duration::from_millis(1), 1);
    measure(&engine, 2, Duration::from_micros(600), 1);
    assert_eq!(below(), (CLUSTER, CLUSTER), "much the same");
    measure(&engine, 2, Duration::from_millis(10), 20);
    assert_eq!(below(), (2 * CLUSTER, CLUSTER));
    measure(&engine, 2, Duration::from_micros(100), 60);
    assert_eq!(below(), (2 * CLUSTER, 2 * CLUSTER));
    assert_all_hold_and_go(&engine, entries);
}
