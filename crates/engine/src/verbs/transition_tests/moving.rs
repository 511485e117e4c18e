//! Steps of stored pages: to another place, ahead of a read, out of an area that goes, and away.

use super::*;
use crate::area::Purpose;
use crate::cluster::Exchanged;
use crate::groups::GroupIndex;

#[test]
fn pool_becomes_area() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, POOL_BYTES);
        let entries: Vec<Entry> = (0..6)
            .map(|seed| bench.in_state(State::Pool, seed))
            .collect();
        bench.assert_slots_charged(6, 0);
        assert_eq!(bench.write_back(6).pages, 6);
        bench.assert_states(&entries, State::Area);
        bench.assert_slots_charged(6, 6);
        assert_eq!(charges(&bench.engine, bench.group).1, 0);
        for (seed, &entry) in (0..).zip(&entries) {
            assert_holds(&bench.engine, entry, Content::Text, seed, SwapIn::Physical);
        }
        assert_eq!(bench.write_back(6).pages, 0);
        bench.end(entries);
    });
}

/// Storage that fails at a page, bytes that do not decompress, an area or group without room: all pages stay in the
/// pool.
#[test]
fn writing_back_that_fails_half_way_leaves_the_page_in_the_pool() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, POOL_BYTES);
        let spare = bench.in_state(State::Area, 9);
        let entries: Vec<Entry> = (0..4)
            .map(|seed| bench.in_state(State::Pool, seed))
            .collect();
        let charged = charges(&bench.engine, bench.group);
        bench.probe.refuse_writes(0, Some(BROKEN));
        assert!(bench.write_back(4).refused > 0);
        bench.assert_states(&entries, State::Pool);
        assert_eq!(charges(&bench.engine, bench.group), charged);
        bench.probe.refuse_writes(0, None);
        // An area that refused pages is passed over until one has left it.
        bench.engine.put(spare);
        damage(&bench.engine, entries[2]);
        let done = bench.write_back(4);
        assert_eq!((done.pages, done.damaged), (3, 1));
        assert_eq!(bench.state(entries[2]), State::Pool);
        let lost = read(&bench.engine, entries[2]).unwrap_err();
        assert!(matches!(lost, SwapInError::Corrupt { .. }), "{lost}");
        bench.assert_slots_charged(4, 3);
        for (seed, &entry) in (0..).zip(&entries).filter(|(seed, _)| *seed != 2) {
            assert_holds(&bench.engine, entry, Content::Text, seed, SwapIn::Physical);
        }
        bench.end(entries);
    });
}

#[test]
fn a_page_that_finds_no_slot_or_no_charge_stays_in_the_pool_unless_it_has_its_own() {
    for (slots, group_pages) in [(3, MANY), (SLOTS, 2)] {
        for_both(|mapping| {
            let bench = Bench::with(mapping, POOL_BYTES, slots, group_pages);
            let entries: Vec<Entry> = (0..2)
                .map(|seed| bench.in_state(State::Pool, seed))
                .collect();
            assert_eq!(bench.write_back(2).pages, 2);
            if let Ok(third) = bench.try_out(Content::Text, 2) {
                bench.write(&[third])[0].expect("room in the pool");
                let done = bench.write_back(1);
                assert_eq!((done.pages, done.homeless + done.limited > 0), (0, true));
                assert_eq!(bench.state(third), State::Pool);
                bench.engine.put(third);
            }
            bench.assert_slots_charged(2, 2);
            bench.end(entries);
        });
    }
}

/// A picked page is pinned. Then it is read, put, or both.
#[test]
fn a_page_that_is_read_or_put_while_it_is_written_back_does_not_go() {
    for_both(|mapping| {
        for is_put in [false, true] {
            let bench = Bench::new(mapping, POOL_BYTES);
            let entry = bench.in_state(State::Pool, 1);
            (0..3).for_each(|_| bench.engine.begin_generation());
            let areas = || bench.engine.areas_to_age();
            let aging = &bench.engine.aging;
            let cold = aging.pick(Purpose::WriteBack, areas, GroupIndex::ROOT, 1);
            assert_eq!(cold.len(), 1);
            if is_put {
                bench.engine.put(entry);
                assert_eq!(bench.state(entry), State::Going);
                assert_eq!(read(&bench.engine, entry).unwrap_err(), SwapInError::Gone);
            } else {
                assert_holds(&bench.engine, entry, Content::Text, 1, SwapIn::Compressed);
            }
            let is_changed = {
                let (mut cluster, slot) = bench.engine.lock(entry).expect("in use");
                let new = Backing::of(Stored::Physical(entry));
                cluster.exchange_backing(slot, cold[0].backing, new) == Exchanged::Changed
            };
            assert!(is_changed, "it was {}", if is_put { "put" } else { "read" });
            bench.engine.unpin_entry(entry);
            assert_eq!(
                bench.state(entry),
                if is_put { State::Free } else { State::Pool }
            );
            bench.end((!is_put).then_some(entry));
        }
    });
}

