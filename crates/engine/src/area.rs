//! An area: slots in clusters. The virtual area, where every page goes first, has no size; it grows and shrinks by
//! clusters. A physical area has as many slots as its storage, and some of them may be bad. `alloc.rs` says which
//! cluster the next slot comes from.
//!
//! A cluster moves between places: free -> current -> full -> frag -> nonfull -> free, and from nonfull and frag back
//! to current. A cluster of order 0 leaves current only when it fills up, or when the search has gone once round it and
//! few slots are left. So an idle CPU keeps one cluster of order 0. A cluster of a higher order leaves current when it
//! has no free run or is empty. A cluster with bad slots never becomes free, so its order is always 0. Before an
//! emptied cluster is free it may have to be discarded (`discard.rs`). An area costs as much as it held at its peak,
//! not as much as it could hold.
//!
//! Each cluster keeps its own counters, under the lock that a change takes anyway. So CPUs share nothing on the hot
//! path. Whoever wants an area's figures adds up its clusters.

mod aging;
mod alloc;
mod close;
mod cold;
mod discard;
mod placement;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) mod testing;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod validity;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crossbeam_utils::CachePadded;

use crate::base::lock_order;
use crate::base::pages::{PAGE_BYTES, PageSource};
use crate::base::sync::{AtomicU32, AtomicU64, Lock, Ordering};
use crate::cluster::{
    Cluster, ClusterGuard, Directory, ExtendTable, Extent, GroupTable, Lists, Place, TABLE_PAGES,
};
use crate::groups::GroupIndex;
use crate::words::entry::{AreaId, Entry};
use crate::words::geometry::{NO_CLUSTER, SLOTS_MAX};
use crate::words::order::Order;

pub(crate) use aging::{Aging, Cold, Purpose, SAFE_GENERATIONS};
pub use alloc::AllocError;
pub(crate) use alloc::OfGroup;
pub(crate) use cold::ClockHand;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use placement::NONFULL_FREE_MIN;

/// Figures of the area, summed over its clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AreaStats {
    pub(crate) slots_used: u64,
    pub(crate) zero: u64,
    /// Slots that page tables name.
    pub(crate) mapped: u64,
    pub(crate) clusters: u64,
    pub(crate) table_bytes: u64,
    /// Failed allocations of a slot.
    pub(crate) rejected: u64,
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
            rejected: self.rejected + other.rejected,
        }
    }

    /// The figures of a whole without those of a part of it.
    pub(crate) fn without(self, part: &AreaStats) -> AreaStats {
        AreaStats {
            slots_used: self.slots_used - part.slots_used,
            zero: self.zero - part.zero,
            mapped: self.mapped - part.mapped,
            clusters: self.clusters - part.clusters,
            table_bytes: self.table_bytes - part.table_bytes,
            rejected: self.rejected - part.rejected,
        }
    }
}

/// The cluster that a CPU allocates from, for each order.
type Currents = [AtomicU32; Order::COUNT];

/// An area.
pub(crate) struct Area {
    pub(crate) id: AreaId,
    pub(crate) directory: Directory,
    /// Each CPU's current clusters. Written under the lists' lock, so that a cluster at `Place::Current` or
    /// `Place::Stolen` is always some CPU's.
    currents: Box<[CachePadded<Currents>]>,
    /// How many CPUs have clusters of their own; the others share with them.
    cpus: AtomicUsize,
    /// Taken after any cluster's lock, and no lock is taken under it.
    pub(crate) lists: Lock<Lists, { lock_order::LISTS }>,
    /// Whether emptied clusters wait until they were discarded in the storage.
    discards: AtomicBool,
    /// Whether a page table ever named a slot of the area. A hint for those who go through all such slots.
    is_mapped: AtomicBool,
    rejected: AtomicU64,
    pub(crate) pages: Arc<dyn PageSource>,
}

impl Area {
    /// The virtual area. `None` if there is no memory for its directory.
    pub(crate) fn virtual_area(cpus: usize, pages: Arc<dyn PageSource>) -> Option<Area> {
        let extent = Extent::new(SLOTS_MAX, Box::default());
        Area::new(AreaId::VIRTUAL, extent, cpus, pages)
    }

