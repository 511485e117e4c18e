//! What tests of areas share.

use super::*;
use crate::words::shadow::Shadow;
use crate::words::slot::Word;

/// A word that takes a slot.
pub(crate) fn used() -> Word {
    Word::shadow(Shadow::ABSENT).with_count_field(1)
}

pub(crate) fn free(area: &Area, entry: Entry) {
    let (cluster, _) = area.locate(entry).expect("allocated");
    area.release_slot(&mut cluster.lock().expect("used once"), entry);
}

/// Has the next cluster that never was be number `id`, so that a test comes to the end of an area without what is
/// before it. Numbers go up.
pub(crate) fn place_next(area: &Area, id: u32) {
    let mut lists = area.lists.lock();
    assert!(lists.end <= id);
    lists.end = id;
}

/// Compares counters, runs and places with the words they are derived from, while nobody else is at the area, and
/// returns how many slots are in use.
pub(crate) fn assert_sound(area: &Area) -> u64 {
    let mut in_use = 0;
    for (id, record) in area.clusters() {
        let Some(cluster) = record.lock() else {
            continue;
        };
        let is_free = |slot: &usize| cluster.word(*slot) == Word::NULL;
        let free = (0..SLOTS_PER_CLUSTER).filter(is_free).count();
        assert_eq!(cluster.free_slots(), free, "cluster {id}");
        in_use += (SLOTS_PER_CLUSTER - free - area.bad_in(id).count()) as u64;
        let order = record.order();
        if free < SLOTS_PER_CLUSTER && !order.is_slot() {
            let starts = (0..SLOTS_PER_CLUSTER).step_by(order.slots());
            let runs =
                starts.filter(|&first| (first..first + order.slots()).all(|at| is_free(&at)));
            assert_eq!(
                usize::from(cluster.state.runs),
                runs.count(),
                "cluster {id}"
            );
        }
        let is_some_cpus = |of: Order| area.currents_of(of).any(|current| current == id);
        match cluster.place() {
            Place::Current => assert!(record.serves(order) && is_some_cpus(order)),
            Place::Stolen => assert!(free > 0 && is_some_cpus(Order::SLOT)),
            place => assert_eq!(place, area.place_for(&cluster), "cluster {id}"),
        }
    }
    assert_eq!(area.stats().slots_used, in_use);
    in_use
}