#[test]
fn area_becomes_ahead_and_area_again() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, 0);
        let entry = bench.in_state(State::Ahead, 1);
        assert_holds(&bench.engine, entry, Content::Text, 1, SwapIn::ReadAhead);
        assert!(!bench.engine.is_physical(entry));
        let outcome = bench.write(&[entry]);
        assert_eq!(
            outcome,
            [Err(WriteOutError::NotCached)],
            "nothing is to be written"
        );
        let frames: Vec<_> = std::iter::from_fn(|| bench.engine.frame()).collect();
        assert_eq!((frames.len(), bench.state(entry)), (FRAMES, State::Area));
        drop(frames);
        assert_holds(&bench.engine, entry, Content::Text, 1, SwapIn::Physical);
        bench.end([entry]);
    });
}

#[test]
fn a_neighbour_that_cannot_be_read_is_not_read_ahead() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, 0);
        let entries = [1, 2].map(|seed| bench.in_state(State::Area, seed));
        bench
            .probe
            .unreadable(&[slot_of(&bench.engine, entries[1])]);
        assert_eq!(bench.read_around(entries[0]), Ok((SwapIn::Physical, 0)));
        let (raw, error) = (entries[1].raw(), BROKEN);
        let unreadable = bench.read_around(entries[1]).map(|_| ());
        assert_eq!(unreadable, Err(SwapInError::Unreadable { raw, error }));
        assert_eq!(bench.state(entries[1]), State::Area);
        bench.end(entries);
    });
}

#[test]
fn every_state_becomes_free_with_the_last_reference() {
    for_both(|mapping| {
        for state in [
            State::Cached,
            State::Zero,
            State::Pool,
            State::Area,
            State::Ahead,
        ] {
            let bench = Bench::new(mapping, POOL_BYTES);
            let entry = bench.in_state(state, 1);
            bench.engine.dup(entry).expect("in use");
            bench.engine.put(entry);
            assert_eq!(bench.state(entry), state, "one reference is left");
            bench.engine.put(entry);
            assert_eq!(bench.state(entry), State::Free);
            bench.engine.put(entry);
            assert_eq!(read(&bench.engine, entry).unwrap_err(), SwapInError::Gone);
            bench.assert_empty();
        }
    });
}

#[test]
fn what_is_put_while_it_is_read_is_freed_by_the_last_reader() {
    for_both(|mapping| {
        for state in [State::Pool, State::Area, State::Ahead] {
            let bench = Bench::new(mapping, POOL_BYTES);
            let entry = bench.in_state(state, 1);
            let (cluster, slot) = bench.engine.locate(entry).expect("in use");
            let pin = || bench.engine.pin(cluster, slot);
            assert!(matches!((pin(), pin()), (Pin::Taken(_), Pin::Taken(_))));
            bench.engine.put(entry);
            assert_eq!((bench.state(entry), pin()), (State::Going, Pin::Nothing));
            assert_eq!(
                bench.engine.stats().frames_used,
                0,
                "a clean copy is nobody's"
            );
            bench.engine.unpin(entry, cluster, slot);
            assert_eq!(bench.state(entry), State::Going);
            assert_eq!(bench.engine.stats().slots_used, 1);
            bench.engine.unpin(entry, cluster, slot);
            assert_eq!(bench.state(entry), State::Free);
            bench.assert_empty();
        }
    });
}

#[test]
fn what_is_put_while_it_is_written_is_freed_by_the_writer() {
    for_both(|mapping| {
        for pool_bytes in [0, POOL_BYTES] {
            let bench = Bench::new(mapping, pool_bytes);
            let entry = bench.out(Content::Text, 1);
            let mut leaving = [bench.engine.claim(entry).expect("cached")];
            bench.engine.put(entry);
            bench.engine.pack(
                &mut leaving[0],
                bench.engine.codec.into(),
                &mut bench.engine.scratch(),
            );
            bench
                .engine
                .write_to_areas(0, &mut leaving, Coming::FromMemory);
            assert_eq!(bench.state(entry), State::Cached);
            assert_eq!(bench.engine.finish(&leaving[0]), Ok(Written::Freed));
            drop(leaving);
            assert_eq!(bench.state(entry), State::Free);
            bench.assert_empty();
        }
    });
}

fn swap_off(bench: &Bench, bring_back: &mut dyn FnMut() -> BringBack) -> Result<(), SwapOffError> {
    let id = bench.engine.areas()[0].id;
    let engine = &bench.engine;
    engine.swap_off_mapped(id, &mut engine.scratch(), &|| false, bring_back)
}

