//! The place where a cluster belongs that is nobody's current one.

use crate::cluster::{ClusterGuard, Place};
use crate::words::geometry::SLOTS_PER_CLUSTER;

/// A cluster of order 0 with at least this many free slots is nonfull. Searching such a cluster takes 8 words for each
/// slot found. Fuller clusters that wait cost at most an eighth of the table memory.
pub(crate) const NONFULL_FREE_MIN: usize = if SLOTS_PER_CLUSTER >= 16 {
    SLOTS_PER_CLUSTER / 8
} else {
    2
};

pub(super) fn is_crowded(cluster: &ClusterGuard<'_>) -> bool {
    cluster.free_slots() < NONFULL_FREE_MIN
}

/// The place where a cluster belongs that is nobody's current one.
pub(super) fn place_of(cluster: &ClusterGuard<'_>) -> Place {
    let has_run = if cluster.order().is_slot() {
        !is_crowded(cluster)
    } else {
        cluster.state.runs > 0
    };
    match cluster.free_slots() {
        0 => Place::Full,
        SLOTS_PER_CLUSTER => Place::Free,
        _ if has_run => Place::Nonfull,
        _ => Place::Frag,
    }
}
