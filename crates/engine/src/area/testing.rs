//! Helpers shared by tests of areas.

use super::*;
use crate::words::shadow::Shadow;
use crate::words::slot::Word;

/// A word that takes a slot.
pub(crate) fn used() -> Word {
    let zero = Word::shadow(Shadow::ABSENT).with_zero(true);
    zero.with_count_field(1)
}

pub(crate) fn free(area: &Area, entry: Entry) {
    let (cluster, _) = area.locate(entry).expect("allocated");
    area.release_slot(&mut cluster.lock().expect("used once"), entry);
}

/// Gives the next unused cluster the number `id`. A test can so reach the end of an area without using what is before
/// it. Numbers only go up.
pub(crate) fn place_next(area: &Area, id: u32) {
    let mut lists = area.lists.lock();
    assert!(lists.end <= id);
    lists.end = id;
}

/// Checks the area while nobody else uses it. Returns how many slots are in use.
pub(crate) fn assert_sound(area: &Area) -> u64 {
    assert_eq!(area.is_valid(), Ok(()));
    let used_in = |(id, record)| area.used_in(id, record).len() as u64;
    let in_use = area.clusters().map(used_in).sum();
    assert_eq!(area.stats().slots_used, in_use);
    in_use
}
