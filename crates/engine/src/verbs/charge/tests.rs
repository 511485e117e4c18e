//! What groups are charged for and when, and what happens if a charge is refused half-way.

use super::*;
use crate::groups::{GroupCharges, GroupEvents, GroupId, GroupLimits};
use crate::testing::{
    BROKEN, Probe, assert_holds, charges, engine_with_areas, figures_of, group, out_of,
};
use crate::verbs::leaving::{Coming, Written};
use crate::verbs::swap_in::SwapIn;
use crate::verbs::swap_off::SwapOffError;
use crate::verbs::write_out::WriteOutError;
use crate::words::entry::{AreaId, Entry};
use crate::zpool::testing::Content;

const POOL_BYTES: u64 = 1 << 20;
const NO_LIMIT: u64 = 1 << 40;
const LIMITED: Result<Written, WriteOutError> = Err(WriteOutError::Limited);

fn engine(pool_bytes: u64, sizes: &[u64]) -> (Engine, Vec<Probe>) {
    engine_with_areas(16, pool_bytes, sizes)
}

/// Swaps out pages of these groups, with seeds from 0 up, and writes them out together.
fn written(engine: &Engine, groups: &[GroupId]) -> Vec<(Entry, Result<Written, WriteOutError>)> {
    let seeds = (0..).zip(groups);
    let entries: Vec<Entry> = seeds
        .map(|(seed, &group)| out_of(engine, group, Content::Text, seed))
        .collect();
    write(engine, &entries)
}

fn write(engine: &Engine, entries: &[Entry]) -> Vec<(Entry, Result<Written, WriteOutError>)> {
    let mut results = Vec::new();
    engine.write_out_all(0, entries, &mut engine.scratch(), |entry, result| {
        results.push((entry, result));
    });
    results
}

fn outcomes(
    written: &[(Entry, Result<Written, WriteOutError>)],
) -> Vec<Result<Written, WriteOutError>> {
    written.iter().map(|(_, result)| *result).collect()
}

/// Checks that all pages have their content: in an area if the result says so, else in their frames.
fn assert_all_hold(engine: &Engine, written: &[(Entry, Result<Written, WriteOutError>)]) {
    for (seed, &(entry, result)) in (0..).zip(written) {
        let from = match result {
            Ok(Written::Physical) => SwapIn::Physical,
            Ok(_) => SwapIn::Compressed,
            Err(_) => SwapIn::Cached,
        };
        assert_holds(engine, entry, Content::Text, seed, from);
    }
}

fn events(engine: &Engine, id: GroupId) -> GroupEvents {
    figures_of(engine, id).events
}

fn set_limits(engine: &Engine, id: GroupId, limits: GroupLimits) {
    engine.set_group_limits(id, limits).expect("it is there");
}

