//! The virtual area: where every page goes first. It has no size; it grows and shrinks by clusters.
//!
//! Each CPU allocates from a current cluster of its own, so that pages evicted together get neighbouring slots and CPUs
//! meet on no lock. There is no cache of slots: a slot is taken when it is used. When the current cluster is full the
//! CPU looks for another: one with many free slots, then a new one, and only if there is no memory for that one with
//! few free slots. The CPU number is a hint: several threads may allocate with the same one.
//!
//! A cluster moves: free -> current -> full -> frag -> nonfull -> free, and from nonfull and frag back to current. It
//! leaves current only by filling up (or by coming round with few slots left), so an idle CPU keeps one cluster.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::cluster::{Cluster, ClusterGuard, NO_CLUSTER, Place, SLOTS_PER_CLUSTER, TABLES_PAGES};
use crate::directory::Directory;
use crate::entry::{CLUSTERS_MAX, Entry};
use crate::lists::Lists;
use crate::pages::{PAGE_BYTES, PageSource};
use crate::sync::{AtomicU32, AtomicU64, Lock, LockGuard, Ordering};
use crate::table::Word;

/// Free slots from which a cluster counts as nonfull. A search of such a cluster looks at 8 words for each slot found;
/// what waits in fuller clusters is at most an eighth of the table memory.
const NONFULL_FREE_MIN: usize = if SLOTS_PER_CLUSTER >= 16 {
    SLOTS_PER_CLUSTER / 8
} else {
    2
};

/// How many clusters of a list are tried before going on to the next step: a busy one means that another thread is just
/// putting slots there, and more than a few busy ones are not to be expected.
const LIST_TRIES_MAX: usize = 8;

/// Why no slot could be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// No memory for another cluster's tables, and no free slot in the clusters there are.
    #[error(
        "no memory for the swap tables of another {SLOTS_PER_CLUSTER} pages: raise the limit, or let entries be freed"
    )]
    NoMemory,
    /// Every cluster number is taken.
    #[error("all {CLUSTERS_MAX} clusters of the virtual area are in use: let entries be freed")]
    Full,
}

/// Figures of the area, summed over its clusters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SpaceStats {
    pub(crate) slots_used: u64,
    pub(crate) zero: u64,
    pub(crate) clusters: u64,
    pub(crate) table_bytes: u64,
}

#[derive(Debug)]
struct Current(AtomicU32);

/// The virtual area.
pub(crate) struct VirtualSpace {
    directory: Directory,
    /// The cluster each CPU allocates from. Written under the lists' lock, so that a cluster that is `Place::Current`
    /// is always some CPU's.
    currents: Box<[CachePadded<Current>]>,
    /// After any cluster's lock, before nothing.
    lists: Lock<Lists>,
    rejected: AtomicU64,
    pages: Arc<dyn PageSource>,
}

impl VirtualSpace {
    pub(crate) fn new(cpus: usize, pages: Arc<dyn PageSource>) -> Option<VirtualSpace> {
        let none = || CachePadded::new(Current(AtomicU32::new(NO_CLUSTER)));
        Some(VirtualSpace {
            directory: Directory::new()?,
            currents: (0..cpus).map(|_| none()).collect(),
            lists: Lock::new(Lists::new()),
            rejected: AtomicU64::new(0),
            pages,
        })
    }

    /// The cluster and the slot of an entry; `None` if there never was such a cluster.
    #[inline]
    pub(crate) fn locate(&self, entry: Entry) -> Option<(&Cluster, usize)> {
        let (id, slot) = entry.position();
        Some((self.directory.get(id)?, slot))
    }

