//! Limits of tiers: which pages go past a tier, what is charged in which, and that everything is taken back.

use crate::area::AllocError;
use crate::areas::NewArea;
use crate::base::pages::PAGE_BYTES;
use crate::engine::Engine;
use crate::groups::{GroupError, GroupId, GroupLimits};
use crate::testing::{
    BROKEN, Probe, area_on, assert_holds, charges, engine_with_areas, figures_of, out_of, try_out,
};
use crate::verbs::demote::Demotion;
use crate::verbs::leaving::Written;
use crate::verbs::swap_in::SwapIn;
use crate::verbs::swap_off::SwapOffError;
use crate::verbs::swap_out::Mapping;
use crate::verbs::write_out::WriteOutError;
use crate::words::entry::{AreaId, Entry};
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::tier::{TIERS_MAX, TierId};
use crate::zpool::testing::Content;

const PAGE: u64 = PAGE_BYTES as u64;
const POOL_BYTES: u64 = 1 << 20;
const CLUSTER: u64 = SLOTS_PER_CLUSTER as u64;
/// No limit.
const MAX: u64 = u64::MAX / PAGE;
/// The tiers of the tests.
const FAST: usize = 0;
const SSD: usize = 1;
const FAR: usize = 2;

/// An engine without a pool, with an area of each of these sizes and tiers, the highest priority first.
fn engine(areas: &[(u64, usize)]) -> (Engine, Vec<Probe>) {
    let (engine, _) = engine_with_areas(16, 0, &[]);
    let mut probes = Vec::new();
    for (&(slots, tier), priority) in areas.iter().zip((0..10).rev()) {
        let probe = Probe::new(slots);
        let area = NewArea {
            bad: Vec::new(),
            priority,
            tier: TierId::new(tier).expect("few"),
            ..area_on(&probe, slots)
        };
        engine.swap_on(area).expect("a good area");
        probes.push(probe);
    }
    (engine, probes)
}

/// Limits to so many pages in these tiers.
fn limits(tiers: &[(usize, u64)]) -> GroupLimits {
    let mut tier_max_bytes = [GroupLimits::NO_LIMIT; TIERS_MAX];
    for &(tier, pages) in tiers {
        tier_max_bytes[tier] = pages * PAGE;
    }
    GroupLimits {
        tier_max_bytes,
        ..GroupLimits::default()
    }
}

fn group(engine: &Engine, name: &str, tiers: &[(usize, u64)]) -> GroupId {
    let name = name.parse().expect("a good name");
    let added = engine.add_group(&name, limits(tiers));
    added.expect("a new group")
}

/// Pages of the group in the first three tiers. Checks that all charges are those of its pages.
fn in_tiers(engine: &Engine, id: GroupId) -> [u64; 3] {
    assert_eq!(engine.is_valid(), Ok(()));
    let bytes = figures_of(engine, id).tier_bytes;
    [FAST, SSD, FAR].map(|tier| bytes[tier] / PAGE)
}

type Outcome = Result<Written, WriteOutError>;

/// Swaps out pages of these groups, with seeds from 0 up, and writes them out together.
fn written(engine: &Engine, groups: &[GroupId]) -> Vec<(Entry, Outcome)> {
    let seeds = (0..).zip(groups);
    let entries: Vec<Entry> = seeds
        .map(|(seed, &group)| out_of(engine, group, Content::Text, seed))
        .collect();
    let mut results = Vec::new();
    engine.write_out_all(0, &entries, &mut engine.scratch(), |entry, result| {
        results.push((entry, result));
    });
    results
}

fn count(written: &[(Entry, Outcome)], wanted: Outcome) -> usize {
    written.iter().filter(|(_, one)| *one == wanted).count()
}

/// Checks that the pages that went have their content, and that nothing is charged once they are put.
fn assert_hold_and_go(engine: &Engine, written: Vec<(Entry, Outcome)>, groups: &[GroupId]) {
    for (seed, (entry, result)) in (0..).zip(written) {
        let from = if result.is_ok() {
            SwapIn::Physical
        } else {
            SwapIn::Cached
        };
        assert_holds(engine, entry, Content::Text, seed, from);
        engine.put(entry);
    }
    for &id in groups {
        assert_eq!((in_tiers(engine, id), charges(engine, id).0), ([0; 3], 0));
    }
    for &id in groups.iter().rev() {
        engine.remove_group(id).expect("nothing names it");
    }
}

