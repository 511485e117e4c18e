//! Races for what groups may have: charges, and groups that go.

use vswap_engine::{
    AllocError, Engine, Entry, GroupError, GroupId, GroupLimits, PAGE_BYTES, Scratch,
    WriteOutError, Written,
};

use super::{
    assert_all_written, assert_empty, assert_swapped_off, engine, engine_with_area, out_of, read,
    spawn, swap_off,
};

/// Makes a group that may have this many pages in areas.
fn group(engine: &Engine, name: &str, swap_max_pages: usize) -> GroupId {
    let limits = GroupLimits {
        swap_max_bytes: (swap_max_pages * PAGE_BYTES) as u64,
        ..GroupLimits::default()
    };
    let name = name.parse().expect("a good name");
    engine.add_group(&name, limits).expect("a new group")
}

/// What is charged to each group: pages in areas and bytes in the pool. Checks that none is above its limit.
fn charges(engine: &Engine) -> Vec<(u64, u64)> {
    let figures = engine.groups();
    let charged = figures.iter().map(|group| {
        assert!(group.swap_bytes <= group.limits.swap_max_bytes);
        assert!(group.pool_bytes <= group.limits.pool_max_bytes);
        (group.swap_bytes / PAGE_BYTES as u64, group.pool_bytes)
    });
    charged.collect()
}

/// Writes a page out and checks the limits. False if they were in the way.
fn write_within_limits(engine: &Engine, entry: Entry) -> bool {
    let result = engine.write_out(entry, &mut Scratch::new());
    charges(engine);
    match result {
        Ok(Written::Physical) => true,
        Err(WriteOutError::Limited) => false,
        other => panic!("{other:?}"),
    }
}

/// Two pages of a group are written out when it may have only one more in areas. Exactly one goes.
pub fn two_writers_at_a_groups_limit() {
    let engine = engine_with_area(2, 2);
    let id = group(&engine, "a", 1);
    let entries = [1, 2].map(|byte| out_of(&engine, id, byte).expect("a slot"));
    let other = spawn(&engine, move |engine| {
        write_within_limits(engine, entries[0])
    });
    let mine = write_within_limits(&engine, entries[1]);
    let other = other.join().expect("no panic");
    assert!(mine ^ other, "exactly one goes");
    assert_eq!(charges(&engine), [(1, 0)]);
    assert_all_written(&engine, 1, entries);
    assert_eq!(charges(&engine), [(0, 0)]);
    assert_empty(&engine);
}

/// The same for two groups, with the limit on the group around them.
pub fn two_groups_at_the_limit_of_the_one_they_are_in() {
    let engine = engine_with_area(2, 2);
    group(&engine, "a", 1);
    let entries = [1, 2].map(|byte: u8| {
        let id = group(&engine, &format!("a/{byte}"), 2);
        out_of(&engine, id, byte).expect("a slot")
    });
    let other = spawn(&engine, move |engine| {
        write_within_limits(engine, entries[0])
    });
    let mine = write_within_limits(&engine, entries[1]);
    let other = other.join().expect("no panic");
    assert!(mine ^ other, "exactly one goes");
    let expected = [(1, 0), (other.into(), 0), (mine.into(), 0)];
    assert_eq!(charges(&engine), expected);
    assert_all_written(&engine, 1, entries);
    assert_eq!(charges(&engine), [(0, 0); 3]);
    assert_empty(&engine);
}

/// A page of a group at its limit is written out while another of its pages is put, which makes room.
pub fn write_out_at_a_groups_limit_against_put() {
    let engine = engine_with_area(2, 2);
    let id = group(&engine, "a", 1);
    let entries = [1, 2].map(|byte| out_of(&engine, id, byte).expect("a slot"));
    assert!(write_within_limits(&engine, entries[0]));
    let put = spawn(&engine, move |engine| engine.put(entries[0]));
    let early = write_within_limits(&engine, entries[1]);
    put.join().expect("no panic");
    // By now at the latest, what was uncharged is available.
    assert!(early || write_within_limits(&engine, entries[1]));
    assert_eq!(charges(&engine), [(1, 0)]);
    assert_eq!(read(&engine, entries[1]), Some(2));
    engine.put(entries[1]);
    assert_eq!(charges(&engine), [(0, 0)]);
    assert_empty(&engine);
}

/// A group is removed while a page is added to it. One of the two is refused.
pub fn removing_a_group_against_swap_out() {
    let engine = engine(1);
    let id = group(&engine, "a", 1);
    let remover = spawn(&engine, move |engine| engine.remove_group(id));
    let swapped_out = out_of(&engine, id, 1);
    let removed = remover.join().expect("no panic");
    match swapped_out {
        Ok(entry) => {
            assert!(matches!(removed, Err(GroupError::InUse { .. })));
            engine.put(entry);
            assert_eq!(engine.remove_group(id), Ok(()));
        }
        Err(error) => assert_eq!((error, removed), (AllocError::NoGroup, Ok(()))),
    }
    assert_empty(&engine);
}

/// A group is removed and its number given to another while its last page is put.
pub fn removing_a_group_against_put() {
    let engine = engine(1);
    let id = group(&engine, "a", 1);
    let entry = out_of(&engine, id, 1).expect("a slot");
    engine.write_out(entry, &mut Scratch::new()).expect("room");
    let put = spawn(&engine, move |engine| engine.put(entry));
    let removed = engine.remove_group(id);
    if removed.is_ok() {
        group(&engine, "b", 1);
        assert_eq!(charges(&engine), [(0, 0)]);
    }
    put.join().expect("no panic");
    assert_eq!(charges(&engine), [(0, 0)]);
    assert!(removed.is_ok() || engine.remove_group(id).is_ok());
    assert_empty(&engine);
}

/// A page of a group is put while it is moved from an area to the pool. Its charge is taken back once.
pub fn swap_off_of_a_groups_page_against_put() {
    let engine = engine_with_area(1, 1);
    let id = group(&engine, "a", 1);
    let entry = out_of(&engine, id, 1).expect("a slot");
    assert!(write_within_limits(&engine, entry));
    engine.set_pool_limit(1 << 20);
    let mover = spawn(&engine, swap_off);
    engine.put(entry);
    mover.join().expect("no panic");
    assert_eq!(charges(&engine), [(0, 0)]);
    assert_swapped_off(&engine);
    assert_empty(&engine);
}