    /// Takes a free slot and gives it `word`.
    #[inline]
    pub(crate) fn allocate(&self, cpu: usize, word: Word) -> Result<Entry, AllocError> {
        let current = &self.currents[cpu % self.currents.len()].0;
        loop {
            let id = current.load(Ordering::Acquire);
            if let Some(record) = self.directory.get(id)
                && let Some(mut cluster) = record.lock()
                // The CPU's cluster may have filled up, even have been emptied and be another CPU's by now. As long as
                // it is somebody's current one it is good.
                && record.place() == Place::Current
                && let Some(slot) = self.take_slot(&mut cluster, id, word)
            {
                return Ok(Entry::virtual_slot(id, slot));
            }
            // Each way round somebody has taken the last slot of a cluster since our look, so this ends.
            if let Err(error) = self.refill(current, id) {
                // Relaxed: a figure for people.
                self.rejected.fetch_add(1, Ordering::Relaxed);
                return Err(error);
            }
        }
    }

    #[inline]
    fn take_slot(&self, cluster: &mut ClusterGuard<'_>, id: u32, word: Word) -> Option<usize> {
        let slot = cluster.take_slot(word)?;
        if cluster.state.cursor == 0 || usize::from(cluster.state.used) == SLOTS_PER_CLUSTER {
            self.retire_if_crowded(cluster, id);
        }
        Some(slot)
    }

    /// The cluster is full or the search came round: one with few slots left is put away, one with many is gone through
    /// again.
    #[cold]
    fn retire_if_crowded(&self, cluster: &mut ClusterGuard<'_>, id: u32) {
        let place = place_of(usize::from(cluster.state.used));
        if matches!(place, Place::Full | Place::Frag) {
            self.relocate(cluster, id, place);
        }
    }

    /// Finds the CPU another cluster than `stale`. Does nothing if another thread has done so.
    #[cold]
    fn refill(&self, current: &AtomicU32, stale: u32) -> Result<(), AllocError> {
        let mut lists = self.lists.lock();
        let now = current.load(Ordering::Relaxed);
        let is_current = |record: &Cluster| record.place() == Place::Current;
        // Compared by place too: the stale cluster may have been emptied and become this CPU's again.
        if now != stale || self.directory.get(now).is_some_and(is_current) {
            return Ok(());
        }
        let id = match self.take_listed(&mut lists, Place::Nonfull) {
            Some(id) => id,
            None => match self.take_new(&mut lists) {
                Ok(id) => id,
                Err(error) => self.take_listed(&mut lists, Place::Frag).ok_or(error)?,
            },
        };
        // Release pairs with the Acquire in `allocate`: the directory leads to the record.
        current.store(id, Ordering::Release);
        Ok(())
    }

    /// Takes a cluster off a list and makes it somebody's current one.
    fn take_listed(&self, lists: &mut LockGuard<'_, Lists>, place: Place) -> Option<u32> {
        let mut id = lists.head(place);
        for _ in 0..LIST_TRIES_MAX {
            let record = self.directory.get(id)?;
            // Against the lock order, so only if nobody holds it.
            if let Some(_cluster) = record.try_lock() {
                lists.remove(&self.directory, place, record);
                record.set_place(Place::Current);
                return Some(id);
            }
            id = Lists::after(record);
        }
        None
    }

    /// Takes an emptied cluster, else one that never was.
    fn take_new(&self, lists: &mut LockGuard<'_, Lists>) -> Result<u32, AllocError> {
        if let Some(id) = self.take_listed(lists, Place::Free) {
            return Ok(id);
        }
        let id = lists.end;
        if id == CLUSTERS_MAX {
            return Err(AllocError::Full);
        }
        let record = self.directory.ensure(id).ok_or(AllocError::NoMemory)?;
        if !record.ensure_tables(&*self.pages) {
            return Err(AllocError::NoMemory);
        }
        // Entries of this cluster were never handed out; only an operation on a made-up one could hold its lock.
        let _cluster = record.try_lock().ok_or(AllocError::NoMemory)?;
        record.set_place(Place::Current);
        lists.end = id + 1;
        Ok(id)
    }

    /// Frees a slot whose frame and backing are gone, and moves its cluster to where it belongs now.
    #[inline]
    pub(crate) fn release_slot(&self, cluster: &mut ClusterGuard<'_>, entry: Entry) {
        let (id, slot) = entry.position();
        cluster.release_slot(slot);
        let before = cluster.place();
        let place = place_of(usize::from(cluster.state.used));
        if before != Place::Current && before != place {
            self.relocate(cluster, id, place);
        }
    }

