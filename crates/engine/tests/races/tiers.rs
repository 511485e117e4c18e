//! Races for what groups may have of tiers.

use vswap_engine::{
    Engine, GroupId, GroupLimits, PAGE_BYTES, PRIORITY_DEFAULT, Scratch, TIERS_MAX, TierId,
    WriteOutError, Written,
};

use super::{
    Shared, assert_all_written, assert_empty, engine_with_pool, out_of, read, spawn, swap_off,
    swap_on_in,
};

/// A group that may have so many pages in the first tiers.
fn group(engine: &Engine, tier_pages: [usize; 2]) -> GroupId {
    let mut tier_max_bytes = [GroupLimits::NO_LIMIT; TIERS_MAX];
    for (max_bytes, pages) in tier_max_bytes.iter_mut().zip(tier_pages) {
        *max_bytes = (pages * PAGE_BYTES) as u64;
    }
    let limits = GroupLimits {
        tier_max_bytes,
        ..GroupLimits::default()
    };
    let name = "a".parse().expect("a good name");
    engine.add_group(&name, limits).expect("a new group")
}

/// Pages of the only group in the first two tiers. Checks that it is within its limits.
fn in_tiers(engine: &Engine) -> [u64; 2] {
    let figures = &engine.groups()[0];
    let limits = figures.limits.tier_max_bytes;
    let tiers = figures.tier_bytes.into_iter().zip(limits);
    assert!(tiers.into_iter().all(|(bytes, max)| bytes <= max));
    [0, 1].map(|tier| figures.tier_bytes[tier] / PAGE_BYTES as u64)
}

/// An engine without a pool and with an area of `slots` slots in each of these tiers, the highest first.
fn engine_with_tiers(frames: usize, slots: usize, tiers: [usize; 2]) -> Shared {
    let engine = engine_with_pool(frames, 0);
    for (tier, above) in tiers.into_iter().zip([1, 0]) {
        let tier = TierId::new(tier).expect("few");
        swap_on_in(&engine, slots, PRIORITY_DEFAULT + above, tier);
    }
    engine
}

/// Two pages of a group are written out when it may have only one in the higher tier. Both go, one of them past it.
pub fn two_writers_at_the_limit_of_a_tier() {
    let engine = engine_with_tiers(2, 2, [0, 1]);
    let id = group(&engine, [1, 1]);
    let entries = [1, 2].map(|byte| out_of(&engine, id, byte).expect("a slot"));
    let write = |engine: &Engine, entry| {
        let result = engine.write_out(entry, &mut Scratch::new());
        in_tiers(engine);
        // While the other is just trying the only tier left, there may be no room for a moment.
        assert!(matches!(
            result,
            Ok(Written::Physical) | Err(WriteOutError::Limited)
        ));
        result.is_ok()
    };
    let other = spawn(&engine, move |engine| write(engine, entries[0]));
    let mine = write(&engine, entries[1]);
    let other = other.join().expect("no panic");
    assert!(mine || other);
    assert!(mine || write(&engine, entries[1]));
    assert!(other || write(&engine, entries[0]));
    assert_eq!(in_tiers(&engine), [1, 1]);
    assert_all_written(&engine, 1, entries);
    assert_eq!(in_tiers(&engine), [0, 0]);
    assert_empty(&engine);
}

/// A page is put while its area goes, and the page with it to an area of `tiers[1]`. All charges are taken back once.
fn moves_against_put(tiers: [usize; 2]) {
    let engine = engine_with_tiers(1, 1, tiers);
    let id = group(&engine, [1, 1]);
    let entry = out_of(&engine, id, 1).expect("a slot");
    let written = engine.write_out(entry, &mut Scratch::new());
    assert_eq!(written, Ok(Written::Physical));
    let mover = spawn(&engine, swap_off);
    engine.put(entry);
    mover.join().expect("no panic");
    assert_eq!(in_tiers(&engine), [0, 0]);
    assert_eq!(read(&engine, entry), None);
    assert_eq!(engine.areas().len(), 1);
    assert_empty(&engine);
}

pub fn a_page_leaves_its_tier_against_put() {
    moves_against_put([0, 1]);
}

pub fn a_page_stays_in_its_tier_against_put() {
    moves_against_put([0, 0]);
}

/// An area goes, and one of another tier takes its number, while a page looks for a slot in the area that it found
/// first. It is charged for the tier in which it gets one.
#[cfg(shuttle)]
pub fn another_area_of_another_tier_against_write_out() {
    let engine = engine_with_pool(1, 0);
    swap_on_in(&engine, 1, PRIORITY_DEFAULT, TierId::default());
    let id = group(&engine, [1, 1]);
    // From here on the CPU goes to this area first.
    let before = out_of(&engine, id, 2).expect("a slot");
    let written = engine.write_out(before, &mut Scratch::new());
    assert_eq!(written, Ok(Written::Physical));
    engine.put(before);
    let entry = out_of(&engine, id, 1).expect("a slot");
    let exchanger = spawn(&engine, |engine| {
        // What is in the area by then goes there.
        engine.set_pool_limit(1 << 20);
        swap_off(engine);
        swap_on_in(engine, 1, PRIORITY_DEFAULT, TierId::new(1).expect("few"));
    });
    let result = engine.write_out(entry, &mut Scratch::new());
    exchanger.join().expect("no panic");
    let physical = u64::from(engine.is_physical(entry));
    let tiers = in_tiers(&engine);
    assert_eq!(tiers[0], 0);
    assert_eq!(tiers[1], physical, "{result:?}");
    assert_eq!(read(&engine, entry), Some(1));
    engine.put(entry);
    assert_eq!(in_tiers(&engine), [0, 0]);
    assert_empty(&engine);
}