#[test]
fn an_area_that_goes_moves_virtual_pages_and_has_directly_mapped_ones_brought_back() {
    for_both(|mapping| {
        let bench = Bench::new(mapping, 0);
        let states = [State::Area, State::Zero, State::Cached, State::Pool];
        let mut entries: Vec<Entry> = (0..)
            .zip(states)
            .map(|(seed, state)| bench.in_state(state, seed))
            .collect();
        bench.engine.set_pool_limit(POOL_BYTES);
        if bench.is_direct() {
            let refused = swap_off(&bench, &mut || BringBack::Nobody);
            assert_eq!(refused, Err(SwapOffError::Mapped { pages: 4 }));
            let refused = swap_off(&bench, &mut || BringBack::NoRoom);
            assert_eq!(refused, Err(SwapOffError::NoRoom { pages: 4 }));
            bench.end_of_area_is_open();
        }
        let mut calls = 0;
        let emptied = swap_off(&bench, &mut || {
            calls += 1;
            let closed = bench.try_out(Content::Text, 8);
            assert_eq!(closed, Err(AllocError::NoSlot), "it is closed");
            // Brings back one page at a time, and none the first time.
            if calls > 1
                && let Some(entry) = entries.pop()
            {
                read(&bench.engine, entry).expect("not lost");
                bench.engine.put(entry);
            }
            BringBack::Done { unreadable: 0 }
        });
        assert_eq!(emptied, Ok(()));
        assert!(bench.probe.is_closed());
        assert_eq!(
            calls,
            if bench.is_direct() {
                states.len() + 1
            } else {
                0
            }
        );
        if let Some(&first) = entries.first() {
            assert_holds(&bench.engine, first, Content::Text, 0, SwapIn::Compressed);
        }
        bench.end(entries);
    });
}

impl Bench {
    fn end_of_area_is_open(&self) {
        let entry = self.out(Content::Text, 99);
        self.engine.put(entry);
        assert!(!self.engine.areas()[0].closing);
    }
}

#[test]
fn a_directly_mapped_page_that_cannot_be_read_keeps_its_area() {
    let bench = Bench::new(Mapping::Direct, 0);
    let entry = bench.in_state(State::Area, 1);
    bench.probe.broken(true);
    let mut calls = 0;
    let refused = swap_off(&bench, &mut || {
        calls += 1;
        let unreadable = u64::from(read(&bench.engine, entry).is_err());
        BringBack::Done { unreadable }
    });
    assert_eq!(
        (refused, calls),
        (Err(SwapOffError::Unreadable { pages: 1 }), 1)
    );
    bench.probe.broken(false);
    bench.end_of_area_is_open();
    assert_holds(&bench.engine, entry, Content::Text, 1, SwapIn::Physical);
    bench.end([entry]);
}

#[test]
fn a_number_that_another_area_has_does_not_lead_old_entries_there() {
    let bench = Bench::new(Mapping::Direct, 0);
    let old = bench.in_state(State::Area, 1);
    let emptied = swap_off(&bench, &mut || {
        bench.engine.put(old);
        BringBack::Done { unreadable: 0 }
    });
    assert_eq!(emptied, Ok(()));
    assert_eq!(read(&bench.engine, old).unwrap_err(), SwapInError::Gone);
    assert_eq!(bench.engine.count(old), 0);
    bench.engine.put(old);
    assert_eq!(old.area(), AreaId::physical(0).expect("a number"));
}

/// Physical clusters have the tables for backing and groups only while they have directly mapped slots.
#[test]
fn physical_clusters_have_the_tables_of_mapped_slots_while_they_hold_some() {
    let (engine, _) = engine_with_areas(FRAMES, 0, &[4 * SLOTS_PER_CLUSTER as u64]);
    let id = group(&engine, "a", MANY);
    let table_bytes = || engine.areas()[0].table_bytes;
    let take = |mapping, seed| try_out(&engine, mapping, id, Content::Text, seed).expect("a slot");
    let write = |entry| {
        engine
            .write_out(entry, &mut engine.scratch())
            .expect("room")
    };
    let area = engine.areas.get(AreaId::physical(0).expect("a number"));
    let area = &area.expect("in use").area;
    let has_groups = || {
        let mut clusters = area.clusters().map(|(_, cluster)| cluster);
        clusters.any(|cluster| {
            cluster
                .lock()
                .is_some_and(|one| one.state.groups.has_table())
        })
    };
    let behind = take(Mapping::Virtual, 1);
    assert_eq!(write(behind), Written::Physical);
    let before = table_bytes();
    assert!(!has_groups());
    let direct = take(Mapping::Direct, 2);
    assert!(table_bytes() > before && has_groups());
    assert_eq!(write(direct), Written::Physical);
    assert_eq!(engine.stats().direct, 1);
    assert_holds(&engine, behind, Content::Text, 1, SwapIn::Physical);
    assert_holds(&engine, direct, Content::Text, 2, SwapIn::Physical);
    engine.put(direct);
    // The cluster is a CPU's current one and so keeps the tables. Closing the area puts the cluster away.
    let cancelled = engine.swap_off(engine.areas()[0].id, &mut engine.scratch(), &|| true);
    assert!(cancelled.is_err() && !has_groups());
    assert_eq!(table_bytes(), before);
    assert_holds(&engine, behind, Content::Text, 1, SwapIn::Physical);
    engine.put(behind);
    assert_eq!(charges(&engine, id), (0, 0));
}
