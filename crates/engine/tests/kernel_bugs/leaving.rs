//! On the way out: what happens to a slot while its page is written, and after a write that failed.

use std::sync::Arc;

use vswap_engine::{
    Entry, GroupId, GroupLimits, PAGE_BYTES, SLOTS_PER_CLUSTER, SwapIn, WriteOutError, Written,
};

use crate::support::{area, assert_empty, engine, engine_with_area, out, out_of, read};

/// The mistake: a slot is freed and given to another page while its old page is being written, and the old bytes
/// replace the new page's. Here the last put leaves slot and frame to the writer.
#[test]
fn bug_05_a_slot_that_is_written_out_is_not_given_to_another_page() {
    let (engine, probe) = engine_with_area(2, 4, &[]);
    let entry = out(&engine, 1);
    let inside = Arc::clone(&engine);
    probe.on_write(move || {
        inside.put(entry);
        assert_eq!(inside.count(entry), 0);
        let other = out(&inside, 2);
        assert_ne!(other, entry, "the writer is still at it");
        assert!(inside.frame().is_none(), "and reads its frame");
        // A second writer takes a second area slot in the middle of the first write.
        assert_eq!(
            inside.write_out(other, &mut inside.scratch()),
            Ok(Written::Physical)
        );
    });
    assert_eq!(
        engine.write_out(entry, &mut engine.scratch()),
        Ok(Written::Freed)
    );
    assert_eq!((engine.stats().physical, engine.stats().slots_used), (1, 1));
    let other = the_only_one(&engine, entry);
    assert_eq!(read(&engine, other), Ok((SwapIn::Physical, 2)));
    engine.put(other);
    assert_empty(&engine);
}

/// The used entry next to a freed one, in the same cluster.
fn the_only_one(engine: &vswap_engine::Engine, freed: Entry) -> Entry {
    (1..SLOTS_PER_CLUSTER as u64)
        .filter_map(|step| Entry::from_raw(freed.raw() + step))
        .find(|&entry| engine.count(entry) == 1)
        .expect("one is in use")
}

/// The mistake: one of the ways out of writing forgets to release the page, and it can never be written or freed again.
#[test]
fn bug_08_every_way_out_of_a_write_lets_go() {
    let (engine, probe) = engine_with_area(1, 2, &[]);
    let entry = out(&engine, 1);
    let mut scratch = engine.scratch();
    probe.broken(true);
    let written = engine.write_out(entry, &mut scratch);
    assert!(matches!(written, Err(WriteOutError::Unwritable(_))));
    // The area is passed over now, and the pool has no room either.
    for _ in 0..2 {
        assert_eq!(
            engine.write_out(entry, &mut scratch),
            Err(WriteOutError::Full)
        );
        assert_eq!(read(&engine, entry), Ok((SwapIn::Cached, 1)));
    }
    engine.set_pool_limit(1 << 20);
    let compressed = engine.write_out(entry, &mut scratch);
    assert!(matches!(compressed, Ok(Written::Compressed { .. })));
    assert_eq!(
        engine.write_out(entry, &mut scratch),
        Err(WriteOutError::NotCached)
    );
    assert!(engine.frame().is_some(), "the only frame is free");
    engine.put(entry);
    assert_empty(&engine);
}

/// The mistake: one of several pages stored together fails, and what was taken for it and those behind it (slots,
/// bytes, entries) stays taken.
#[test]
fn bug_09_a_store_that_fails_midway_leaves_nothing_behind() {
    // The bad slot makes two requests of six pages: slots 0 to 2, and 4 to 6.
    let (engine, probe) = engine_with_area(6, 7, &[3]);
    let entries: Vec<Entry> = (1..=6).map(|seed| out(&engine, seed)).collect();
    probe.ends_at(4);
    let mut results = Vec::new();
    engine.write_out_all(0, &entries, &mut engine.scratch(), |_, result| {
        results.push(result);
    });
    assert_eq!(results[..3], [Ok(Written::Physical); 3]);
    assert!(results[3..].iter().all(Result::is_err));
    let stats = engine.stats();
    assert_eq!(
        (stats.physical, stats.frames_used, stats.slots_used),
        (3, 3, 6)
    );
    for (seed, &entry) in (1..).zip(&entries) {
        assert_eq!(read(&engine, entry).map(|(_, seed)| seed), Ok(seed));
    }
    // There is room for all three pages that failed, so no slot was lost.
    probe.ends_at(u64::MAX);
    engine.put(entries[0]);
    let mut written = 0;
    engine.write_out_all(0, &entries[3..], &mut engine.scratch(), |_, result| {
        written += u32::from(result == Ok(Written::Physical));
    });
    assert_eq!(written, 3);
    entries[1..].iter().for_each(|&entry| engine.put(entry));
    assert_empty(&engine);
}

