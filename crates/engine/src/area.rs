//! An area: slots in clusters. The virtual area, where every page goes first, has no size and grows and shrinks by
//! clusters; a physical one has as many slots as its storage, of which some may be bad. `alloc.rs` says from which
//! cluster slots are taken.
//!
//! A cluster moves: free -> current -> full -> frag -> nonfull -> free, and from nonfull and frag back to current. It
//! leaves current only by filling up (or by coming round with few slots left), so an idle CPU keeps one cluster of
//! order 0; one of a higher order leaves it when it has no free run or is empty. One with bad slots never becomes free,
//! and so is always of order 0. Before an emptied one is free its storage may have to be told (`discard.rs`). What an
//! area costs is what was in it at its peak, not what it could hold.
//!
//! Counters are kept per cluster under the lock that a change takes anyway, so the hot path shares nothing between
//! CPUs. Who wants an area's figures adds its clusters up.

mod close;
mod cold;
mod discard;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_utils::CachePadded;

use crate::cluster::{Cluster, ClusterGuard, NO_CLUSTER, Place, SLOTS_PER_CLUSTER, TABLE_PAGES};
use crate::count::ExtendTable;
use crate::directory::Directory;
use crate::entry::{AreaId, Entry, SLOTS_MAX};
use crate::groups::GroupTable;
use crate::lists::Lists;
use crate::order::Order;
use crate::pages::{PAGE_BYTES, PageSource};
use crate::sync::{AtomicU32, AtomicU64, Lock, Ordering};

pub(crate) use cold::Hand;

/// Figures of the area, summed over its clusters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AreaStats {
    pub(crate) slots_used: u64,
    pub(crate) zero: u64,
    /// Slots that page tables name.
    pub(crate) mapped: u64,
    pub(crate) clusters: u64,
    pub(crate) table_bytes: u64,
}

impl AreaStats {
    /// The figures of two areas together.
    pub(crate) fn and(self, other: &AreaStats) -> AreaStats {
        AreaStats {
            slots_used: self.slots_used + other.slots_used,
            zero: self.zero + other.zero,
            mapped: self.mapped + other.mapped,
            clusters: self.clusters + other.clusters,
            table_bytes: self.table_bytes + other.table_bytes,
        }
    }
}

/// The cluster that a CPU allocates from, for each order.
type Currents = [AtomicU32; Order::COUNT];

/// An area.
pub(crate) struct Area {
    pub(crate) id: AreaId,
    /// Slots that the area has, bad ones included.
    pub(crate) slots: u64,
    /// Slots that are never to be used, in ascending order.
    bad: Box<[u64]>,
    pub(crate) directory: Directory,
    /// The clusters each CPU allocates from. Written under the lists' lock, so that a cluster that is `Place::Current`
    /// or `Place::Stolen` is always some CPU's.
    currents: Box<[CachePadded<Currents>]>,
    /// After any cluster's lock, before nothing.
    pub(crate) lists: Lock<Lists>,
    /// Emptied clusters wait until their storage was told.
    discards: AtomicBool,
    /// Some slot was once named by a page table: a hint for whoever goes through all such slots.
    is_mapped: AtomicBool,
    rejected: AtomicU64,
    pub(crate) pages: Arc<dyn PageSource>,
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
        let none = || CachePadded::new(std::array::from_fn(|_| AtomicU32::new(NO_CLUSTER)));
        Some(Area {
            id,
            slots,
            bad,
            directory: Directory::new()?,
            currents: (0..cpus).map(|_| none()).collect(),
            lists: Lock::new(Lists::new()),
            discards: AtomicBool::new(false),
            is_mapped: AtomicBool::new(id == AreaId::VIRTUAL),
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
        self.locate_own(entry)
    }

    /// As [`Area::locate`], of an entry that is known to be of this area.
    #[inline]
    pub(crate) fn locate_own(&self, entry: Entry) -> Option<(&Cluster, usize)> {
        debug_assert_eq!(entry.area(), self.id);
        let (id, slot) = entry.position();
        Some((self.directory.get(id)?, slot))
    }

    /// As [`Area::locate`], with the cluster locked; `None` also if the cluster was never used.
    #[inline]
    pub(crate) fn lock(&self, entry: Entry) -> Option<(ClusterGuard<'_>, usize)> {
        let (cluster, slot) = self.locate(entry)?;
        Some((cluster.lock()?, slot))
    }

    #[inline]
    pub(crate) fn current(&self, cpu: usize, order: Order) -> &AtomicU32 {
        &self.currents[cpu % self.currents.len()][order.index()]
    }

    /// Every CPU's current cluster for `order`.
    pub(crate) fn currents_of(&self, order: Order) -> impl Iterator<Item = u32> + '_ {
        let currents = self.currents.iter();
        currents.map(move |currents| currents[order.index()].load(Ordering::Relaxed))
    }