    /// An area with these slots. `None` if there is no memory for its directory.
    pub(crate) fn new(
        id: AreaId,
        extent: Extent,
        cpus: usize,
        pages: Arc<dyn PageSource>,
    ) -> Option<Area> {
        let none = || CachePadded::new(std::array::from_fn(|_| AtomicU32::new(NO_CLUSTER)));
        Some(Area {
            id,
            directory: Directory::new()?,
            currents: (0..cpus).map(|_| none()).collect(),
            cpus: AtomicUsize::new(cpus),
            lists: Lock::new(Lists::new(extent)),
            discards: AtomicBool::new(false),
            is_mapped: AtomicBool::new(id == AreaId::VIRTUAL),
            rejected: AtomicU64::new(0),
            pages,
        })
    }

    /// The cluster and slot of an entry. `None` if the entry is of another area, or if there never was such a cluster.
    #[inline]
    pub(crate) fn locate(&self, entry: Entry) -> Option<(&Cluster, usize)> {
        if entry.area() != self.id {
            return None;
        }
        self.locate_own(entry)
    }

    /// Like [`Area::locate`], for an entry that is known to be of this area.
    #[inline]
    pub(crate) fn locate_own(&self, entry: Entry) -> Option<(&Cluster, usize)> {
        debug_assert_eq!(entry.area(), self.id);
        let (id, slot) = entry.position();
        Some((self.directory.get(id)?, slot))
    }

    /// Like [`Area::locate`], but locks the cluster. Also `None` if the cluster was never used.
    #[inline]
    pub(crate) fn lock(&self, entry: Entry) -> Option<(ClusterGuard<'_>, usize)> {
        let (cluster, slot) = self.locate(entry)?;
        Some((cluster.lock()?, slot))
    }

    #[inline]
    pub(crate) fn current(&self, cpu: usize, order: Order) -> &AtomicU32 {
        // Relaxed: any CPU's cluster would do.
        let cpus = self.cpus.load(Ordering::Relaxed);
        &self.currents[cpu % cpus][order.index()]
    }

