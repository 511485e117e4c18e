//! From a cluster's number to its record: a radix tree of three levels that only grows, read without a lock.
//!
//! Numbers are handed out from 0 up and reused, so leaves exist for the largest number of clusters ever in use and for
//! none in between. Leaves stay until the area is dropped: 0.125 bytes for each slot of the area's peak.

use crate::cluster::Cluster;
use crate::sync::{OncePtr, try_boxed_array};

/// The model checkers make many directories, and Miri checks a borrow of an array element by element.
const SMALL: bool = cfg!(any(loom, shuttle, miri, feature = "tests-small"));
/// 256 records are 16 KiB and name 512 MiB of pages: small enough for a run that swaps little.
const LEAF_BITS: u32 = if SMALL { 1 } else { 8 };
const MIDDLE_BITS: u32 = if SMALL { 2 } else { 12 };
const ROOT_BITS: u32 = if SMALL { 3 } else { 12 };
const LEAF_LEN: usize = 1 << LEAF_BITS;
const MIDDLE_LEN: usize = 1 << MIDDLE_BITS;
const ROOT_LEN: usize = 1 << ROOT_BITS;

/// How many clusters the directory can name.
const NAMED: u64 = 1 << (LEAF_BITS + MIDDLE_BITS + ROOT_BITS);
const _: () = assert!(SMALL || NAMED > crate::entry::CLUSTERS_MAX as u64);

type Leaf = [Cluster; LEAF_LEN];
type Middle = [OncePtr<Leaf>; MIDDLE_LEN];

#[derive(Debug)]
pub(crate) struct Directory {
    root: Box<[OncePtr<Middle>; ROOT_LEN]>,
}

impl Directory {
    pub(crate) fn new() -> Option<Directory> {
        Some(Directory {
            root: try_boxed_array(|_| OncePtr::new())?,
        })
    }

    /// The record of cluster `id`, if there ever was such a cluster.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&Cluster> {
        let id = id as usize;
        let middle = self.root.get(id >> (LEAF_BITS + MIDDLE_BITS))?.get()?;
        let leaf = middle[(id >> LEAF_BITS) % MIDDLE_LEN].get()?;
        Some(&leaf[id % LEAF_LEN])
    }

    /// The record of cluster `id`, made if need be; `None` if there is no memory or no such number.
    pub(crate) fn ensure(&self, id: u32) -> Option<&Cluster> {
        let id = id as usize;
        let middle = self
            .root
            .get(id >> (LEAF_BITS + MIDDLE_BITS))?
            .get_or_try_init(|| try_boxed_array(|_| OncePtr::new()))?;
        let leaf = middle[(id >> LEAF_BITS) % MIDDLE_LEN]
            .get_or_try_init(|| try_boxed_array(|_| Cluster::new()))?;
        Some(&leaf[id % LEAF_LEN])
    }

    /// Bytes of the directory and its records when numbers below `end` were used.
    pub(crate) fn bytes(end: u32) -> usize {
        let leaves = (end as usize).div_ceil(LEAF_LEN);
        size_of::<[OncePtr<Middle>; ROOT_LEN]>()
            + leaves.div_ceil(MIDDLE_LEN) * size_of::<Middle>()
            + leaves * size_of::<Leaf>()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_named_without_what_lies_between() {
        let directory = Directory::new().expect("memory");
        let last = u32::try_from(NAMED - 1).expect("32 bits").min(u32::MAX - 1);
        assert!(directory.get(last).is_none());
        let made: *const Cluster = directory.ensure(last).expect("memory");
        assert!(std::ptr::eq(made, directory.get(last).expect("made")));
        assert!(directory.get(0).is_none());
        assert!(directory.get(last / 2).is_none());
    }

    #[test]
    fn neighbours_across_leaves_are_different_records() {
        let directory = Directory::new().expect("memory");
        let end = u32::try_from(2 * LEAF_LEN + 1).expect("small");
        let mut records: Vec<*const Cluster> = (0..end)
            .map(|id| std::ptr::from_ref(directory.ensure(id).expect("memory")))
            .collect();
        records.sort_unstable();
        records.dedup();
        assert_eq!(records.len(), end as usize);
    }
}
