//! Which area gives the next slot, and which areas are refused.

use super::*;
use crate::base::pages::{HeapPages, PAGE_BYTES};
use crate::base::storage::RamStorage;
use crate::testing::slot;
use crate::words::geometry::{SLOTS_MAX, SLOTS_PER_CLUSTER};

const CLUSTER: u64 = SLOTS_PER_CLUSTER as u64;

fn areas() -> Areas {
    Areas::new(2, Arc::new(HeapPages::new()))
}

fn new(slots: u64, bad: &[u64], priority: i16) -> NewArea {
    let storage = RamStorage::new(usize::try_from(slots).expect("a small area"));
    NewArea {
        slots,
        bad: bad.to_vec(),
        priority,
        tier: TierId::default(),
        discard: Discard::None,
        rotating: false,
        storage: Box::new(storage),
    }
}

fn pages(count: usize) -> Vec<Word> {
    let word = |offset| Word::pointer(offset).expect("a small offset");
    (0..count as u64).map(word).collect()
}

fn used(areas: &Areas) -> Vec<u64> {
    let bytes = |area: &AreaFigures| area.used_bytes / PAGE_BYTES as u64;
    areas.figures().iter().map(bytes).collect()
}

#[test]
fn areas_of_one_priority_take_turns_by_clusters() {
    let areas = areas();
    for _ in 0..4 {
        areas
            .add(new(4 * CLUSTER, &[], PRIORITY_DEFAULT))
            .expect("room");
    }
    for clusters in 1..=16 {
        for _ in 0..CLUSTER {
            slot(&areas, 0, 7).expect("room");
        }
        let used = used(&areas);
        assert_eq!(used.iter().sum::<u64>(), clusters * CLUSTER);
        let (most, least) = (used.iter().max(), used.iter().min());
        assert!(most.unwrap() - least.unwrap() <= CLUSTER, "{used:?}");
    }
    assert_eq!(slot(&areas, 0, 7), None);
    assert_eq!(slot(&areas, 1, 7), None);
}

#[test]
fn equal_areas_take_turns_by_clusters_of_each_order() {
    let areas = areas();
    for _ in 0..2 {
        areas.add(new(9 * CLUSTER, &[], 0)).expect("room");
    }
    for order in Order::runs() {
        let words = pages(order.slots());
        let before = used(&areas);
        for _ in 0..2 * SLOTS_PER_CLUSTER / order.slots() {
            let (_, count) = areas.allocate(0, &words, &Payer::nobody()).expect("room");
            assert_eq!(count, words.len());
        }
        let after = used(&areas);
        assert!(
            before
                .iter()
                .zip(&after)
                .all(|(before, after)| after - before == CLUSTER)
        );
    }
}

#[test]
fn on_a_rotating_device_all_cpus_write_one_after_the_other() {
    for rotating in [true, false] {
        let areas = areas();
        let area = NewArea {
            rotating,
            ..new(8 * CLUSTER, &[], 0)
        };
        areas.add(area).expect("room");
        for order in Order::all() {
            let words = pages(order.slots());
            let runs = SLOTS_PER_CLUSTER / order.slots();
            let taken: Vec<Entry> = (0..runs)
                .map(|at| {
                    areas
                        .allocate(at % 2, &words, &Payer::nobody())
                        .expect("room")
                        .0
                })
                .collect();
            let follows = |pair: &[Entry]| pair[1].raw() == pair[0].raw() + words.len() as u64;
            let in_a_row = taken.windows(2).all(follows);
            assert_eq!(in_a_row, rotating || runs == 1, "{order:?}");
            for first in taken {
                (0..words.len()).for_each(|at| _ = areas.free(first.behind(at)));
            }
        }
    }
}