#[test]
fn a_slot_records_its_group_and_costs_it_nothing_until_something_is_behind_it() {
    let (engine, _) = engine(POOL_BYTES, &[24]);
    let id = group(&engine, "a", NO_LIMIT);
    let tables = engine.stats().table_bytes;
    let page = out_of(&engine, id, Content::Text, 1);
    assert!(engine.stats().table_bytes > tables, "the cluster's ids");
    let zeros = {
        let frame = engine.frame().expect("free");
        let mut frame = frame;
        frame.0.fill(0);
        engine.swap_out(0, frame, crate::Shadow::ABSENT, id)
    };
    let zeros = zeros.expect("a slot");
    assert_eq!(charges(&engine, id), (0, 0));
    assert_eq!(outcomes(&write(&engine, &[zeros])), [Ok(Written::Zero)]);
    assert_eq!(charges(&engine, id), (0, 0));
    let in_use = engine.remove_group(id).expect_err("slots are of it");
    assert_eq!(in_use, crate::GroupError::InUse { pages: 2 });
    engine.dup(page).expect("in use");
    [page, zeros, page].into_iter().for_each(|e| engine.put(e));
    engine.remove_group(id).expect("nothing names it");
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn the_pool_is_charged_by_the_payload_and_a_slot_by_the_page() {
    let (engine, _) = engine(POOL_BYTES, &[24]);
    let ids = ["a", "a/b"].map(|name| group(&engine, name, NO_LIMIT));
    let packed = written(&engine, &[ids[1], ids[0], GroupId::ROOT]);
    let bytes = |at: usize| match packed[at].1 {
        Ok(Written::Compressed { bytes }) => bytes as u64,
        other => panic!("{other:?}"),
    };
    assert_eq!(charges(&engine, ids[1]), (0, bytes(0)));
    assert_eq!(charges(&engine, ids[0]), (0, bytes(0) + bytes(1)));
    engine.set_pool_limit(0);
    let physical = written(&engine, &[ids[1], GroupId::ROOT, ids[0], ids[1]]);
    assert_eq!(outcomes(&physical), [Ok(Written::Physical); 4]);
    assert_eq!(charges(&engine, ids[1]), (2, bytes(0)));
    assert_eq!(charges(&engine, ids[0]), (3, bytes(0) + bytes(1)));
    engine.put(packed[0].0);
    engine.put(physical[3].0);
    assert_eq!(charges(&engine, ids[1]), (1, 0));
    assert_eq!(charges(&engine, ids[0]), (2, bytes(1)));
    for (entry, _) in packed[1..].iter().chain(&physical[..3]) {
        engine.put(*entry);
    }
    for id in [ids[1], ids[0]] {
        assert_eq!(charges(&engine, id), (0, 0));
        engine.remove_group(id).expect("it is empty");
    }
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn references_taken_away_in_a_row_are_uncharged_group_by_group() {
    let (engine, _) = engine(0, &[24]);
    let ids = ["a", "b"].map(|name| group(&engine, name, NO_LIMIT));
    let of = [ids[0], ids[0], ids[1], GroupId::ROOT, ids[0]];
    let pages = written(&engine, &of);
    assert_eq!(outcomes(&pages), [Ok(Written::Physical); 5]);
    let mut puts = engine.puts();
    let mut charged = Vec::new();
    for (entry, _) in &pages {
        puts.put(*entry);
        charged.push(ids.map(|id| charges(&engine, id).0));
    }
    // Charges of one group are taken back when a page of another group comes, and the last ones at the end. A charge is
    // never too low for what is still taken.
    assert_eq!(charged, [[3, 1], [3, 1], [1, 1], [1, 0], [1, 0]]);
    drop(puts);
    assert_eq!(ids.map(|id| charges(&engine, id)), [(0, 0); 2]);
    assert_eq!(engine.stats().slots_used, 0);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn at_its_limit_a_group_gets_slots_for_the_first_pages_and_the_rest_stays() {
    let (engine, probes) = engine(0, &[24]);
    let id = group(&engine, "a", 5);
    let batch = written(&engine, &[id; 8]);
    assert_eq!(outcomes(&batch)[..5], [Ok(Written::Physical); 5]);
    assert_eq!(outcomes(&batch)[5..], [LIMITED; 3]);
    assert_all_hold(&engine, &batch);
    assert_eq!((charges(&engine, id), probes[0].pages()), ((5, 0), 5));
    let expected = GroupEvents {
        swap_max: 3,
        swap_fail: 3,
        ..GroupEvents::default()
    };
    assert_eq!(events(&engine, id), expected);
    // Other groups are not affected.
    let other = written(&engine, &[GroupId::ROOT]);
    assert_eq!(outcomes(&other), [Ok(Written::Physical)]);
    engine.put(batch[0].0);
    let late: Vec<Entry> = batch[5..].iter().map(|(entry, _)| *entry).collect();
    let late = write(&engine, &late);
    assert_eq!(outcomes(&late), [Ok(Written::Physical), LIMITED, LIMITED]);
    assert_holds(&engine, late[0].0, Content::Text, 5, SwapIn::Physical);
    assert_holds(&engine, late[2].0, Content::Text, 7, SwapIn::Cached);
    assert_eq!(charges(&engine, id), (5, 0));
}

#[test]
fn a_limit_of_a_group_further_out_takes_back_what_was_charged_inside() {
    let (engine, _) = engine(0, &[24]);
    let outer = group(&engine, "a", 3);
    let [one, two] = ["a/1", "a/2"].map(|name| group(&engine, name, NO_LIMIT));
    let batch = written(&engine, &[one, one, two, two, one]);
    let expected = [
        Ok(Written::Physical),
        Ok(Written::Physical),
        Ok(Written::Physical),
        LIMITED,
        LIMITED,
    ];
    assert_eq!(outcomes(&batch), expected);
    assert_all_hold(&engine, &batch);
    let all = [outer, one, two].map(|id| charges(&engine, id).0);
    assert_eq!(all, [3, 2, 1]);
    let hits =
        [outer, one, two].map(|id| (events(&engine, id).swap_max, events(&engine, id).swap_fail));
    assert_eq!(hits, [(2, 0), (0, 1), (0, 1)], "counted where the limit is");
    batch.into_iter().for_each(|(entry, _)| engine.put(entry));
    let all = [outer, one, two].map(|id| charges(&engine, id));
    assert_eq!(all, [(0, 0); 3]);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn what_the_pool_limit_refuses_goes_to_an_area_or_stays() {
    let limits = GroupLimits {
        pool_max_bytes: 100,
        ..GroupLimits::default()
    };
    for sizes in [&[24][..], &[]] {
        let (engine, _) = engine(POOL_BYTES, sizes);
        let id = group(&engine, "a", NO_LIMIT);
        set_limits(&engine, id, limits);
        let batch = written(&engine, &[id, GroupId::ROOT]);
        let expected = if sizes.is_empty() {
            LIMITED
        } else {
            Ok(Written::Physical)
        };
        assert_eq!(batch[0].1, expected);
        assert!(matches!(batch[1].1, Ok(Written::Compressed { .. })));
        assert_all_hold(&engine, &batch);
        assert_eq!(events(&engine, id).pool_max, 1);
        assert_eq!(charges(&engine, id), (u64::from(expected.is_ok()), 0));
    }
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_group_that_may_not_write_back_stays_out_of_areas() {
    let (engine, probes) = engine(POOL_BYTES, &[24]);
    let outer = group(&engine, "a", NO_LIMIT);
    let id = group(&engine, "a/b", NO_LIMIT);
    let limits = GroupLimits {
        writeback: false,
        ..GroupLimits::default()
    };
    set_limits(&engine, outer, limits);
    // An area would take a page that does not compress. The pool keeps it raw.
    let random = out_of(&engine, id, Content::Random, 7);
    assert_eq!(outcomes(&write(&engine, &[random])), [Ok(Written::Raw)]);
    assert_holds(&engine, random, Content::Random, 7, SwapIn::Compressed);
    engine.set_pool_limit(0);
    assert!(!engine.has_swap_room(id) && engine.has_swap_room(GroupId::ROOT));
    let batch = written(&engine, &[id, GroupId::ROOT, id]);
    let expected = [LIMITED, Ok(Written::Physical), LIMITED];
    assert_eq!(outcomes(&batch), expected);
    assert_all_hold(&engine, &batch);
    assert_eq!(probes[0].pages(), 1);
    let expected = GroupEvents {
        writeback_refused: 2,
        ..GroupEvents::default()
    };
    assert_eq!(events(&engine, id), expected);
    assert_eq!(charges(&engine, id).0, 0);
    set_limits(&engine, outer, GroupLimits::default());
    let late = write(&engine, &[batch[0].0]);
    assert_eq!(outcomes(&late), [Ok(Written::Physical)]);
}

#[test]
fn pages_that_find_no_slot_are_not_charged() {
    let (engine, _) = engine(0, &[4]);
    let ids = ["a", "b"].map(|name| group(&engine, name, 10));
    let batch = written(&engine, &[ids[0], ids[1], ids[0], ids[1], ids[1]]);
    assert_eq!(outcomes(&batch)[..3], [Ok(Written::Physical); 3]);
    assert_eq!(outcomes(&batch)[3..], [Err(WriteOutError::Full); 2]);
    assert_all_hold(&engine, &batch);
    assert_eq!(charges(&engine, ids[0]), (2, 0));
    assert_eq!(charges(&engine, ids[1]), (1, 0));
    let (a, b) = (events(&engine, ids[0]), events(&engine, ids[1]));
    assert_eq!((a.swap_fail, b.swap_fail, b.swap_max), (0, 2, 0));
}

#[test]
fn pages_that_cannot_be_written_are_not_charged() {
    let (engine, probes) = engine(0, &[24]);
    let ids = ["a", "b"].map(|name| group(&engine, name, 10));
    probes[0].broken(true);
    let batch = written(&engine, &[ids[0], ids[1], ids[1], ids[0]]);
    let refused = Err(WriteOutError::Unwritable(BROKEN));
    assert!(outcomes(&batch).contains(&refused));
    assert!(outcomes(&batch).iter().all(Result::is_err));
    assert_all_hold(&engine, &batch);
    assert_eq!(ids.map(|id| charges(&engine, id)), [(0, 0); 2]);
}

#[test]
fn a_page_that_is_put_while_it_is_written_is_not_charged() {
    for pool_bytes in [0, POOL_BYTES] {
        let (engine, _) = engine(pool_bytes, &[24]);
        let id = group(&engine, "a", 10);
        let entry = out_of(&engine, id, Content::Text, 1);
        let mut leaving = [engine.claim(entry).expect("cached")];
        engine.put(entry);
        engine.pack(&mut leaving[0], engine.codec.into(), &mut engine.scratch());
        engine.write_to_areas(0, &mut leaving, Coming::FromMemory);
        assert_ne!(charges(&engine, id), (0, 0));
        assert!(engine.remove_group(id).is_err());
        assert_eq!(engine.finish(&leaving[0]), Ok(Written::Freed));
        drop(leaving);
        assert_eq!(charges(&engine, id), (0, 0));
        engine.remove_group(id).expect("nothing names it");
    }
}

#[test]
fn a_page_that_is_put_while_it_is_read_is_charged_until_the_reader_leaves() {
    for pool_bytes in [0, POOL_BYTES] {
        let (engine, _) = engine(pool_bytes, &[24]);
        let id = group(&engine, "a", 10);
        let entry = written(&engine, &[id])[0].0;
        let (cluster, slot) = engine.virtual_area.locate(entry).expect("in use");
        assert!(matches!(
            engine.pin(cluster, slot),
            crate::words::backing_word::Pin::Taken(_)
        ));
        engine.put(entry);
        assert_ne!(charges(&engine, id), (0, 0));
        engine.unpin_entry(entry);
        assert_eq!(charges(&engine, id), (0, 0));
        engine.remove_group(id).expect("nothing names it");
    }
}

fn swap_off(engine: &Engine, index: usize) -> Result<(), SwapOffError> {
    let id = AreaId::physical(index).expect("a number");
    engine.swap_off(id, &mut engine.scratch(), &|| false)
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_group_at_its_limit_can_be_moved_to_another_area() {
    let (engine, probes) = engine(0, &[24, 24]);
    let id = group(&engine, "a", 6);
    let batch = written(&engine, &[id; 6]);
    assert_eq!(swap_off(&engine, 0), Ok(()));
    assert_all_hold(&engine, &batch);
    assert_eq!((charges(&engine, id), probes[1].pages()), ((6, 0), 6));
    assert_eq!(events(&engine, id), GroupEvents::default());
    batch.into_iter().for_each(|(entry, _)| engine.put(entry));
    assert_eq!(charges(&engine, id), (0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn pages_that_come_back_to_the_pool_are_charged_there_instead() {
    let (engine, _) = engine(0, &[24, 24]);
    let ids = ["a", "b"].map(|name| group(&engine, name, 3));
    let mut batch = written(&engine, &[ids[0], ids[1], ids[0], ids[1], ids[1]]);
    let limits = GroupLimits {
        pool_max_bytes: 1,
        ..GroupLimits::default()
    };
    set_limits(&engine, ids[1], limits);
    engine.set_pool_limit(POOL_BYTES);
    assert_eq!(swap_off(&engine, 0), Ok(()));
    // The second group may not use the pool, so its pages went to the other area.
    assert_eq!(charges(&engine, ids[1]), (3, 0));
    let (slots, bytes) = charges(&engine, ids[0]);
    assert_eq!((slots, bytes), (0, engine.stats().payload_bytes));
    for at in [0, 2] {
        batch[at].1 = Ok(Written::Raw);
    }
    assert_all_hold(&engine, &batch);
    let result = swap_off(&engine, 1);
    assert!(
        matches!(result, Err(SwapOffError::NoRoom { pages: 3 })),
        "{result:?}"
    );
    assert_all_hold(&engine, &batch);
    assert_eq!(charges(&engine, ids[1]), (3, 0));
    batch.into_iter().for_each(|(entry, _)| engine.put(entry));
    assert_eq!(ids.map(|id| charges(&engine, id)), [(0, 0); 2]);
}

#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn a_page_that_is_put_while_its_area_goes_is_uncharged_once() {
    for pool_bytes in [0, POOL_BYTES] {
        let (engine, _) = engine(0, &[24, 24]);
        let id = group(&engine, "a", 3);
        let batch = written(&engine, &[id; 3]);
        engine.set_pool_limit(pool_bytes);
        let asked = std::cell::Cell::new(0);
        let (cluster, slot) = engine.virtual_area.locate(batch[1].0).expect("in use");
        assert!(matches!(
            engine.pin(cluster, slot),
            crate::words::backing_word::Pin::Taken(_)
        ));
        let meanwhile = || {
            asked.set(asked.get() + 1);
            match asked.get() {
                2 => engine.put(batch[1].0),
                4 => engine.unpin_entry(batch[1].0),
                _ => {}
            }
            false
        };
        let first = AreaId::physical(0).expect("a number");
        let result = engine.swap_off(first, &mut engine.scratch(), &meanwhile);
        assert_eq!(result, Ok(()));
        let (slots, bytes) = charges(&engine, id);
        if pool_bytes == 0 {
            assert_eq!((slots, bytes), (2, 0));
        } else {
            assert_eq!((slots, bytes), (0, engine.stats().payload_bytes));
        }
        [0, 2]
            .into_iter()
            .for_each(|at: usize| engine.put(batch[at].0));
        assert_eq!(charges(&engine, id), (0, 0));
    }
}

/// An engine with eight pages in its pool. Six are of a group that may have `limit_pages` pages in areas.
fn in_the_pool(limit_pages: u64) -> (Engine, Probe, GroupId, Vec<Entry>) {
    let (engine, mut probes) = engine(POOL_BYTES, &[32]);
    let (id, root) = (group(&engine, "a", limit_pages), GroupId::ROOT);
    let pages = written(&engine, &[id, id, root, id, id, id, id, root]);
    let entries = pages.into_iter().map(|(entry, _)| entry).collect();
    (engine, probes.remove(0), id, entries)
}

#[test]
fn what_is_written_back_is_charged_for_slots_instead_of_bytes() {
    let (engine, _, id, entries) = in_the_pool(4);
    let (_, pool_bytes) = charges(&engine, id);
    let done = engine.write_back(0, entries.len(), &mut engine.scratch());
    assert_eq!((done.pages, done.limited), (6, 2));
    let (slots, left_bytes) = charges(&engine, id);
    assert_eq!(slots, 4);
    assert!(left_bytes > 0 && left_bytes < pool_bytes);
    for (seed, entry) in (0..).zip(entries) {
        let from = if engine.is_physical(entry) {
            SwapIn::Physical
        } else {
            SwapIn::Compressed
        };
        assert_holds(&engine, entry, Content::Text, seed, from);
        engine.put(entry);
    }
    assert_eq!(charges(&engine, id), (0, 0));
}

#[test]
fn of_one_group_nothing_else_is_written_back() {
    let (engine, _, id, entries) = in_the_pool(NO_LIMIT);
    assert_eq!(engine.group_slots(id), 6);
    let bytes = engine.group_charges(id);
    assert_eq!(
        (bytes.swap_bytes, bytes.pool_bytes),
        (0, charges(&engine, id).1)
    );
    let other = group(&engine, "b", NO_LIMIT);
    let write_back = |id| {
        engine
            .write_back_of(id, 0, entries.len(), &mut engine.scratch())
            .pages
    };
    assert_eq!(write_back(other), 0);
    assert_eq!(write_back(id), 6);
    let in_area: Vec<bool> = entries.iter().map(|&e| engine.is_physical(e)).collect();
    assert_eq!(in_area, [true, true, false, true, true, true, true, false]);
    assert_eq!(write_back(GroupId::ROOT), 2, "all are the root's");
    entries.into_iter().for_each(|entry| engine.put(entry));
    assert_eq!(engine.group_slots(id), 0);
    assert_eq!(engine.group_charges(id), GroupCharges::default());
}

#[test]
fn what_cannot_be_written_back_is_charged_as_before() {
    let (engine, probe, id, entries) = in_the_pool(NO_LIMIT);
    let before = charges(&engine, id);
    probe.broken(true);
    let done = engine.write_back(0, entries.len(), &mut engine.scratch());
    assert_eq!((done.pages, done.refused), (0, 8));
    assert_eq!(charges(&engine, id), before);
    // The area is passed over now. A page that gets no slot is not charged either.
    let done = engine.write_back(0, entries.len(), &mut engine.scratch());
    assert_eq!((done.pages, done.homeless), (0, 8));
    assert_eq!(charges(&engine, id), before);
    for (seed, entry) in (0..).zip(entries) {
        assert_holds(&engine, entry, Content::Text, seed, SwapIn::Compressed);
    }
}

/// The pool is full to its last span, and its free places are of another size. Payloads are moved together for a page
/// that needs a span of its own, and only what still finds none is refused.
#[test]
#[cfg_attr(miri, ignore = "more pages than the interpreter has time for")]
fn free_places_of_one_size_become_places_of_another() {
    const LARGE_POOL_BYTES: u64 = 4 * POOL_BYTES;
    let (engine, _) = engine(LARGE_POOL_BYTES, &[]);
    let try_write = |kind, seed| {
        let entry = out_of(&engine, GroupId::ROOT, kind, seed);
        let written = engine.write_out(entry, &mut engine.scratch());
        if written.is_err() {
            engine.put(entry);
        }
        written.ok().map(|_| entry)
    };
    let text = |seed| try_write(Content::Text, seed).map(|entry| (seed, entry));
    let mut texts: Vec<(u64, Entry)> = (0..8192).filter_map(text).collect();
    // Every other place is free, but no span is.
    let mut at = 0;
    texts.retain(|&(_, entry)| {
        at += 1;
        let stays = at % 2 == 0;
        if !stays {
            engine.put(entry);
        }
        stays
    });
    let raw_pages = LARGE_POOL_BYTES / 4 / SLOT_BYTES;
    let raws: Vec<Option<Entry>> = (0..raw_pages)
        .map(|seed| try_write(Content::Random, seed))
        .collect();
    assert!(raws.iter().all(Option::is_some), "{raws:?}");
    for (seed, entry) in texts {
        assert_holds(&engine, entry, Content::Text, seed, SwapIn::Compressed);
        engine.put(entry);
    }
    for (seed, entry) in (0..).zip(raws.into_iter().flatten()) {
        assert_holds(&engine, entry, Content::Random, seed, SwapIn::Compressed);
        engine.put(entry);
    }
    assert_eq!(engine.stats().pool_bytes, 0);
    assert_eq!(engine.is_valid(), Ok(()));
}
