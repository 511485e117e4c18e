//! Races of directly mapped pages. When such a slot is freed and taken again, another page gets both the place and the
//! name.

use vswap_engine::{
    Engine, Entry, GroupId, GroupLimits, Mapping, PRIORITY_DEFAULT, Scratch, Shadow, WriteOutError,
};

use super::{Shared, assert_empty, engine, engine_with_area, read, spawn, swap_on};

/// A page of `byte` in the area's next free slot.
fn out(engine: &Engine, group: GroupId, byte: u8) -> Entry {
    let frame = engine.frame().expect("a free frame");
    let placed = engine.place(0, frame, group, Mapping::Direct);
    let mut placed = placed.map_err(|(_, error)| error).expect("a slot");
    placed.0.fill(byte);
    placed.publish(Shadow::ABSENT)
}

fn write(engine: &Engine, entry: Entry) {
    engine
        .write_out(entry, &mut Scratch::new())
        .expect("it has its slot");
}

/// An engine with a cold page of 1 in the pool. The page has the only slot of an area.
fn cold_in_the_pool() -> (Shared, Entry) {
    let engine = engine(1);
    swap_on(&engine, 1, PRIORITY_DEFAULT);
    let name = "a".parse().expect("a name");
    let mut limits = GroupLimits {
        writeback: false,
        ..GroupLimits::default()
    };
    let group = engine.add_group(&name, limits).expect("a new group");
    let entry = out(&engine, group, 1);
    write(&engine, entry);
    limits.writeback = true;
    engine.set_group_limits(group, limits).expect("it is there");
    engine.begin_generation();
    engine.begin_generation();
    (engine, entry)
}

fn write_back(engine: &Engine) -> usize {
    engine.write_back(0, 1, &mut Scratch::new()).pages
}

/// The last reference is put while the page goes from the pool to its slot. The slot is freed once.
pub fn direct_put_against_write_back() {
    let (engine, entry) = cold_in_the_pool();
    let writer = spawn(&engine, write_back);
    engine.put(entry);
    writer.join().expect("no panic");
    assert_eq!(read(&engine, entry), None);
    assert_eq!(engine.groups()[0].swap_bytes, 0);
    assert_empty(&engine);
}

/// A page is read while it goes from the pool to its slot.
pub fn direct_swap_in_against_write_back() {
    let (engine, entry) = cold_in_the_pool();
    let writer = spawn(&engine, write_back);
    assert_eq!(read(&engine, entry), Some(1));
    let pages = writer.join().expect("no panic");
    assert_eq!(engine.is_physical(entry), pages == 1);
    assert_eq!(read(&engine, entry), Some(1));
    engine.put(entry);
    assert_empty(&engine);
}

/// A page is read from its slot while it is put and another page takes the slot, and with it the name.
pub fn direct_swap_in_against_put_and_reuse() {
    let engine = engine_with_area(2, 2);
    let entry = out(&engine, GroupId::ROOT, 1);
    write(&engine, entry);
    let reuse = spawn(&engine, move |engine| {
        engine.put(entry);
        let fresh = out(engine, GroupId::ROOT, 2);
        write(engine, fresh);
        fresh
    });
    assert!(matches!(read(&engine, entry), None | Some(1 | 2)));
    let fresh = reuse.join().expect("no panic");
    assert_eq!(read(&engine, fresh), Some(2));
    engine.put(fresh);
    assert_empty(&engine);
}

/// Somebody who still has the name of a page that is gone writes it out, while its slot waits for another page's
/// content.
pub fn a_stale_name_against_a_slot_that_is_filled() {
    let engine = engine_with_area(1, 1);
    let entry = out(&engine, GroupId::ROOT, 1);
    engine.put(entry);
    let stale = spawn(&engine, move |engine| {
        let result = engine.write_out(entry, &mut Scratch::new());
        assert!(matches!(result, Ok(_) | Err(WriteOutError::NotCached)));
    });
    let frame = engine.frame().expect("a free frame");
    let placed = engine.place(0, frame, GroupId::ROOT, Mapping::Direct);
    let mut placed = placed.map_err(|(_, error)| error).expect("a slot");
    placed.0.fill(2);
    let fresh = placed.publish(Shadow::ABSENT);
    assert_eq!(fresh, entry, "the same name");
    stale.join().expect("no panic");
    assert_eq!(read(&engine, fresh), Some(2));
    engine.put(fresh);
    assert_empty(&engine);
}
