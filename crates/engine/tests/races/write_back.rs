//! Races of pages on their way from the pool to an area.

#[cfg(shuttle)]
use vswap_engine::Written;
use vswap_engine::{Engine, Entry, PRIORITY_DEFAULT, Scratch, WriteBack};

use super::{
    Shared, assert_empty, assert_swapped_off, engine, read, spawn, swap_off, swap_on, written,
};
#[cfg(shuttle)]
use super::{assert_all_written, out};

/// An engine with cold pages in the pool, made of 1, 2 and so on, and an area with room for them.
fn cold_in_the_pool(pages: u8) -> (Shared, Vec<Entry>) {
    let engine = engine(1);
    let entries = (1..=pages).map(|byte| written(&engine, byte)).collect();
    swap_on(&engine, usize::from(pages), PRIORITY_DEFAULT);
    // Old enough for the hand to take them on its first lap.
    engine.begin_generation();
    engine.begin_generation();
    (engine, entries)
}

fn write_back(engine: &Engine, pages: usize) -> WriteBack {
    engine.write_back(0, pages, &mut Scratch::new())
}

/// Checks that each page is either in the pool or in the area, not in both.
fn assert_in_one_place(engine: &Engine, pages: u64) {
    let stats = engine.stats();
    assert_eq!(stats.physical + stats.raw, pages);
}

/// A page is read while it goes from the pool to the area.
pub fn write_back_against_swap_in() {
    let (engine, entries) = cold_in_the_pool(1);
    let writer = spawn(&engine, |engine| write_back(engine, 1));
    assert_eq!(read(&engine, entries[0]), Some(1));
    let done = writer.join().expect("no panic");
    assert_in_one_place(&engine, 1);
    assert_eq!(engine.is_physical(entries[0]), done.pages == 1);
    assert_eq!(read(&engine, entries[0]), Some(1));
    engine.put(entries[0]);
    assert_empty(&engine);
}

/// The last reference of a page is put while it goes from the pool to the area.
pub fn write_back_against_put() {
    let (engine, entries) = cold_in_the_pool(1);
    let entry = entries[0];
    let writer = spawn(&engine, |engine| write_back(engine, 1));
    engine.put(entry);
    writer.join().expect("no panic");
    assert_eq!(read(&engine, entry), None);
    assert_empty(&engine);
}

/// A fork shares a page that goes from the pool to the area.
pub fn write_back_against_dup() {
    let (engine, entries) = cold_in_the_pool(1);
    let entry = entries[0];
    let writer = spawn(&engine, |engine| write_back(engine, 1));
    engine.dup(entry).expect("in use");
    engine.put(entry);
    // Nobody has read the page, so it goes.
    assert_eq!(writer.join().expect("no panic").pages, 1);
    assert_eq!((engine.count(entry), read(&engine, entry)), (1, Some(1)));
    assert!(engine.is_physical(entry));
    engine.put(entry);
    assert_empty(&engine);
}

/// The only area goes while a page is on its way there. The page stays in the pool or comes back to it.
pub fn write_back_against_swap_off() {
    let (engine, entries) = cold_in_the_pool(1);
    let mover = spawn(&engine, swap_off);
    let done = write_back(&engine, 1);
    assert_eq!(done.pages + done.homeless, 1, "{done:?}");
    mover.join().expect("no panic");
    assert_swapped_off(&engine);
    assert_eq!(read(&engine, entries[0]), Some(1));
    engine.put(entries[0]);
    assert_empty(&engine);
}

/// Two threads share the work. No page goes twice.
#[cfg(shuttle)]
pub fn two_threads_write_back() {
    let (engine, entries) = cold_in_the_pool(3);
    let other = spawn(&engine, |engine| write_back(engine, 2).pages);
    let mine = write_back(&engine, 2).pages;
    let other = other.join().expect("no panic");
    assert_in_one_place(&engine, 3);
    assert_eq!(engine.stats().physical, (mine + other) as u64);
    assert_all_written(&engine, 1, entries);
    assert_empty(&engine);
}

/// All at once, and another page takes the slot of a page that was put.
#[cfg(shuttle)]
pub fn write_back_against_swap_in_and_put() {
    let (engine, entries) = cold_in_the_pool(2);
    let (first, second) = (entries[0], entries[1]);
    let writer = spawn(&engine, |engine| write_back(engine, 2));
    let put = spawn(&engine, move |engine| {
        engine.put(first);
        let fresh = out(engine, 3);
        let result = engine.write_out(fresh, &mut Scratch::new());
        assert!(
            matches!(result, Ok(Written::Raw | Written::Physical)),
            "{result:?}"
        );
        fresh
    });
    assert!(matches!(read(&engine, first), None | Some(1 | 3)));
    assert_eq!(read(&engine, second), Some(2));
    writer.join().expect("no panic");
    let fresh = put.join().expect("no panic");
    assert_in_one_place(&engine, 2);
    assert_all_written(&engine, 2, [second, fresh]);
    assert_empty(&engine);
}
