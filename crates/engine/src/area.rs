//! An area: slots in clusters, and how they are allocated. The virtual area, where every page goes first, has no size
//! and grows and shrinks by clusters; a physical one has as many slots as its storage, of which some may be bad.
//!
//! Each CPU allocates from a current cluster of its own, so that pages evicted together get neighbouring slots and CPUs
//! meet on no lock. There is no cache of slots: a slot is taken when it is used. When the current cluster is full the
//! CPU looks for another: one with many free slots, then a new one, and only if there is none or no memory for it one
//! with few free slots, or another CPU's. The CPU number is a hint: several threads may allocate with the same one.
//!
//! A cluster moves: free -> current -> full -> frag -> nonfull -> free, and from nonfull and frag back to current. It
//! leaves current only by filling up (or by coming round with few slots left), so an idle CPU keeps one cluster. One
//! with bad slots never becomes free. Before an emptied one is free its storage may have to be told (`discard.rs`).
//! What an area costs is what was in it at its peak, not what it could hold.

mod close;
mod discard;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_utils::CachePadded;

use crate::cluster::{Cluster, ClusterGuard, NO_CLUSTER, Place, SLOTS_PER_CLUSTER, TABLE_PAGES};
use crate::directory::Directory;
use crate::entry::{AreaId, Entry, SLOTS_MAX};
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
    /// Every slot is taken.
    #[error("all slots of the area are in use: let entries be freed, or add an area")]
    Full,
}

/// Figures of the area, summed over its clusters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AreaStats {
    pub(crate) slots_used: u64,
    pub(crate) zero: u64,
    pub(crate) clusters: u64,
    pub(crate) table_bytes: u64,
}

#[derive(Debug)]
struct Current(AtomicU32);

/// An area.
pub(crate) struct Area {
    id: AreaId,
    /// Slots that the area has, bad ones included.
    slots: u64,
    /// Slots that are never to be used, in ascending order.
    bad: Box<[u64]>,
    directory: Directory,
    /// The cluster each CPU allocates from. Written under the lists' lock, so that a cluster that is `Place::Current`
    /// is always some CPU's.
    currents: Box<[CachePadded<Current>]>,
    /// After any cluster's lock, before nothing.
    lists: Lock<Lists>,
    /// Emptied clusters wait until their storage was told.
    discards: AtomicBool,
    rejected: AtomicU64,
    pages: Arc<dyn PageSource>,
}

impl Area {
    /// The virtual area; `None` if there is no memory for its directory.
    pub(crate) fn virtual_area(cpus: usize, pages: Arc<dyn PageSource>) -> Option<Area> {
        Area::new(AreaId::VIRTUAL, SLOTS_MAX, Box::default(), cpus, pages)
    }

    /// An area of `slots` slots, of which `bad`, in ascending order, are never used.
    pub(crate) fn new(
        id: AreaId,
        slots: u64,
        bad: Box<[u64]>,
        cpus: usize,
        pages: Arc<dyn PageSource>,
    ) -> Option<Area> {
        debug_assert!(slots <= SLOTS_MAX && bad.is_sorted());
        let none = || CachePadded::new(Current(AtomicU32::new(NO_CLUSTER)));
        Some(Area {
            id,
            slots,
            bad,
            directory: Directory::new()?,
            currents: (0..cpus).map(|_| none()).collect(),
            lists: Lock::new(Lists::new()),
            discards: AtomicBool::new(false),
            rejected: AtomicU64::new(0),
            pages,
        })
    }

    /// The cluster and the slot of an entry; `None` if it is of another area, or if there never was such a cluster.
    #[inline]
    pub(crate) fn locate(&self, entry: Entry) -> Option<(&Cluster, usize)> {
        if entry.area() != self.id {
            return None;
        }
        let (id, slot) = entry.position();
        Some((self.directory.get(id)?, slot))
    }

    /// Takes a free slot and gives it `word`.
    #[inline]
    pub(crate) fn allocate(&self, cpu: usize, word: Word) -> Result<Entry, AllocError> {
        let current = self.current(cpu);
        loop {
            let id = current.load(Ordering::Acquire);
            if let Some(entry) = self.take_from(id, word) {
                return Ok(entry);
            }
            // Each way round somebody has taken the last slot of a cluster since our look, so this ends.
            if let Err(error) = self.refill(current, id) {
                // Relaxed: a figure for people.
                self.rejected.fetch_add(1, Ordering::Relaxed);
                return Err(error);
            }
        }
    }

    /// Takes a free slot of the CPU's current cluster; `None` if that has none left.
    #[inline]
    pub(crate) fn allocate_near(&self, cpu: usize, word: Word) -> Option<Entry> {
        self.take_from(self.current(cpu).load(Ordering::Acquire), word)
    }

    #[inline]
    fn current(&self, cpu: usize) -> &AtomicU32 {
        &self.currents[cpu % self.currents.len()].0
    }

