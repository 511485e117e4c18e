//! Mistakes about pages that go from the pool to an area.

use std::sync::Arc;

use vswap_engine::{Engine, Entry, SwapIn, WriteBack};

use crate::support::{Probe, assert_empty, engine_with_area, out, read};

const POOL_BYTES: u64 = 1 << 20;

/// Pages of seeds 1 and up in the pool, with an area of `slots` slots behind it.
fn in_the_pool(pages: u64, slots: u64, bad: &[u64]) -> (Arc<Engine>, Probe, Vec<Entry>) {
    let (engine, probe) = engine_with_area(4, slots, bad);
    engine.set_pool_limit(POOL_BYTES);
    let entries = (1..=pages).map(|seed| stored(&engine, seed)).collect();
    (engine, probe, entries)
}

fn stored(engine: &Engine, seed: u64) -> Entry {
    let entry = out(engine, seed);
    let written = engine.write_out(entry, &mut engine.scratch());
    written.expect("room");
    entry
}

fn write_back(engine: &Engine, pages: usize) -> WriteBack {
    engine.write_back(0, pages, &mut engine.scratch())
}

/// The mistake: after a page was chosen and before it is written, the slot is freed and taken by another page, whose
/// bytes are replaced by those of the first.
#[test]
fn bug_05_a_slot_that_is_written_back_is_not_given_to_another_page() {
    let (engine, probe, entries) = in_the_pool(1, 4, &[]);
    let (engine_too, entry) = (Arc::clone(&engine), entries[0]);
    let (send, receive) = std::sync::mpsc::channel();
    probe.on_write(move || {
        engine_too.put(entry);
        let fresh = [2, 3].map(|seed| stored(&engine_too, seed));
        assert!(!fresh.contains(&entry), "its page is still on its way");
        send.send(fresh).expect("the test waits");
    });
    assert_eq!(write_back(&engine, 1).warm, 1);
    let fresh = receive.recv().expect("the hook has run");
    assert!(read(&engine, entry).is_err());
    for (entry, seed) in fresh.into_iter().zip(2..) {
        assert_eq!(read(&engine, entry), Ok((SwapIn::Compressed, seed)));
        engine.put(entry);
    }
    assert_empty(&engine);
}

/// The mistake: the pool's entry of the oldest page is used after somebody else freed it, or is freed twice.
#[test]
fn bug_06_a_page_that_is_put_while_it_is_written_back_is_freed_once() {
    let (engine, probe, entries) = in_the_pool(3, 8, &[]);
    let (engine_too, entry) = (Arc::clone(&engine), entries[1]);
    probe.on_write(move || engine_too.put(entry));
    let done = write_back(&engine, 3);
    assert_eq!((done.pages, done.warm), (2, 1));
    let stats = engine.stats();
    assert_eq!(
        (stats.physical, stats.compressed, stats.slots_used),
        (2, 0, 2)
    );
    for (at, seed) in [(0, 1), (2, 3)] {
        assert_eq!(read(&engine, entries[at]), Ok((SwapIn::Physical, seed)));
        engine.put(entries[at]);
    }
    assert_empty(&engine);
}

/// The mistake: one of the ways out of writing back forgets to release the page, and it can never be moved or freed
/// again.
#[test]
fn bug_08_every_way_out_of_writing_back_lets_go() {
    let (engine, probe, entries) = in_the_pool(2, 8, &[]);
    let stays = |engine: &Engine| {
        for (&entry, seed) in entries.iter().zip(1..) {
            assert_eq!(read(engine, entry), Ok((SwapIn::Compressed, seed)));
        }
        assert_eq!(engine.stats().physical, 0, "no slot is kept");
    };
    // The page was read meanwhile, so it is warm.
    let (engine_too, both) = (Arc::clone(&engine), entries.clone());
    probe.on_write(move || {
        for (&entry, seed) in both.iter().zip(1..) {
            assert_eq!(read(&engine_too, entry), Ok((SwapIn::Compressed, seed)));
        }
    });
    assert_eq!(write_back(&engine, 2).warm, 2);
    stays(&engine);
    probe.broken(true);
    assert_eq!(write_back(&engine, 2).refused, 2);
    stays(&engine);
    // The area is passed over now.
    assert_eq!(write_back(&engine, 2).homeless, 2);
    stays(&engine);
    entries.iter().for_each(|&entry| engine.put(entry));
    assert_empty(&engine);
}

/// The mistake: one of several pages written together fails. The slots of it and those behind it stay taken, or their
/// bytes in the pool are gone.
#[test]
fn bug_09_writing_back_that_fails_midway_leaves_nothing_behind() {
    // The bad slot divides six pages into two requests. The second starts behind slot 3.
    let (engine, probe, entries) = in_the_pool(6, 8, &[3]);
    probe.ends_at(4);
    let done = write_back(&engine, 6);
    assert_eq!(done.pages + done.refused, 6);
    assert!(done.pages > 0 && done.refused > 0, "{done:?}");
    let stats = engine.stats();
    let (written, stayed) = (done.pages as u64, done.refused as u64);
    assert_eq!((stats.physical, stats.compressed), (written, stayed));
    for (&entry, seed) in entries.iter().zip(1..) {
        let is_written = engine.is_physical(entry);
        let from = [SwapIn::Compressed, SwapIn::Physical][usize::from(is_written)];
        assert_eq!(read(&engine, entry), Ok((from, seed)));
        engine.put(entry);
    }
    assert_empty(&engine);
}

/// The mistake: the shrinker goes round for ever where there is nothing that it can take.
#[test]
fn bug_11_a_hand_that_finds_nothing_comes_to_an_end() {
    let (engine, probe, entries) = in_the_pool(0, 8, &[]);
    assert!(entries.is_empty());
    assert_eq!(write_back(&engine, usize::MAX), WriteBack::default());
    let cached = out(&engine, 1);
    let one = stored(&engine, 2);
    // While the only page is on its way, nothing else can be had.
    let engine_too = Arc::clone(&engine);
    probe.on_write(move || {
        assert_eq!(write_back(&engine_too, usize::MAX), WriteBack::default());
    });
    assert_eq!(write_back(&engine, usize::MAX).pages, 1);
    assert_eq!(read(&engine, one), Ok((SwapIn::Physical, 2)));
    engine.put(one);
    engine.put(cached);
    assert_empty(&engine);
}

/// The mistake: where there is no slot the shrinker tries on and on, or slots that it took stay taken.
#[test]
fn bug_34_writing_back_without_slots_is_an_answer() {
    let (engine, _, entries) = in_the_pool(4, 2, &[]);
    let done = write_back(&engine, usize::MAX);
    assert_eq!((done.pages, done.homeless), (2, 2));
    for _ in 0..3 {
        assert_eq!(write_back(&engine, usize::MAX).pages, 0);
    }
    let stats = engine.stats();
    assert_eq!((stats.physical, stats.compressed), (2, 2));
    for (&entry, seed) in entries.iter().zip(1..) {
        let from = [SwapIn::Physical, SwapIn::Compressed][usize::from(seed > 2)];
        assert_eq!(read(&engine, entry), Ok((from, seed)));
        engine.put(entry);
    }
    assert_empty(&engine);
}
