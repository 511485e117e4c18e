//! How many slots and clusters there can be.

/// Slots of a cluster: as many words as fit one table page. Few under the model checkers and in small-cluster tests, so
/// that clusters fill and empty often.
pub const SLOTS_PER_CLUSTER: usize = if cfg!(any(loom, shuttle, feature = "tests-small")) {
    4
} else if cfg!(miri) {
    16
} else {
    512
};

/// Sentinel for "no cluster": end of a list, no neighbour, no current cluster.
pub(crate) const NO_CLUSTER: u32 = CLUSTERS_MAX;

/// Whether to use few clusters. The model checkers make many directories, and Miri checks a borrow of an array element
/// by element.
pub(crate) const FEW_CLUSTERS: bool = cfg!(any(loom, shuttle, miri, feature = "tests-small"));

/// Width of a cluster's number.
pub(crate) const CLUSTER_BITS: u32 = if FEW_CLUSTERS { 6 } else { u32::BITS };

/// How many clusters an area can have: one for each number but the last, which means "none".
pub(crate) const CLUSTERS_MAX: u32 = u32::MAX >> (u32::BITS - CLUSTER_BITS);

/// How many slots an area can have: 8 PiB of pages, less 2 MiB. Fewer in builds for tests with small clusters.
pub const SLOTS_MAX: u64 = CLUSTERS_MAX as u64 * SLOTS_PER_CLUSTER as u64;