    #[cold]
    fn relocate(&self, cluster: &mut ClusterGuard<'_>, id: u32, place: Place) {
        let record = cluster.record();
        if place == Place::Free {
            debug_assert!(cluster.state.extend.is_none());
            cluster.state.cursor = 0;
            cluster.discard(&*self.pages);
        }
        let mut lists = self.lists.lock();
        lists.remove(&self.directory, record.place(), record);
        lists.push(&self.directory, place, id, record);
        record.set_place(place);
    }

    /// Sums the clusters' figures. Takes each cluster's lock for a moment: about 10 ns per 2 MiB ever swapped.
    pub(crate) fn stats(&self) -> SpaceStats {
        let end = self.lists.lock().end;
        let mut stats = SpaceStats {
            table_bytes: Directory::bytes(end) as u64,
            ..Default::default()
        };
        for cluster in (0..end).filter_map(|id| self.directory.get(id)?.lock()) {
            stats.slots_used += u64::from(cluster.state.used);
            stats.zero += u64::from(cluster.state.zero);
            if cluster.place() != Place::Free {
                stats.clusters += 1;
                stats.table_bytes += (TABLES_PAGES * PAGE_BYTES) as u64;
            }
            if cluster.state.extend.is_some() {
                stats.table_bytes += size_of::<crate::count::ExtendTable>() as u64;
            }
        }
        stats
    }

    /// Allocations that found no slot, since the start.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }
}

/// Where a cluster that is nobody's current one belongs.
fn place_of(used: usize) -> Place {
    match SLOTS_PER_CLUSTER - used {
        0 => Place::Full,
        SLOTS_PER_CLUSTER => Place::Free,
        free if free >= NONFULL_FREE_MIN => Place::Nonfull,
        _ => Place::Frag,
    }
}

impl Drop for VirtualSpace {
    fn drop(&mut self) {
        let end = self.lists.lock().end;
        // One beyond: a cluster may have got its tables and then not been put to use.
        for record in (0..=end).filter_map(|id| self.directory.get(id)) {
            // SAFETY: `&mut self`: nobody else uses the area, and all its tables came from this source.
            unsafe { record.free_tables(&*self.pages) };
        }
    }
}