const PHYSICAL: Outcome = Ok(Written::Physical);
const LIMITED: Outcome = Err(WriteOutError::Limited);

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn what_a_tier_refuses_goes_to_the_next() {
    for (fast, expected) in [(0, [0, 8, 0]), (3, [3, 5, 0]), (MAX, [8, 0, 0])] {
        let (engine, probes) = engine(&[(32, FAST), (32, SSD), (32, FAR)]);
        let id = group(&engine, "a", &[(FAST, fast)]);
        let batch = written(&engine, &[id; 8]);
        assert_eq!(count(&batch, PHYSICAL), 8);
        assert_eq!(in_tiers(&engine, id), expected);
        let kept: Vec<u64> = probes.iter().map(|probe| probe.pages() as u64).collect();
        assert_eq!(kept, expected);
        assert!(probes.iter().all(|probe| probe.writes() <= 3), "in runs");
        let events = figures_of(&engine, id).events;
        assert_eq!((events.swap_max, events.swap_fail), (0, 0));
        assert_hold_and_go(&engine, batch, &[id]);
    }
}

#[test]
fn a_group_that_may_have_no_more_of_any_tier_is_limited() {
    let (engine, _) = engine(&[(32, FAST), (32, SSD)]);
    let id = group(&engine, "a", &[(FAST, 2), (SSD, 1)]);
    assert!(engine.has_swap_room(id));
    let batch = written(&engine, &[id; 5]);
    assert_eq!((count(&batch, PHYSICAL), count(&batch, LIMITED)), (3, 2));
    assert_eq!(in_tiers(&engine, id), [2, 1, 0]);
    assert_eq!(figures_of(&engine, id).events.swap_fail, 2);
    assert!(!engine.has_swap_room(id) && engine.has_swap_room(GroupId::ROOT));
    let others = written(&engine, &[GroupId::ROOT]);
    assert_eq!(count(&others, PHYSICAL), 1);
    // What is there stays when a limit is lowered, and what goes makes no room below it.
    engine
        .set_group_limits(id, limits(&[(FAST, 1)]))
        .expect("it is there");
    assert_eq!(in_tiers(&engine, id), [2, 1, 0]);
    engine.put(others[0].0);
    assert_hold_and_go(&engine, batch, &[id]);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn groups_side_by_side_and_in_one_another_have_their_own_tiers() {
    let (engine, _) = engine(&[(32, FAST), (32, SSD)]);
    let outer = group(&engine, "a", &[(FAST, 3)]);
    let inner = ["a/1", "a/2"].map(|name| group(&engine, name, &[(FAST, 2)]));
    let none = group(&engine, "b", &[(FAST, 0)]);
    let [one, two] = inner;
    let of = [one, none, one, one, two, GroupId::ROOT, two, none, outer];
    let batch = written(&engine, &of);
    assert_eq!(count(&batch, PHYSICAL), of.len());
    assert_eq!(in_tiers(&engine, one), [2, 1, 0]);
    assert_eq!(in_tiers(&engine, two), [1, 1, 0]);
    assert_eq!(in_tiers(&engine, outer), [3, 3, 0]);
    assert_eq!(in_tiers(&engine, none), [0, 2, 0]);
    // The page of the root has not followed the others past the tier.
    assert_eq!(engine.areas()[0].used_bytes, 4 * PAGE);
    assert_hold_and_go(&engine, batch, &[outer, one, two, none]);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn who_goes_past_a_tier_does_not_lead_others_there() {
    let (engine, _) = engine(&[(4 * CLUSTER, FAST), (4 * CLUSTER, SSD)]);
    let none = group(&engine, "a", &[(FAST, 0)]);
    for _ in 0..3 {
        for id in [none, GroupId::ROOT] {
            let batch = written(&engine, &[id; 4]);
            assert_eq!(count(&batch, PHYSICAL), 4);
        }
    }
    let used: Vec<u64> = engine.areas().iter().map(|one| one.used_bytes).collect();
    assert_eq!(used, [12 * PAGE, 12 * PAGE]);
    assert_eq!(in_tiers(&engine, none), [0, 12, 0]);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn pages_of_the_pool_go_past_a_tier_as_well() {
    let (engine, _) = engine(&[(32, FAST), (32, SSD)]);
    engine.set_pool_limit(POOL_BYTES);
    let one = group(&engine, "a", &[(FAST, 1)]);
    let two = group(&engine, "b", &[(FAST, 0), (SSD, 1)]);
    let mut batch = written(&engine, &[one, two, two, one, one]);
    (0..2).for_each(|_| engine.begin_generation());
    let done = engine.write_back(0, 5, &mut engine.scratch());
    assert_eq!((done.pages, done.limited, done.homeless), (4, 1, 0));
    assert_eq!(in_tiers(&engine, one), [1, 2, 0]);
    assert_eq!(in_tiers(&engine, two), [0, 1, 0]);
    let in_pool = |(entry, _): &(Entry, Outcome)| !engine.is_physical(*entry);
    assert_eq!(batch.iter().filter(|one| in_pool(one)).count(), 1);
    for (seed, (entry, _)) in (0..).zip(batch.drain(..)) {
        let (_, page) = crate::testing::read(&engine, entry).expect("not lost");
        assert!(page.0 == crate::zpool::testing::page_bytes(Content::Text, seed)[..]);
        engine.put(entry);
    }
    assert_hold_and_go(&engine, batch, &[one, two]);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn pages_that_cannot_be_written_are_charged_in_no_tier() {
    let (engine, probes) = engine(&[(32, FAST), (32, SSD)]);
    let ids = [
        group(&engine, "a", &[(FAST, 2)]),
        group(&engine, "b", &[(FAST, 0)]),
    ];
    probes.iter().for_each(|probe| probe.broken(true));
    let batch = written(&engine, &[ids[0], ids[1], ids[0], ids[0]]);
    assert!(batch.iter().all(|(_, result)| result.is_err()));
    assert_eq!(ids.map(|id| in_tiers(&engine, id)), [[0; 3]; 2]);
    // In the middle of a batch: one area takes its pages, the other does not.
    probes[0].broken(false);
    for (_, physical) in engine.areas.all() {
        physical.set_failing(false);
    }
    let again = written(&engine, &[ids[0], ids[1], ids[0], ids[0]]);
    assert_eq!(count(&again, PHYSICAL), 2);
    let refused = Err(WriteOutError::Unwritable(BROKEN));
    assert_eq!(count(&again, refused), 2);
    assert_eq!(in_tiers(&engine, ids[0]), [2, 0, 0]);
    assert_eq!(in_tiers(&engine, ids[1]), [0; 3]);
    batch.into_iter().for_each(|(entry, _)| engine.put(entry));
    assert_hold_and_go(&engine, again, &ids);
}

#[test]
fn a_directly_mapped_slot_is_of_a_tier_that_its_group_may_have() {
    let (engine, _) = engine(&[(8, FAST), (8, SSD)]);
    let outer = group(&engine, "a", &[(SSD, 2)]);
    let id = group(&engine, "a/b", &[(FAST, 1)]);
    let out = |seed| try_out(&engine, Mapping::Direct, id, Content::Text, seed);
    let pages: Vec<Entry> = (0..3).map(|seed| out(seed).expect("a slot")).collect();
    assert_eq!(in_tiers(&engine, id), [1, 2, 0]);
    assert_eq!(in_tiers(&engine, outer), [1, 2, 0]);
    assert_eq!(out(3), Err(AllocError::Limited));
    assert_eq!(figures_of(&engine, id).events.swap_fail, 1);
    assert_eq!(in_tiers(&engine, id), [1, 2, 0]);
    let frame = engine.frame().expect("free");
    engine.put(pages[0]);
    let placed = engine.place(0, frame, id, Mapping::Direct);
    let placed = placed.map_err(|(_, error)| error).expect("a slot");
    let areas = [placed.entry(), pages[0]].map(Entry::area);
    assert_eq!(areas[0], areas[1], "the tier with room");
    assert_eq!(in_tiers(&engine, id), [1, 2, 0]);
    drop(placed);
    assert_eq!(in_tiers(&engine, id), [0, 2, 0]);
    let busy = engine.remove_group(id);
    assert!(matches!(busy, Err(GroupError::InUse { pages: 2 })));
    pages[1..].iter().for_each(|&entry| engine.put(entry));
    assert_hold_and_go(&engine, Vec::new(), &[outer, id]);
}

fn swap_off(engine: &Engine, index: usize) -> Result<(), SwapOffError> {
    let id = AreaId::physical(index).expect("a number");
    engine.swap_off(id, &mut engine.scratch(), &|| false)
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn an_area_that_goes_moves_pages_within_their_tier_and_where_they_may_be() {
    let (engine, probes) = engine(&[(32, FAST), (32, FAST), (32, SSD)]);
    let full = group(&engine, "a", &[(FAST, 4), (SSD, 0)]);
    let batch = written(&engine, &[full; 4]);
    assert_eq!(in_tiers(&engine, full), [4, 0, 0]);
    assert_eq!(swap_off(&engine, 0), Ok(()), "at its limit, in its tier");
    assert_eq!((in_tiers(&engine, full), probes[1].pages()), ([4, 0, 0], 4));
    let none = Err(SwapOffError::NoRoom { pages: 4 });
    assert_eq!(swap_off(&engine, 1), none, "it may not have the other");
    assert_eq!(in_tiers(&engine, full), [4, 0, 0]);
    let more = limits(&[(FAST, 4), (SSD, 4)]);
    engine.set_group_limits(full, more).expect("it is there");
    assert_eq!(swap_off(&engine, 1), Ok(()));
    assert_eq!(in_tiers(&engine, full), [0, 4, 0]);
    assert_hold_and_go(&engine, batch, &[full]);
}

/// Crowds an area of one cluster that is full, where the limit is a part of it.
fn demote(engine: &Engine, pages: usize) -> Demotion {
    engine.demote(0, 1, pages, &mut engine.scratch())
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn demotion_goes_past_a_tier() {
    let (engine, probes) = engine(&[(8, FAST), (32, SSD), (32, FAR)]);
    let id = group(&engine, "a", &[(SSD, 1)]);
    let none = group(&engine, "b", &[(SSD, 0), (FAR, 0)]);
    let batch = written(&engine, &[id, none, id, id, none, id, id, id]);
    assert_eq!(in_tiers(&engine, id), [6, 0, 0]);
    let reads = probes[0].reads();
    let done = demote(&engine, 8);
    assert_eq!((done.pages, done.limited, done.homeless), (6, 2, 0));
    assert_eq!(in_tiers(&engine, id), [0, 1, 5]);
    assert_eq!(in_tiers(&engine, none), [2, 0, 0]);
    let after = probes[0].reads();
    let done = demote(&engine, 8);
    assert_eq!((done.pages, done.homeless), (0, 0));
    assert!(done.limited > 0);
    assert!(after > reads && probes[0].reads() == after, "not read");
    assert_hold_and_go(&engine, batch, &[id, none]);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn demotion_that_cannot_be_written_leaves_the_charges_as_they_were() {
    let (engine, probes) = engine(&[(8, FAST), (32, SSD)]);
    let id = group(&engine, "a", &[(FAST, 8), (SSD, 8)]);
    let batch = written(&engine, &[id; 8]);
    probes[1].broken(true);
    let done = demote(&engine, 8);
    assert_eq!((done.pages, done.refused), (0, 8));
    assert_eq!(in_tiers(&engine, id), [8, 0, 0]);
    assert_hold_and_go(&engine, batch, &[id]);
}

#[test]
fn a_number_that_goes_to_an_area_of_another_tier_is_charged_there() {
    let (engine, probes) = engine(&[(8, FAST)]);
    let id = group(&engine, "a", &[(FAST, 8), (SSD, 1)]);
    let first = written(&engine, &[id]);
    assert_eq!(in_tiers(&engine, id), [1, 0, 0]);
    engine.put(first[0].0);
    assert_eq!(swap_off(&engine, 0), Ok(()));
    let area = NewArea {
        tier: TierId::new(SSD).expect("few"),
        ..area_on(&probes[0], 8)
    };
    let number = engine.swap_on(area).expect("a good area");
    assert_eq!(Some(number), AreaId::physical(0));
    let batch = written(&engine, &[id, id]);
    assert_eq!((count(&batch, PHYSICAL), count(&batch, LIMITED)), (1, 1));
    assert_eq!(in_tiers(&engine, id), [0, 1, 0]);
    assert_hold_and_go(&engine, batch, &[id]);
}
