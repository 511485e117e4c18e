//! On the way back: what a reader finds while slots, frames and flags change owners.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vswap_engine::{
    Engine, Entry, Lookup, SLOTS_PER_CLUSTER, Shadow, SwapIn, SwapInError, WriteOutError, Written,
};

use crate::support::{assert_empty, engine, engine_with_area, fill, out, read, seed_of};

/// The mistake: the stored bytes are given up once they were read, and then the page into which they were read is
/// thrown away. Here reading takes nothing away, wherever the page is, and neither does a read that fails.
#[test]
fn bug_07_a_page_can_be_read_until_its_last_reference_is_put() {
    let (engine, probe) = engine_with_area(3, 4, &[]);
    let mut scratch = engine.scratch();
    let entries = [out(&engine, 0), out(&engine, 1), out(&engine, 2)];
    let write = |at: usize, scratch: &mut _| engine.write_out(entries[at], scratch);
    assert_eq!(write(0, &mut scratch), Ok(Written::Zero));
    assert_eq!(write(1, &mut scratch), Ok(Written::Physical));
    let expect_all = |cached| {
        for _ in 0..2 {
            assert_eq!(read(&engine, entries[0]), Ok((SwapIn::Zero, 0)));
            assert_eq!(read(&engine, entries[1]), Ok((SwapIn::Physical, 1)));
            assert_eq!(read(&engine, entries[2]), Ok((cached, 2)));
        }
    };
    expect_all(SwapIn::Cached);
    engine.set_pool_limit(1 << 20);
    assert!(write(2, &mut scratch).is_ok());
    expect_all(SwapIn::Compressed);
    probe.broken(true);
    let unreadable = read(&engine, entries[1]);
    assert!(matches!(unreadable, Err(SwapInError::Unreadable { .. })));
    probe.broken(false);
    expect_all(SwapIn::Compressed);
    entries.into_iter().for_each(|entry| engine.put(entry));
    assert_empty(&engine);
}

/// The mistake: a reader without a lock finds an entry whose parts (content, age) are set only after it was published.
/// The readers here are told of no entry: they try all possible names.
#[test]
fn bug_13_what_a_name_leads_to_is_there_before_the_name() {
    const NAMES: u64 = 2 * SLOTS_PER_CLUSTER as u64;
    let rounds: u64 = if cfg!(miri) { 20 } else { 20_000 };
    let engine = engine(4, 1 << 20);
    let first = out(&engine, 1);
    engine.put(first);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let names = (first.raw()..first.raw() + NAMES).filter_map(Entry::from_raw);
                    names.for_each(|name| probe(&engine, name));
                }
            });
        }
        let mut scratch = engine.scratch();
        for seed in 2..rounds {
            let entry = out(&engine, seed);
            if seed % 2 == 0 {
                engine.write_out(entry, &mut scratch).expect("room");
            }
            engine.put(entry);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_empty(&engine);
}

/// A page that is found is whole. If it stays for a moment, its age is its own.
fn probe(engine: &Engine, name: Entry) {
    let Ok((_, seed)) = read(engine, name) else {
        return;
    };
    let age = engine.shadow(name);
    if read(engine, name).is_ok_and(|(_, again)| again == seed) {
        assert_eq!(age, Some(Shadow::truncated(seed)));
    }
}

/// The mistake: a slot is freed while its page is in the cache and somebody holds it. Here the frame stays with the
/// reader.
#[test]
fn bug_23_a_held_frame_outlives_its_slot() {
    let engine = engine(1, 1 << 20);
    let entry = out(&engine, 1);
    let Lookup::Cached(held) = engine.lookup(entry) else {
        panic!("it was swapped out just now");
    };
    engine.put(entry);
    assert_eq!(engine.stats().slots_used, 0);
    assert!(engine.frame().is_none(), "the only frame is held");
    assert_eq!(seed_of(&held), 1);
    drop(held);
    let mut frame = engine.frame().expect("free now");
    fill(&mut frame, 2);
    drop(frame);
    assert_empty(&engine);
}

/// The mistake: a slot that is pinned for a moment is neither free nor cached, whoever meets it waits in a loop, and
/// allocation never gives it out again. Here the last reference goes while the slot is read, and the slot is free right
/// after.
#[test]
fn bug_26_a_slot_that_was_pinned_is_given_out_again() {
    const SLOTS: u64 = 6;
    let (engine, probe) = engine_with_area(2, SLOTS, &[]);
    let mut scratch = engine.scratch();
    for round in 0..3 * SLOTS {
        let entry = out(&engine, round + 1);
        assert_eq!(engine.write_out(entry, &mut scratch), Ok(Written::Physical));
        let inside = Arc::clone(&engine);
        probe.on_read(move || {
            inside.put(entry);
            // Neither waits for the reader: the name is gone at once.
            assert_eq!(inside.count(entry), 0);
            assert_eq!(read(&inside, entry), Err(SwapInError::Gone));
            inside.put(entry);
        });
        assert_eq!(read(&engine, entry), Ok((SwapIn::Physical, round + 1)));
        assert_empty(&engine);
    }
    let entries: Vec<Entry> = (0..SLOTS)
        .map(|seed| {
            let entry = out(&engine, seed + 1);
            assert_eq!(engine.write_out(entry, &mut scratch), Ok(Written::Physical));
            entry
        })
        .collect();
    let more = out(&engine, SLOTS + 1);
    assert_eq!(
        engine.write_out(more, &mut scratch),
        Err(WriteOutError::Full)
    );
    engine.put(more);
    entries.into_iter().for_each(|entry| engine.put(entry));
    assert_empty(&engine);
}

/// The mistake: a slot keeps the mark "all zeros" of its former page, and the new page reads as zeros.
#[test]
fn bug_29_no_mark_of_zeros_is_left_from_the_page_before() {
    let engine = engine(1, 1 << 20);
    let mut scratch = engine.scratch();
    for round in 1..=2 * SLOTS_PER_CLUSTER as u64 {
        let zero = out(&engine, 0);
        assert_eq!(engine.write_out(zero, &mut scratch), Ok(Written::Zero));
        assert_eq!(engine.stats().zero, 1);
        engine.put(zero);
        let mut reused = out(&engine, round);
        // The next free slot is another one. Go round until the one that held zeros is next.
        for _ in 0..SLOTS_PER_CLUSTER {
            if reused == zero {
                break;
            }
            engine.put(reused);
            reused = out(&engine, round);
        }
        assert_eq!(reused, zero);
        assert_eq!(engine.stats().zero, 0);
        assert_eq!(read(&engine, reused), Ok((SwapIn::Cached, round)));
        assert!(engine.write_out(reused, &mut scratch).is_ok());
        assert_eq!(read(&engine, reused), Ok((SwapIn::Compressed, round)));
        engine.put(reused);
        if SLOTS_PER_CLUSTER > 16 && round == 4 {
            break;
        }
    }
    assert_empty(&engine);
}
