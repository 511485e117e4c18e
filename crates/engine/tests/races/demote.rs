//! Races of pages on their way from an area to one of lower priority.

use vswap_engine::{Engine, Entry, PRIORITY_DEFAULT, Scratch};

#[cfg(shuttle)]
use super::swap_off;
use super::{Shared, assert_empty, engine_with_pool, read, spawn, swap_on, written};

/// An engine with a page, made of 1, in an area without room for another, and an area of lower priority with room.
fn page_in_the_higher() -> (Shared, Entry) {
    let engine = engine_with_pool(1, 0);
    swap_on(&engine, 1, PRIORITY_DEFAULT + 1);
    // loom does not get through with another slot for whoever comes meanwhile.
    let slots = if cfg!(loom) { 1 } else { 2 };
    swap_on(&engine, slots, PRIORITY_DEFAULT);
    let entry = written(&engine, 1);
    (engine, entry)
}

fn demote(engine: &Engine) -> usize {
    engine.demote(0, 1, 1, &mut Scratch::new()).pages
}

/// A page is read while it goes down.
pub fn demotion_against_swap_in() {
    let (engine, entry) = page_in_the_higher();
    let mover = spawn(&engine, demote);
    assert_eq!(read(&engine, entry), Some(1));
    let moved = mover.join().expect("no panic");
    assert_eq!(engine.lies_low(entry), moved == 1);
    assert_eq!(engine.stats().physical, 1);
    assert_eq!(read(&engine, entry), Some(1));
    engine.put(entry);
    assert_empty(&engine);
}

/// The last reference of a page is put while the page goes down, and another page takes its slot.
#[cfg(shuttle)]
pub fn demotion_against_put() {
    let (engine, entry) = page_in_the_higher();
    let mover = spawn(&engine, demote);
    engine.put(entry);
    let fresh = written(&engine, 2);
    mover.join().expect("no panic");
    assert_eq!(read(&engine, fresh), Some(2));
    assert_eq!(engine.stats().physical, 1);
    engine.put(fresh);
    assert_empty(&engine);
}

/// The area goes while a page is on its way from it to the one below.
#[cfg(shuttle)]
pub fn demotion_against_swap_off() {
    let (engine, entry) = page_in_the_higher();
    let mover = spawn(&engine, swap_off);
    demote(&engine);
    mover.join().expect("no panic");
    assert_eq!((engine.areas().len(), engine.stats().physical), (1, 1));
    assert_eq!(read(&engine, entry), Some(1));
    engine.put(entry);
    assert_empty(&engine);
}