#[test]
fn priority_comes_before_the_length_of_a_run() {
    let areas = areas();
    // The higher area has one cluster, which serves no runs because its first slot is bad. The lower one serves them.
    areas.add(new(CLUSTER, &[0], 1)).expect("room");
    areas.add(new(2 * CLUSTER, &[], 0)).expect("room");
    let words = pages(SLOTS_PER_CLUSTER);
    let mut taken = Vec::new();
    while taken.len() < SLOTS_PER_CLUSTER - 1 {
        let (entry, count) = areas.allocate(0, &words, &Payer::nobody()).expect("room");
        assert_eq!((entry.area().physical_index(), count), (Some(0), 1));
        taken.push(entry);
    }
    assert!(taken.windows(2).all(|pair| pair[1] == pair[0].behind(1)));
    let (entry, count) = areas.allocate(0, &words, &Payer::nobody()).expect("room");
    assert_eq!(
        (entry.area().physical_index(), count),
        (Some(1), SLOTS_PER_CLUSTER)
    );
}

#[test]
fn a_higher_priority_comes_first_and_a_full_area_is_passed_over() {
    let areas = areas();
    for priority in [PRIORITY_DEFAULT, 5, 0, 5] {
        areas.add(new(CLUSTER, &[], priority)).expect("room");
    }
    let mut order = Vec::new();
    for at in 0..4 * CLUSTER {
        let entry = slot(&areas, 0, at).expect("room");
        order.push(entry.area().physical_index().expect("physical"));
    }
    order.dedup();
    assert_eq!(order, [1, 3, 2, 0]);
    assert_eq!(slot(&areas, 0, 0), None);
    let freed = Entry::of(AreaId::physical(2).expect("a number"), 0, 1);
    _ = areas.free(freed);
    assert_eq!(slot(&areas, 1, 0), Some(freed));
}

/// Areas come and go by the hundred, each with other slots than the one before, and the tables do not grow.
#[test]
#[cfg_attr(miri, ignore = "more areas than the interpreter has time for")]
fn an_area_uses_the_tables_of_the_one_before_it() {
    let areas = areas();
    let mut random = 1_u64;
    let mut below = |limit: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % limit
    };
    let mut most_table_bytes = 0;
    for round in 0..300 {
        let slots = 2 + below(4 * CLUSTER);
        let mut bad: Vec<u64> = (0..below(slots)).map(|_| below(slots)).collect();
        bad.sort_unstable();
        bad.dedup();
        let mut area = new(slots, &bad, 0);
        area.rotating = below(2) == 0;
        area.discard = [Discard::None, Discard::Pages][usize::from(below(2) == 0)];
        let id = areas.add(area).expect("usable slots");
        assert_eq!(id.physical_index(), Some(0), "round {round}");
        let fresh = areas.figures()[0];
        assert_eq!((fresh.pages_discarded, fresh.used_bytes), (0, 0));
        let mut entries: Vec<Entry> = (0..).map_while(|cpu| slot(&areas, cpu % 2, 1)).collect();
        entries.sort_unstable();
        let given: Vec<u64> = entries.iter().map(|entry| entry.offset()).collect();
        let usable: Vec<u64> = (0..slots).filter(|slot| !bad.contains(slot)).collect();
        assert_eq!(given, usable, "round {round}");
        entries.into_iter().for_each(|entry| _ = areas.free(entry));
        let physical = areas.close(id).expect("in use");
        assert_eq!(physical.area.is_valid(), Ok(()));
        areas.retire(id);
        assert!(areas.get(id).is_none() && areas.all().next().is_none());
        let table_bytes: u64 = areas.ever().map(|area| area.stats().table_bytes).sum();
        if round < 50 {
            most_table_bytes = table_bytes.max(most_table_bytes);
        }
        assert!(
            table_bytes <= most_table_bytes,
            "round {round}: {table_bytes}"
        );
    }
}