    /// The virtual area's clusters have a backing table from the start; a physical area's only while they hold a slot
    /// that is directly mapped.
    pub(crate) fn is_virtual(&self) -> bool {
        self.id == AreaId::VIRTUAL
    }

    /// Was any slot ever named by a page table?
    pub(crate) fn is_mapped(&self) -> bool {
        self.is_mapped.load(Ordering::Relaxed)
    }

    /// A slot of the cluster is about to be named by a page table: makes the table that it needs. False if there is no
    /// memory for it.
    #[inline]
    pub(crate) fn prepare_mapped(&self, cluster: &ClusterGuard<'_>) -> bool {
        if !self.is_mapped() {
            self.is_mapped.store(true, Ordering::Relaxed);
        }
        self.is_virtual() || cluster.record().ensure_backing(&*self.pages)
    }

    /// Slots of cluster `id`, which may reach beyond the end of the area.
    pub(crate) fn slots_of(&self, id: u32) -> Range<u64> {
        let start = u64::from(id) * SLOTS_PER_CLUSTER as u64;
        start..start + SLOTS_PER_CLUSTER as u64
    }

    /// The places in cluster `id` that are never to be used: bad slots, and what would lie behind the area's end.
    pub(crate) fn bad_in(&self, id: u32) -> impl Iterator<Item = usize> + '_ {
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
        let was_mapped = cluster.word(slot).is_used();
        cluster.release_slot(slot);
        let before = cluster.place();
        let place = self.place_for(cluster);
        let stays = match before {
            // A CPU that allocates and frees by turns keeps its cluster.
            Place::Current if cluster.order().is_slot() => true,
            // One made for runs may be needed for others when it is empty.
            Place::Current | Place::Stolen => !matches!(place, Place::Free | Place::Discard),
            before => before == place,
        };
        if !stays {
            self.relocate(cluster, id, place);
        } else if was_mapped && !matches!(before, Place::Current | Place::Stolen) {
            self.discard_idle_tables(cluster);
        }
    }

    /// A physical cluster without directly mapped slots needs the tables of those no longer. One that is some CPU's
    /// keeps them: the next slot may be such a one.
    #[inline]
    fn discard_idle_tables(&self, cluster: &mut ClusterGuard<'_>) {
        if !self.is_virtual() && self.is_mapped() && cluster.mapped() == 0 {
            cluster.discard_backing(&*self.pages);
        }
    }

    #[cold]
    pub(crate) fn relocate(&self, cluster: &mut ClusterGuard<'_>, id: u32, place: Place) {
        let record = cluster.record();
        if place == Place::Free {
            debug_assert!(cluster.state.extend.is_none());
            cluster.state.cursor = 0;
            cluster.discard(&*self.pages);
        } else if matches!(record.place(), Place::Current | Place::Stolen) {
            self.discard_idle_tables(cluster);
        }
        let mut lists = self.lists.lock();
        lists.remove(&self.directory, record.place(), record);
        lists.push(&self.directory, place, id, record);
        record.set_place(place);
    }

    /// The number that all clusters are below that were ever used.
    fn end(&self) -> usize {
        self.lists.lock().end as usize
    }

    /// The clusters that were ever used, and some that were not.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = (u32, &Cluster)> {
        self.clusters_from(0)
    }

    /// The same from cluster `first` on.
    pub(crate) fn clusters_from(&self, first: u32) -> impl Iterator<Item = (u32, &Cluster)> {
        self.directory.records(first as usize..self.end())
    }

    /// Sums the clusters' figures. Takes each cluster's lock for a moment: about 10 ns per 2 MiB ever swapped.
    pub(crate) fn stats(&self) -> AreaStats {
        let mut stats = AreaStats {
            table_bytes: self.directory.bytes(self.end()) as u64,
            ..Default::default()
        };
        for (id, record) in self.clusters() {
            let Some(cluster) = record.lock() else {
                continue;
            };
            let bad = self.bad_in(id).count() as u64;
            stats.slots_used += u64::from(cluster.state.used).saturating_sub(bad);
            stats.zero += u64::from(cluster.state.zero);
            stats.mapped += u64::from(cluster.mapped());
            if cluster.place() != Place::Free {
                let has_backing = self.is_virtual() || cluster.mapped() > 0;
                let tables = 1 + usize::from(has_backing);
                stats.clusters += 1;
                stats.table_bytes += (tables * TABLE_PAGES * PAGE_BYTES) as u64;
            }
            if cluster.state.extend.is_some() {
                stats.table_bytes += size_of::<ExtendTable>() as u64;
            }
            if cluster.state.groups.is_some() {
                stats.table_bytes += size_of::<GroupTable>() as u64;
            }
        }
        stats
    }

    pub(crate) fn count_rejected(&self) {
        // Relaxed: a figure for people.
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Allocations that found no slot, since the start.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // One beyond: a cluster may have got its tables and then not been put to use.
        for (_, record) in self.directory.records(0..self.end() + 1) {
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
pub(crate) mod testing {
    use super::*;
    use crate::shadow::Shadow;
    use crate::table::Word;

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
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicUsize;

    use super::testing::{assert_sound, free, used};
    use super::*;
    use crate::alloc::{AllocError, NONFULL_FREE_MIN};
    use crate::pages::HeapPages;

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

    fn cluster_of(entry: Entry) -> u32 {
        entry.position().0
    }

    /// Clusters that a test fills: a few real ones, more of the small ones.
    const CLUSTERS: usize = if SLOTS_PER_CLUSTER > 16 { 4 } else { 12 };

    #[test]
    fn entries_are_distinct_and_neighbours_on_one_cpu() {
        let space = Area::virtual_area(2, Arc::new(HeapPages::new())).expect("memory");
        let take = |cpu| {
            space
                .allocate(cpu, Order::SLOT, &[used()], None)
                .expect("room")
        };
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
        assert_eq!(assert_sound(&space), entries.len() as u64);
    }

    #[test]
    fn an_empty_cluster_gives_its_table_memory_back_and_its_number_is_used_again() {
        let pages = Arc::new(Counting::default());
        let space = Area::virtual_area(1, Arc::clone(&pages) as _).expect("memory");
        let idle = space.stats().table_bytes;
        let count = SLOTS_PER_CLUSTER * CLUSTERS;
        for round in 1..=3 {
            let entries: Vec<_> = (0..count)
                .map(|_| {
                    space
                        .allocate(0, Order::SLOT, &[used()], None)
                        .expect("room")
                })
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
        assert!(stays <= space.directory.bytes(CLUSTERS) as u64);
        drop(space);
        assert_eq!(pages.heap.pages_out(), 0);
    }

    #[test]
    fn a_cpu_that_allocates_and_frees_keeps_one_cluster() {
        let pages = Arc::new(Counting::default());
        let space = Area::virtual_area(1, Arc::clone(&pages) as _).expect("memory");
        for _ in 0..3 * SLOTS_PER_CLUSTER {
            let entry = space
                .allocate(0, Order::SLOT, &[used()], None)
                .expect("room");
            free(&space, entry);
        }
        assert_eq!(space.stats().clusters, 1);
        assert_eq!(pages.discards.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nonfull_comes_before_new_and_new_before_frag() {
        let pages = Arc::new(Counting::default());
        let space = Area::virtual_area(1, Arc::clone(&pages) as _).expect("memory");
        let take = || space.allocate(0, Order::SLOT, &[used()], None);
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
