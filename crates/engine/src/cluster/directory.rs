//! Finds a cluster's record by its number, in a radix tree of three levels. The tree only grows, and reading it takes
//! no lock.
//!
//! Numbers are handed out from 0 up and reused, so there are leaves for the largest number of clusters ever in use.
//! Leaves stay until the area is dropped: 0.125 bytes for each slot of the area's peak. Numbers need not be dense: a
//! gap between two clusters has no leaf and costs nothing, and a walk over all records skips it.

use std::ops::Range;
// A figure for people, so the model checkers need not model it.
use std::sync::atomic::AtomicUsize as UnmodelledUsize;

use super::record::Cluster;
use crate::base::sync::{OncePtr, Ordering, try_boxed_array};
use crate::words::geometry::{CLUSTER_BITS, FEW_CLUSTERS, NO_CLUSTER};

/// 256 records are 16 KiB and name 512 MiB of pages. That is small enough for a run that swaps little.
const LEAF_BITS: u32 = if FEW_CLUSTERS { 1 } else { 8 };
const MIDDLE_BITS: u32 = if FEW_CLUSTERS { 2 } else { 12 };
const ROOT_BITS: u32 = if FEW_CLUSTERS { 3 } else { 12 };
const LEAF_LEN: usize = 1 << LEAF_BITS;
const MIDDLE_LEN: usize = 1 << MIDDLE_BITS;
const ROOT_LEN: usize = 1 << ROOT_BITS;

/// Number of clusters that one middle level leads to.
const MIDDLE_NAMES: usize = MIDDLE_LEN * LEAF_LEN;

// Every cluster has a place, and so has the number that means "none".
const _: () = assert!(LEAF_BITS + MIDDLE_BITS + ROOT_BITS == CLUSTER_BITS);

type Leaf = [Cluster; LEAF_LEN];
type Middle = [OncePtr<Leaf>; MIDDLE_LEN];

#[derive(Debug)]
pub(crate) struct Directory {
    root: Box<[OncePtr<Middle>; ROOT_LEN]>,
    /// Bytes of all levels.
    bytes: UnmodelledUsize,
}

impl Directory {
    pub(crate) fn new() -> Option<Directory> {
        Some(Directory {
            root: try_boxed_array(|_| OncePtr::new())?,
            bytes: UnmodelledUsize::new(size_of::<[OncePtr<Middle>; ROOT_LEN]>()),
        })
    }

    /// The record of cluster `id`, if there ever was such a cluster. The number that means "none" may also have a
    /// record: the one after the last cluster's, which never holds a slot.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&Cluster> {
        let id = id as usize;
        let middle = self.root.get(id >> (LEAF_BITS + MIDDLE_BITS))?.get()?;
        let leaf = middle[(id >> LEAF_BITS) % MIDDLE_LEN].get()?;
        Some(&leaf[id % LEAF_LEN])
    }

    /// The record of the cluster that a list link names. `None` if the link names none.
    pub(crate) fn linked(&self, id: u32) -> Option<&Cluster> {
        if id == NO_CLUSTER {
            return None;
        }
        self.get(id)
    }

    /// The record of cluster `id`, made if there is none yet. `None` if there is no memory or no such number. One
    /// thread at a time may call this.
    pub(crate) fn ensure(&self, id: u32) -> Option<&Cluster> {
        let id = id as usize;
        let middle = self
            .root
            .get(id >> (LEAF_BITS + MIDDLE_BITS))?
            .get_or_try_init(|| self.count(try_boxed_array(|_| OncePtr::new())))?;
        let leaf = middle[(id >> LEAF_BITS) % MIDDLE_LEN]
            .get_or_try_init(|| self.count(try_boxed_array(|_| Cluster::new())))?;
        Some(&leaf[id % LEAF_LEN])
    }

    fn count<T>(&self, made: Option<Box<T>>) -> Option<Box<T>> {
        let bytes = made.as_ref().map_or(0, |_| size_of::<T>());
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        made
    }

    /// All records that were ever made.
    pub(crate) fn all_records(&self) -> impl Iterator<Item = (u32, &Cluster)> {
        self.records(0..ROOT_LEN * MIDDLE_NAMES)
    }

    /// The existing records with these `numbers`, in order. They belong to clusters that were used, and to some of
    /// their neighbours.
    pub(crate) fn records(&self, numbers: Range<usize>) -> impl Iterator<Item = (u32, &Cluster)> {
        let Range { start, end } = numbers;
        let leaves = self.leaves(end);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the directory names no more than u32 does"
        )]
        leaves
            .filter(move |(first, _)| first + LEAF_LEN > start)
            .flat_map(move |(first, leaf)| (first..end).zip(leaf))
            .skip_while(move |(id, _)| *id < start)
            .map(|(id, record)| (id as u32, record))
    }

    /// Bytes of the directory and its records.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn leaves(&self, end: usize) -> impl Iterator<Item = (usize, &Leaf)> {
        let middles = filled(&*self.root, 0..end, MIDDLE_NAMES);
        middles.flat_map(move |(first, middle)| filled(middle, first..end, LEAF_LEN))
    }
}