/// The mistake: a page is stored, its slot gets a newer page whose storing fails, and the old bytes are still found
/// under that name.
#[test]
fn bug_10_a_failed_store_does_not_bring_older_content_back() {
    let engine = engine(1, 1 << 20);
    let mut scratch = engine.scratch();
    let old = out(&engine, 1);
    engine.write_out(old, &mut scratch).expect("room");
    engine.put(old);
    // Go round the cluster until the slot is next again.
    let mut tries = 0;
    let new = loop {
        let entry = out(&engine, 2);
        if entry == old {
            break entry;
        }
        engine.put(entry);
        tries += 1;
        assert!(tries <= SLOTS_PER_CLUSTER, "the slot does not come back");
    };
    engine.set_pool_limit(0);
    assert_eq!(
        engine.write_out(new, &mut scratch),
        Err(WriteOutError::Full)
    );
    assert_eq!(read(&engine, new), Ok((SwapIn::Cached, 2)));
    engine.set_pool_limit(1 << 20);
    assert!(engine.write_out(new, &mut scratch).is_ok());
    assert_eq!(read(&engine, new), Ok((SwapIn::Compressed, 2)));
    engine.put(new);
    assert_empty(&engine);
}

/// The mistake: a slot of the area is taken, the next step fails, and the slot stays taken. Or if there is no slot, the
/// search for one never ends.
#[test]
fn bug_34_a_slot_that_was_not_used_is_given_back_and_none_is_an_answer() {
    let (engine, probe) = engine_with_area(3, 2, &[]);
    let mut scratch = engine.scratch();
    let entries: Vec<Entry> = (1..=3).map(|seed| out(&engine, seed)).collect();
    probe.broken(true);
    let refused = engine.write_out(entries[0], &mut scratch);
    assert!(matches!(refused, Err(WriteOutError::Unwritable(_))));
    assert_eq!(engine.stats().physical, 0);
    probe.broken(false);
    // A failed area is asked again once a page has left it. It holds none, so a new engine is used instead.
    entries.into_iter().for_each(|entry| engine.put(entry));
    assert_empty(&engine);

    let (engine, _) = engine_with_area(3, 2, &[]);
    let entries: Vec<Entry> = (1..=3).map(|seed| out(&engine, seed)).collect();
    let results = entries
        .iter()
        .map(|&entry| engine.write_out(entry, &mut scratch));
    let expected = [
        Ok(Written::Physical),
        Ok(Written::Physical),
        Err(WriteOutError::Full),
    ];
    assert_eq!(results.collect::<Vec<_>>(), expected);
    engine.put(entries[0]);
    let again = engine.write_out(entries[2], &mut scratch);
    assert_eq!(again, Ok(Written::Physical), "a slot is free again");
    entries[1..].iter().for_each(|&entry| engine.put(entry));
    assert_empty(&engine);
}

/// The mistake: slots given up together are all uncharged from the group of the first. Here each is uncharged from its
/// own group, whether pages go with their area, are put, or could not be written.
#[test]
fn bug_33_slots_given_up_together_are_uncharged_from_their_own_groups() {
    let (engine, probe) = engine_with_area(8, 16, &[]);
    let ids = ["a", "b"].map(|name| {
        let name = name.parse().expect("a good name");
        let limits = GroupLimits::default();
        engine.add_group(&name, limits).expect("a new group")
    });
    let pages = |charged: [u64; 2]| {
        let figures = engine.groups();
        let swap_bytes: Vec<u64> = figures.iter().map(|group| group.swap_bytes).collect();
        assert_eq!(swap_bytes, charged.map(|pages| pages * PAGE_BYTES as u64));
    };
    let of = [ids[0], ids[1], ids[1], ids[0], ids[1], GroupId::ROOT];
    let entries: Vec<Entry> = (1..)
        .zip(of)
        .map(|(seed, id)| out_of(&engine, id, seed))
        .collect();
    let write = |expected: bool| {
        engine.write_out_all(0, &entries, &mut engine.scratch(), |_, written| {
            assert_eq!(written.is_ok(), expected);
        });
    };
    probe.ends_at(0);
    write(false);
    pages([0, 0]);
    // A failed area is asked again once a page has left it, so another one takes the pages.
    engine.swap_on(area(16, &[]).0).expect("a good area");
    write(true);
    pages([2, 3]);
    engine.put(entries[2]);
    pages([2, 2]);
    engine.set_pool_limit(1 << 20);
    let second = engine.areas()[1].id;
    let swapped_off = engine.swap_off(second, &mut engine.scratch(), &|| false);
    swapped_off.expect("the pool has room");
    pages([0, 0]);
    for (seed, &entry) in (1..).zip(&entries).filter(|(seed, _)| *seed != 3) {
        assert_eq!(read(&engine, entry), Ok((SwapIn::Compressed, seed)));
        engine.put(entry);
    }
    assert!(engine.groups().iter().all(|group| group.pool_bytes == 0));
    assert_empty(&engine);
}
