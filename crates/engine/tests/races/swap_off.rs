//! Areas that go while pages come, leave and are read.

use super::{assert_empty, engine_with_area, in_an_area, out, read, spawn, swap_on, written};

use vswap_engine::{Engine, PAGE_BYTES, PRIORITY_DEFAULT, Scratch, WriteOutError, Written};

pub fn swap_off(engine: &Engine) {
    let id = engine.areas()[0].id;
    let result = engine.swap_off(id, &mut Scratch::new(), &|| false);
    assert_eq!(result, Ok(()));
}

pub fn assert_swapped_off(engine: &Engine) {
    assert!(engine.areas().is_empty());
    assert_eq!(engine.stats().physical, 0);
}

/// A page is read while it is moved out of its area.
pub fn bug_03_swap_off_against_swap_in() {
    let (engine, entry) = in_an_area(1);
    let mover = spawn(&engine, swap_off);
    assert_eq!(read(&engine, entry), Some(1));
    mover.join().expect("no panic");
    assert_swapped_off(&engine);
    assert_eq!(read(&engine, entry), Some(1));
    engine.put(entry);
    assert_empty(&engine);
}

/// The last reference of a page is put while it is moved out of its area.
pub fn swap_off_against_put() {
    let (engine, entry) = in_an_area(1);
    let mover = spawn(&engine, swap_off);
    engine.put(entry);
    mover.join().expect("no panic");
    assert_swapped_off(&engine);
    assert_eq!(read(&engine, entry), None);
    assert_empty(&engine);
}

/// A page takes a slot of an area that is just being closed. It stays in the area only if it came in time.
pub fn bug_02_swap_off_against_write_out() {
    let engine = engine_with_area(1, 1);
    engine.set_pool_limit(1 << 20);
    let entry = out(&engine, 1);
    let mover = spawn(&engine, swap_off);
    let result = engine.write_out(entry, &mut Scratch::new());
    assert!(
        matches!(result, Ok(Written::Physical | Written::Raw)),
        "{result:?}"
    );
    mover.join().expect("no panic");
    assert_swapped_off(&engine);
    assert_eq!(read(&engine, entry), Some(1));
    engine.put(entry);
    assert_empty(&engine);
}

/// An area goes and another one takes its number and its tables, while a page looks for a slot in the area that it
/// found first.
pub fn another_area_against_write_out() {
    let engine = engine_with_area(3, 4);
    let stays = written(&engine, 1);
    let entry = out(&engine, 2);
    let mover = spawn(&engine, |engine| {
        // What is in the area by then goes there.
        engine.set_pool_limit(1 << 20);
        swap_off(engine);
        swap_on(engine, 3, PRIORITY_DEFAULT);
    });
    let result = engine.write_out(entry, &mut Scratch::new());
    mover.join().expect("no panic");
    assert!(
        matches!(result, Ok(_) | Err(WriteOutError::Full)),
        "{result:?}"
    );
    assert_eq!(
        (read(&engine, stays), read(&engine, entry)),
        (Some(1), Some(2))
    );
    // The new area gives out each of its slots, and no other.
    engine.set_pool_limit(0);
    let mut more = Vec::new();
    while engine.areas()[0].used_bytes < 3 * PAGE_BYTES as u64 {
        more.push(written(&engine, 3));
        assert!(more.len() <= 3);
    }
    let last = out(&engine, 4);
    let refused = engine.write_out(last, &mut Scratch::new());
    assert_eq!(refused, Err(WriteOutError::Full));
    for entry in more.into_iter().chain([stays, entry, last]) {
        engine.put(entry);
    }
    assert_empty(&engine);
}