/// The filled places of one level that cover `numbers`, each with the first number that it covers. A place covers
/// `names` numbers.
fn filled<T>(
    level: &[OncePtr<T>],
    numbers: Range<usize>,
    names: usize,
) -> impl Iterator<Item = (usize, &T)> {
    let places = numbers.step_by(names).zip(level);
    places.filter_map(|(first, place)| Some((first, place.get()?)))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::words::geometry::CLUSTERS_MAX;

    /// Numbers that the directory has a place for.
    const NAMED: usize = ROOT_LEN * MIDDLE_NAMES;

    #[test]
    fn the_last_number_is_named_without_what_lies_between() {
        let directory = Directory::new().expect("memory");
        let last = CLUSTERS_MAX - 1;
        assert!(directory.get(last).is_none());
        let made: *const Cluster = directory.ensure(last).expect("memory");
        assert!(std::ptr::eq(made, directory.get(last).expect("made")));
        assert!(directory.get(0).is_none());
        assert!(directory.get(last / 2).is_none());
        assert!(std::ptr::eq(made, directory.linked(last).expect("made")));
        assert!(directory.linked(NO_CLUSTER).is_none());
    }

    #[test]
    fn all_records_are_gone_through_and_nothing_else_is_counted() {
        let directory = Directory::new().expect("memory");
        let empty = directory.bytes();
        assert_eq!(
            (empty, directory.all_records().count()),
            (size_of::<[OncePtr<Middle>; ROOT_LEN]>(), 0)
        );
        let middle = CLUSTERS_MAX / 2;
        let ids = [0, 1, middle, CLUSTERS_MAX - 1];
        for id in ids {
            directory.ensure(id).expect("memory");
        }
        let found: Vec<u32> = directory.all_records().map(|(id, _)| id).collect();
        assert!(found.is_sorted() && ids.iter().all(|id| found.contains(id)));
        assert_eq!(found.len(), 3 * LEAF_LEN);
        for (id, record) in directory.all_records() {
            assert!(std::ptr::eq(record, directory.get(id).expect("made")));
        }
        assert_eq!(
            directory.bytes() - empty,
            3 * (size_of::<Middle>() + size_of::<Leaf>())
        );
        // The walk stops at the end of the range, even in the middle of a leaf.
        let from: Vec<u32> = directory.records(1..NAMED).map(|(id, _)| id).collect();
        assert_eq!(from, found[1..]);
        let below: Vec<u32> = directory.records(0..1).map(|(id, _)| id).collect();
        assert_eq!(below, [0]);
        assert_eq!(directory.records(0..0).count(), 0);
        let before = directory.bytes();
        directory.ensure(0).expect("made before");
        assert_eq!(directory.bytes(), before, "what is there costs nothing");
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