#[test]
fn bad_slots_and_what_lies_behind_the_end_are_never_given_out() {
    let (areas, slots) = (areas(), 3 * CLUSTER - 1);
    let middle: Vec<u64> = (CLUSTER..2 * CLUSTER).collect();
    let bad: Vec<u64> = [0, 2 * CLUSTER + 1, 0].into_iter().chain(middle).collect();
    areas.add(new(slots, &bad, 0)).expect("usable slots");
    for round in 0..3 {
        let mut entries: Vec<Entry> = std::iter::from_fn(|| slot(&areas, 0, 1)).collect();
        assert_eq!(entries.len() as u64, slots - 2 - CLUSTER, "round {round}");
        assert_eq!(used(&areas), [entries.len() as u64]);
        assert!(entries.iter().all(|entry| !bad.contains(&entry.offset())));
        assert!(entries.iter().all(|entry| entry.offset() < slots));
        entries.sort_unstable();
        entries.dedup();
        assert_eq!(entries.len() as u64, slots - 2 - CLUSTER);
        entries.into_iter().for_each(|entry| _ = areas.free(entry));
        assert_eq!(used(&areas), [0]);
    }
}

#[test]
fn an_area_that_fails_is_passed_over_until_a_page_leaves_it() {
    let areas = areas();
    areas.add(new(CLUSTER, &[], 1)).expect("room");
    areas.add(new(CLUSTER, &[], 0)).expect("room");
    let page = Page([1; PAGE_BYTES]);
    let (first, second) = (slot(&areas, 0, 1), slot(&areas, 0, 2));
    let (first, second) = (first.expect("room"), second.expect("room"));
    areas.write(first, &[&page]).expect("it takes one");
    // Two pages from the area's last slot on: the second is behind the area's end.
    let last = Entry::of(first.area(), 0, SLOTS_PER_CLUSTER - 1);
    assert_eq!(areas.write(last, &[&page, &page]), Err(StorageError::Short));
    _ = areas.give_back(second);
    let elsewhere = slot(&areas, 0, 2).expect("room");
    assert_ne!(elsewhere.area(), first.area());
    let figures = areas.figures();
    assert_eq!((figures[0].errors, figures[0].pages_written), (1, 1));
    assert!(figures[0].failing && !figures[1].failing);
    let mut read = Page::zeroed();
    let mut runs = [ReadRun {
        slot: first.offset(),
        pages: vec![&mut read],
        outcome: Ok(()),
    }];
    areas.read_runs(first.area(), &mut runs);
    assert_eq!(runs[0].outcome, Ok(()));
    assert!(read.0 == page.0, "what a failing area holds can be read");
    _ = areas.free(first);
    assert_eq!(slot(&areas, 1, 3).map(Entry::area), Some(first.area()));
}

#[test]
fn areas_that_cannot_be_used_are_refused_and_change_nothing() {
    let areas = areas();
    let refused = |area| areas.add(area).expect_err("it cannot be used");
    assert_eq!(
        refused(new(2, &[1, 0], 0)),
        SwapOnError::Empty { slots: 2, bad: 2 }
    );
    assert_eq!(
        refused(new(2, &[2], 0)),
        SwapOnError::BadBeyondEnd { slot: 2 }
    );
    assert_eq!(
        refused(new(2, &[], -2)),
        SwapOnError::Priority { priority: -2 }
    );
    let huge = NewArea {
        slots: SLOTS_MAX + 1,
        ..new(1, &[], 0)
    };
    assert_eq!(
        refused(huge),
        SwapOnError::TooLarge {
            slots: SLOTS_MAX + 1
        }
    );
    assert!(areas.is_empty() && areas.figures().is_empty());
    for _ in 0..AREAS_MAX {
        areas.add(new(1, &[], 0)).expect("room");
    }
    assert_eq!(refused(new(1, &[], 0)), SwapOnError::TooMany);
}

#[test]
#[cfg(not(any(miri, feature = "tests-small")))]
fn an_idle_area_costs_next_to_nothing() {
    let areas = areas();
    let tib = NewArea {
        slots: (1 << 40) / PAGE_BYTES as u64,
        ..new(1, &[0], 0)
    };
    areas.add(tib).expect("room");
    let idle = areas.figures()[0].table_bytes;
    assert!(idle <= 64 << 10, "{idle} bytes for an idle TiB");
}
