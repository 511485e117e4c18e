//! Discards of emptied clusters and of whole areas, through an engine.

use crate::areas::{Discard, NewArea};
use crate::base::storage::StorageError;
use crate::engine::Engine;
use crate::testing::{BROKEN, Probe, area_on, assert_holds, engine_with_areas, out, slot};
use crate::verbs::leaving::Written;
use crate::verbs::swap_in::SwapIn;
use crate::words::entry::{AreaId, Entry};
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::tier::TierId;
use crate::zpool::testing::Content;

const CLUSTER: u64 = SLOTS_PER_CLUSTER as u64;

/// An area of two whole clusters and a third that never empties, because it has a bad slot.
fn areas(discard: Discard) -> (Engine, Probe) {
    let (engine, _) = engine_with_areas(4, 0, &[]);
    let probe = Probe::new(3 * CLUSTER);
    let area = NewArea {
        discard,
        bad: vec![3 * CLUSTER - 1],
        ..area_on(&probe, 3 * CLUSTER)
    };
    engine.swap_on(area).expect("a good area");
    (engine, probe)
}

/// Takes as many slots as are given out without a discard.
fn fill(engine: &Engine) -> Vec<Entry> {
    std::iter::from_fn(|| slot(&engine.areas, 0, 1)).collect()
}

fn free_first_two(engine: &Engine, entries: &[Entry]) {
    let first_two = entries.iter().filter(|entry| entry.offset() < 2 * CLUSTER);
    first_two.for_each(|&entry| _ = engine.areas.free(entry));
}

#[test]
fn an_emptied_cluster_is_given_out_only_after_it_was_discarded() {
    let (engine, probe) = areas(Discard::Pages);
    let entries = fill(&engine);
    assert_eq!(entries.len() as u64, 3 * CLUSTER - 1);
    free_first_two(&engine, &entries);
    assert_eq!(probe.discarded(), []);
    assert_eq!((engine.discard(1), engine.discard(0)), (1, 0));
    assert_eq!(probe.discarded().len(), 1);
    assert_eq!((engine.discard(9), engine.discard(9)), (1, 0));
    let mut discarded = probe.discarded();
    discarded.sort_unstable_by_key(|slots| slots.start);
    assert_eq!(discarded, [0..CLUSTER, CLUSTER..2 * CLUSTER]);
    let figures = engine.areas()[0];
    assert_eq!(
        (figures.pages_discarded, figures.discard_errors),
        (2 * CLUSTER, 0)
    );
    assert_eq!(fill(&engine).len() as u64, 2 * CLUSTER);
}

#[test]
fn allocation_discards_when_nothing_else_is_left() {
    let (engine, probe) = areas(Discard::Pages);
    let entries = fill(&engine);
    free_first_two(&engine, &entries);
    let entry = slot(&engine.areas, 1, 1).expect("after a discard");
    assert_eq!(probe.discarded().len(), 1, "one is enough");
    assert!(probe.discarded()[0].contains(&entry.offset()));
    assert_eq!(fill(&engine).len() as u64, 2 * CLUSTER - 1);
    assert_eq!(probe.discarded().len(), 2);
}

#[test]
fn a_discard_that_fails_is_counted_and_one_that_cannot_be_is_not_tried_again() {
    let (engine, probe) = areas(Discard::Pages);
    for (round, error) in (1..).zip([BROKEN, BROKEN, StorageError::Unsupported]) {
        let entries = fill(&engine);
        assert!(entries.len() as u64 >= 2 * CLUSTER, "round {round}");
        free_first_two(&engine, &entries);
        probe.fail_discards(Some(error));
        assert_eq!(engine.discard(1), 1);
        assert_eq!(engine.areas()[0].discard_errors, round);
        probe.fail_discards(None);
        if error == StorageError::Unsupported {
            break;
        }
        assert_eq!(engine.discard(9), 1);
    }
    let before = probe.discarded().len();
    assert_eq!(engine.discard(9), 1, "what waited is free");
    free_first_two(&engine, &fill(&engine));
    assert_eq!(engine.discard(9), 0, "nothing waits any longer");
    assert_eq!(probe.discarded().len(), before);
    assert!(!engine.areas()[0].failing);
}

#[test]
fn the_whole_area_is_discarded_once_without_its_bad_slots() {
    let (engine, _) = engine_with_areas(4, 0, &[]);
    let probe = Probe::new(20);
    let area = NewArea {
        tier: TierId::default(),
        discard: Discard::Once,
        bad: vec![7, 0, 8, 19],
        ..area_on(&probe, 20)
    };
    engine.swap_on(area).expect("a good area");
    assert_eq!(probe.discarded(), [1..7, 9..19]);
    assert_eq!(engine.areas()[0].pages_discarded, 16);
    fill(&engine)
        .into_iter()
        .for_each(|entry| _ = engine.areas.free(entry));
    assert_eq!((engine.discard(9), probe.discarded().len()), (0, 2));
}

#[test]
fn a_page_keeps_its_content_when_its_neighbours_are_discarded() {
    let (engine, probe) = areas(Discard::Pages);
    // More than two of the small clusters.
    let pages = 9;
    let write = |seed| {
        let entry = out(&engine, Content::Text, seed);
        let written = engine.write_out(entry, &mut engine.scratch());
        assert_eq!(written, Ok(Written::Physical));
        entry
    };
    let entries: Vec<Entry> = (0..pages).map(write).collect();
    let (kept, gone) = entries.split_first().expect("some");
    gone.iter().for_each(|&entry| engine.put(entry));
    engine.discard(9);
    assert_holds(&engine, *kept, Content::Text, 0, SwapIn::Physical);
    let again: Vec<Entry> = (1..pages).map(write).collect();
    for (seed, &entry) in (1..).zip(&again) {
        assert_holds(&engine, entry, Content::Text, seed, SwapIn::Physical);
    }
    assert!(probe.pages() as u64 >= pages);
}

#[test]
fn a_swap_off_waits_for_a_discard_and_starts_none() {
    let (engine, probe) = areas(Discard::Pages);
    let entries = fill(&engine);
    entries
        .iter()
        .for_each(|&entry| _ = engine.areas.free(entry));
    let id = AreaId::physical(0).expect("a number");
    let physical = engine.areas.get(id).expect("one");
    let (cluster, _) = physical.area.begin_discard().expect("two wait");
    let asked = std::cell::Cell::new(0);
    let late = || {
        assert_eq!(engine.discard(9), 0);
        asked.set(asked.get() + 1);
        if asked.get() == 5 {
            physical.area.end_discard(cluster);
        }
        false
    };
    let result = engine.swap_off(id, &mut engine.scratch(), &late);
    assert_eq!((result, asked.get()), (Ok(()), 5));
    assert!(probe.is_closed() && engine.areas().is_empty());
}