    /// Takes a free slot of cluster `id` if it is somebody's current one: the CPU's cluster may have filled up, even
    /// have been emptied and be another CPU's by now.
    #[inline]
    fn take_from(&self, id: u32, word: Word) -> Option<Entry> {
        let record = self.directory.get(id)?;
        let mut cluster = record.lock()?;
        if record.place() != Place::Current {
            return None;
        }
        let slot = self.take_slot(&mut cluster, id, word)?;
        Some(Entry::of(self.id, id, slot))
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
        if lists.is_closed {
            return Err(AllocError::Full);
        }
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
                Err(error) => self
                    .take_listed(&mut lists, Place::Frag)
                    .or_else(|| self.any_current())
                    .ok_or(error)?,
            },
        };
        // Release pairs with the Acquire in `allocate`: the directory leads to the record.
        current.store(id, Ordering::Release);
        Ok(())
    }

    /// A cluster that another CPU allocates from; it has a free slot, or would be current no more. Last resort of an
    /// area with fewer clusters than CPUs.
    fn any_current(&self) -> Option<u32> {
        let mut ids = self.currents.iter().map(|c| c.0.load(Ordering::Relaxed));
        let is_current = |id: &u32| {
            let record = self.directory.get(*id);
            record.is_some_and(|record| record.place() == Place::Current)
        };
        ids.find(is_current)
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
        while self.slots_of(lists.end).start < self.slots {
            let id = lists.end;
            let record = self.directory.ensure(id).ok_or(AllocError::NoMemory)?;
            if !record.ensure_tables(self.has_backing(), &*self.pages) {
                return Err(AllocError::NoMemory);
            }
            // Entries of this cluster were never handed out; only an operation on a made-up one could hold its lock.
            let mut cluster = record.try_lock().ok_or(AllocError::NoMemory)?;
            for slot in self.bad_in(id) {
                cluster.mark_bad(slot);
            }
            lists.end = id + 1;
            let is_full = usize::from(cluster.state.used) == SLOTS_PER_CLUSTER;
            record.set_place(if is_full { Place::Full } else { Place::Current });
            if !is_full {
                return Ok(id);
            }
        }
        Err(AllocError::Full)
    }

    /// The virtual area's clusters have a second table.
    fn has_backing(&self) -> bool {
        self.id == AreaId::VIRTUAL
    }

    /// Slots of cluster `id`, which may reach beyond the end of the area.
    fn slots_of(&self, id: u32) -> Range<u64> {
        let start = u64::from(id) * SLOTS_PER_CLUSTER as u64;
        start..start + SLOTS_PER_CLUSTER as u64
    }

    /// The places in cluster `id` that are never to be used: bad slots, and what would lie behind the area's end.
    fn bad_in(&self, id: u32) -> impl Iterator<Item = usize> + '_ {
        let slots = self.slots_of(id);
        let from = self.bad.partition_point(|&slot| slot < slots.start);
        let to = self.bad.partition_point(|&slot| slot < slots.end);
        let bad = self.bad[from..to].iter().copied();
        let beyond = self.slots.clamp(slots.start, slots.end)..slots.end;
        // The difference is below SLOTS_PER_CLUSTER.
        bad.chain(beyond)
            .map(move |slot| usize::try_from(slot - slots.start).unwrap_or(0))
    }

    /// Frees a slot whose frame and backing are gone, and moves its cluster to where it belongs now.
    #[inline]
    pub(crate) fn release_slot(&self, cluster: &mut ClusterGuard<'_>, entry: Entry) {
        let (id, slot) = entry.position();
        cluster.release_slot(slot);
        let before = cluster.place();
        let place = self.place_for(usize::from(cluster.state.used));
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
    pub(crate) fn stats(&self) -> AreaStats {
        let end = self.lists.lock().end;
        let mut stats = AreaStats {
            table_bytes: Directory::bytes(end) as u64,
            ..Default::default()
        };
        let tables = if self.has_backing() { 2 } else { 1 };
        for id in 0..end {
            let Some(cluster) = self.directory.get(id).and_then(Cluster::lock) else {
                continue;
            };
            let bad = self.bad_in(id).count() as u64;
            stats.slots_used += u64::from(cluster.state.used).saturating_sub(bad);
            stats.zero += u64::from(cluster.state.zero);
            if cluster.place() != Place::Free {
                stats.clusters += 1;
                stats.table_bytes += (tables * TABLE_PAGES * PAGE_BYTES) as u64;
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

impl Drop for Area {
    fn drop(&mut self) {
        let end = self.lists.lock().end;
        // One beyond: a cluster may have got its tables and then not been put to use.
        for record in (0..=end).filter_map(|id| self.directory.get(id)) {
            // SAFETY: `&mut self`: nobody else uses the area, and all its tables came from this source.
            unsafe { record.free_tables(&*self.pages) };
        }
    }
}

impl std::fmt::Debug for Area {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Area")
            .field("id", &self.id)
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
        refuse: AtomicBool,
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
                    word == 0 || size_of::<crate::cluster::Table>() <= at * 8,
                    "word {at}"
                );
            }
            self.discards.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn used() -> Word {
        Word::shadow(Shadow::ABSENT).with_count_field(1)
    }

    fn free(space: &Area, entry: Entry) {
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
        let space = Area::virtual_area(2, Arc::new(HeapPages::new())).expect("memory");
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
        let space = Area::virtual_area(1, Arc::clone(&pages) as _).expect("memory");
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
            assert_eq!(pages.discards.load(Ordering::Relaxed), round * 2 * CLUSTERS);
            assert_eq!(
                pages.heap.pages_out(),
                CLUSTERS * 2 * TABLE_PAGES,
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
        let space = Area::virtual_area(1, Arc::clone(&pages) as _).expect("memory");
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
        let space = Area::virtual_area(1, Arc::clone(&pages) as _).expect("memory");
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