    /// Every CPU's current cluster for `order`.
    pub(crate) fn currents_of(&self, order: Order) -> impl Iterator<Item = u32> + '_ {
        let currents = self.currents.iter();
        currents.map(move |currents| currents[order.index()].load(Ordering::Relaxed))
    }

    /// Whether this is the virtual area. Its clusters have a backing table from the start. Those of a physical area
    /// have one only while they hold a directly mapped slot.
    pub(crate) fn is_virtual(&self) -> bool {
        self.id == AreaId::VIRTUAL
    }

    /// Whether a page table ever named a slot of this area.
    pub(crate) fn is_mapped(&self) -> bool {
        self.is_mapped.load(Ordering::Relaxed)
    }

    /// Makes the table that the cluster needs before page tables name a slot of it. False if there is no memory for it.
    #[inline]
    pub(crate) fn prepare_mapped(&self, cluster: &ClusterGuard<'_>) -> bool {
        if !self.is_mapped() {
            self.is_mapped.store(true, Ordering::Relaxed);
        }
        self.is_virtual() || cluster.record().ensure_backing(&*self.pages)
    }

    /// Frees a slot whose frame and backing are gone, and moves its cluster to the place where it belongs now.
    #[inline]
    pub(crate) fn release_slot(&self, cluster: &mut ClusterGuard<'_>, entry: Entry) {
        let (id, slot) = entry.position();
        let was_mapped = cluster.word(slot).is_used();
        cluster.release_slot(slot);
        let before = cluster.place();
        let place = self.place_for(cluster);
        let stays = match before {
            // A CPU that alternates between allocating and freeing keeps its cluster.
            Place::Current if cluster.order().is_slot() => true,
            // When a cluster made for runs is empty, another order may need it.
            Place::Current | Place::Stolen => !place.is_empty(),
            before => before == place,
        };
        if !stays {
            self.relocate(cluster, id, place);
        } else if was_mapped && !matches!(before, Place::Current | Place::Stolen) {
            self.discard_idle_tables(cluster);
        }
    }

    /// Gives back the tables that only directly mapped slots need, from a physical cluster that holds no such slot. A
    /// CPU's current cluster keeps the tables, because its next slot may be directly mapped.
    #[inline]
    fn discard_idle_tables(&self, cluster: &mut ClusterGuard<'_>) {
        if !self.is_virtual() && self.is_mapped() && cluster.mapped() == 0 {
            cluster.discard_backing(&*self.pages);
        }
    }

    #[cold]
    pub(crate) fn relocate(&self, cluster: &mut ClusterGuard<'_>, id: u32, place: Place) {
        let record = cluster.record();
        if place.is_empty() {
            if !record.place().is_empty() {
                debug_assert!(cluster.state.extend.is_none());
                cluster.state.cursor = 0;
                cluster.discard(&*self.pages);
            }
        } else if matches!(record.place(), Place::Current | Place::Stolen) {
            self.discard_idle_tables(cluster);
        }
        let mut lists = self.lists.lock();
        lists.remove(&self.directory, record.place(), record);
        lists.push(&self.directory, place, id, record);
        record.set_place(place);
    }

    /// All clusters that were ever used have numbers below this.
    pub(crate) fn end(&self) -> usize {
        self.lists.lock().end as usize
    }

    /// All clusters that were ever used, and some that were not.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = (u32, &Cluster)> {
        self.clusters_from(0)
    }

    /// Like `clusters`, from cluster `first` on.
    pub(crate) fn clusters_from(&self, first: u32) -> impl Iterator<Item = (u32, &Cluster)> {
        self.directory.records(first as usize..self.end())
    }

    /// Adds up the clusters' figures. Takes each cluster's lock for a moment: about 10 ns for each 2 MiB ever swapped.
    /// `Recount` (`verbs/recount.rs`) goes through a few clusters at a time.
    pub(crate) fn stats(&self) -> AreaStats {
        self.stats_of(0..self.end()).and(&self.own_stats())
    }

    /// The figures that are not of its clusters.
    pub(crate) fn own_stats(&self) -> AreaStats {
        AreaStats {
            table_bytes: self.directory.bytes() as u64,
            rejected: self.rejected(),
            ..AreaStats::default()
        }
    }

    /// The figures of the clusters with these numbers.
    pub(crate) fn stats_of(&self, numbers: Range<usize>) -> AreaStats {
        let extent = Arc::clone(&self.lists.lock().extent);
        let mut stats = AreaStats::default();
        for (id, record) in self.directory.records(numbers) {
            let Some(cluster) = record.lock() else {
                continue;
            };
            let bad = extent.bad_in(id).count() as u64;
            stats.slots_used += u64::from(cluster.state.used).saturating_sub(bad);
            stats.zero += u64::from(cluster.state.zero);
            stats.mapped += u64::from(cluster.mapped());
            if !cluster.place().is_empty() {
                let has_backing = self.is_virtual() || cluster.mapped() > 0;
                let tables = 1 + usize::from(has_backing);
                stats.clusters += 1;
                stats.table_bytes += (tables * TABLE_PAGES * PAGE_BYTES) as u64;
            }
            if cluster.state.extend.is_some() {
                stats.table_bytes += size_of::<ExtendTable>() as u64;
            }
            if cluster.state.groups.has_table() {
                stats.table_bytes += size_of::<GroupTable>() as u64;
            }
        }
        stats
    }

    /// Number of slots of a group, which is not the root.
    pub(crate) fn slots_of_group(&self, group: GroupIndex) -> u64 {
        let locked = self.clusters().filter_map(|(_, record)| record.lock());
        locked
            .map(|cluster| cluster.state.groups.count(group) as u64)
            .sum()
    }

    pub(crate) fn count_rejected(&self) {
        // Relaxed: a figure for people.
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of allocations that found no slot, since the start.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // All of them: a cluster may have tables without being in use, or be of a larger area before this one.
        for (_, record) in self.directory.all_records() {
            // SAFETY: `&mut self` proves that nobody else uses the area, and all its tables came from this source.
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