impl std::fmt::Debug for VirtualSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtualSpace")
            .field("lists", &self.lists)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::pages::HeapPages;
    use crate::shadow::Shadow;

    /// Counts runs that were given back and not taken into use since, and can refuse to give more.
    #[derive(Default)]
    struct Counting {
        heap: HeapPages,
        discards: AtomicUsize,
        refuse: std::sync::atomic::AtomicBool,
    }

    // SAFETY: All runs come from the heap source.
    unsafe impl PageSource for Counting {
        fn alloc(&self, pages: usize) -> Option<NonNull<u8>> {
            if self.refuse.load(Ordering::Relaxed) {
                None
            } else {
                self.heap.alloc(pages)
            }
        }
        unsafe fn free(&self, run: NonNull<u8>, pages: usize) {
            // SAFETY: By the caller's contract, passed on.
            unsafe { self.heap.free(run, pages) };
        }
        unsafe fn discard(&self, run: NonNull<u8>, pages: usize) {
            for at in 0..pages * PAGE_BYTES / 8 {
                // SAFETY: The run is valid and aligned.
                let word = unsafe { run.cast::<u64>().add(at).read() };
                assert!(
                    word == 0 || size_of::<crate::cluster::Tables>() <= at * 8,
                    "word {at}"
                );
            }
            self.discards.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn used() -> Word {
        Word::shadow(Shadow::ABSENT).with_count_field(1)
    }

    fn free(space: &VirtualSpace, entry: Entry) {
        let (cluster, _) = space.locate(entry).expect("allocated");
        space.release_slot(&mut cluster.lock().expect("used once"), entry);
    }

    fn cluster_of(entry: Entry) -> u32 {
        entry.position().0
    }

    /// Clusters that a test fills: a few real ones, more of the small ones.
    const CLUSTERS: usize = if SLOTS_PER_CLUSTER > 16 { 4 } else { 12 };

    #[test]
    fn entries_are_distinct_and_neighbours_on_one_cpu() {
        let space = VirtualSpace::new(2, Arc::new(HeapPages::new())).expect("memory");
        let take = |cpu| space.allocate(cpu, used()).expect("room");
        let mut entries: Vec<_> = (0..SLOTS_PER_CLUSTER * CLUSTERS).map(|_| take(0)).collect();
        assert!(
            entries
                .windows(2)
                .all(|pair| pair[1].raw() == pair[0].raw() + 1)
        );
        let other = take(1);
        assert!(
            entries
                .iter()
                .all(|&entry| cluster_of(entry) != cluster_of(other))
        );
        entries.push(other);
        assert_eq!(space.stats().slots_used, entries.len() as u64);
        assert_eq!(space.stats().clusters, CLUSTERS as u64 + 1);
    }

    #[test]
    fn an_empty_cluster_gives_its_table_memory_back_and_its_number_is_used_again() {
        let pages = Arc::new(Counting::default());
        let space = VirtualSpace::new(1, Arc::clone(&pages) as _).expect("memory");
        let idle = space.stats().table_bytes;
        let count = SLOTS_PER_CLUSTER * CLUSTERS;
        for round in 1..=3 {
            let entries: Vec<_> = (0..count)
                .map(|_| space.allocate(0, used()).expect("room"))
                .collect();
            assert_eq!(space.stats().clusters, CLUSTERS as u64);
            for entry in entries {
                free(&space, entry);
            }
            let stats = space.stats();
            assert_eq!((stats.slots_used, stats.clusters), (0, 0));
            assert_eq!(pages.discards.load(Ordering::Relaxed), round * CLUSTERS);
            assert_eq!(
                pages.heap.pages_out(),
                CLUSTERS * TABLES_PAGES,
                "addresses are kept"
            );
        }
        // What stays per cluster is its record.
        let stays = space.stats().table_bytes - idle;
        assert!(stays <= Directory::bytes(u32::try_from(CLUSTERS).expect("few")) as u64);
        drop(space);
        assert_eq!(pages.heap.pages_out(), 0);
    }

    #[test]
    fn a_cpu_that_allocates_and_frees_keeps_one_cluster() {
        let pages = Arc::new(Counting::default());
        let space = VirtualSpace::new(1, Arc::clone(&pages) as _).expect("memory");
        for _ in 0..3 * SLOTS_PER_CLUSTER {
            let entry = space.allocate(0, used()).expect("room");
            free(&space, entry);
        }
        assert_eq!(space.stats().clusters, 1);
        assert_eq!(pages.discards.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nonfull_comes_before_new_and_new_before_frag() {
        let pages = Arc::new(Counting::default());
        let space = VirtualSpace::new(1, Arc::clone(&pages) as _).expect("memory");
        let take = || space.allocate(0, used());
        let all: Vec<_> = (0..3 * SLOTS_PER_CLUSTER)
            .map(|_| take().expect("room"))
            .collect();
        let (first, rest) = all.split_at(SLOTS_PER_CLUSTER);
        // One slot of the first cluster: frag. Enough of the second: nonfull.
        free(&space, first[1]);
        for &entry in &rest[..NONFULL_FREE_MIN] {
            free(&space, entry);
        }
        for _ in 0..NONFULL_FREE_MIN {
            assert_eq!(cluster_of(take().expect("room")), cluster_of(rest[0]));
        }
        let new = take().expect("room");
        assert_eq!(cluster_of(new), 3);
        // No memory for a fifth: the rest of the new one, then the frag one, then nothing.
        pages.refuse.store(true, Ordering::Relaxed);
        for _ in 1..SLOTS_PER_CLUSTER {
            assert_eq!(cluster_of(take().expect("room")), 3);
        }
        assert_eq!(take(), Ok(first[1]));
        assert_eq!(take(), Err(AllocError::NoMemory));
        assert_eq!(space.rejected(), 1);
        free(&space, first[0]);
        assert_eq!(take(), Ok(first[0]));
    }
}
