//! Allocating slots: how an area finds the cluster to allocate from.
//!
//! For each order, each CPU allocates runs from a current cluster of its own. So pages evicted together get
//! neighbouring slots, and CPUs do not contend for a lock. Slots are not cached: a slot is taken when it is used. When
//! its current cluster has no run left, the CPU looks for another cluster in this order:
//!
//! 1. nonfull clusters of that order;
//! 2. an empty cluster, which gets the order and keeps it until it is empty again; else one that was never used;
//! 3. for single slots: clusters of order 0 with few free slots;
//! 4. for single slots: clusters of higher orders, first those without a free run (*stealing*);
//! 5. for single slots: another CPU's current cluster of any order.
//!
//! So runs and single slots stay apart as long as there is room. A single slot is refused only when there is none at
//! all. A run is refused much earlier, and the caller then asks for shorter ones. Runs have no step 3, because a
//! cluster of a higher order that has a free run is always nonfull.
//!
//! The CPU number is a hint: several threads may allocate with the same number. An area on a rotating device is used as
//! if there were one CPU, so that everything written lies together.
//!
//! Unlike the kernel's search, this one does not reclaim slots whose page is also in memory ("cache-only"). In the
//! kernel such a slot has count 0, and only the swap cache holds it. Here a count that falls to 0 frees the slot at
//! once, even if a frame holds a copy of its page; or the thread that is using the slot frees it. A page that was read
//! ahead (`verbs/read_ahead.rs`) still has references, so its slot cannot go. And if a resident page keeps its entry,
//! whoever keeps the entry holds a reference: the pager puts those when no area has room. So the reverse map
//! (`words/slot.rs`) needs no bit for such slots.
//!
//! Locks: a search holds the lists' lock, and taking a slot holds the cluster's. A search skips a busy cluster on a
//! list.

use super::Area;
use super::placement::{is_crowded, place_of};
use crate::base::sync::{AtomicU32, LockGuard, Ordering};
use crate::cluster::{Cluster, ClusterGuard, Lists, Place};
use crate::groups::{GroupId, GroupIndex, Groups};
use crate::words::entry::Entry;
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::order::Order;
use crate::words::slot::Word;

/// How many clusters of a list a search tries before it goes on to the next step. A busy cluster means that another
/// thread is putting slots there just now, and more than a few such clusters are unlikely.
const LIST_TRIES_MAX: usize = 8;

/// How often a search that found nothing waits for a busy cluster and looks again. Each time another thread has used
/// the cluster meanwhile, which is unlikely to go on for long.
const BUSY_WAITS_MAX: usize = 8;

/// Why no slot could be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// No memory for another cluster's tables, and no free slot in the clusters there are.
    #[error(
        "no memory for the swap tables of another {SLOTS_PER_CLUSTER} pages: raise the limit, or let entries be freed"
    )]
    NoMemory,
    /// Every slot is in use.
    #[error("all slots of the area are in use: let entries be freed, or add an area")]
    Full,
    /// The group given for the slot does not exist.
    #[error("the group of this page was removed: name one that exists")]
    NoGroup,
    /// No physical area has a slot to give.
    #[error(
        "no swap area has a slot for this page: all are in use, or their areas are failing or about to go: let entries \
         be freed, or add an area"
    )]
    NoSlot,
    /// The page's group may not have another slot of a physical area.
    #[error(
        "a swap limit of the page's group, or of one that it is in, leaves no slot for it: raise the limit or free \
         entries of the group"
    )]
    Limited,
}

/// The group that a slot will belong to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfGroup<'a> {
    pub(crate) groups: &'a Groups,
    pub(crate) id: GroupId,
}

impl OfGroup<'_> {
    /// The group's number to enter in the cluster. Makes room for it there.
    #[inline]
    fn index(self, cluster: &mut ClusterGuard<'_>) -> Result<GroupIndex, AllocError> {
        let group = self.groups.index_for_slot(self.id);
        let group = group.ok_or(AllocError::NoGroup)?;
        if cluster.state.groups.ensure(group) {
            Ok(group)
        } else {
            Err(AllocError::NoMemory)
        }
    }
}

impl Area {
    /// Takes a free run of `order` and stores `words` in its first slots: at least one word, and no more than the run
    /// has slots. The slots behind them stay free. The taken slots belong to `group`, or to the root group if it is
    /// `None`. Returns the first slot. For an order above 0 an error means that there is no such run, but there may be
    /// shorter ones.
    ///
    /// # Errors
    /// [`AllocError`]; nothing was taken.
    #[inline]
    pub(crate) fn allocate(
        &self,
        cpu: usize,
        order: Order,
        words: &[Word],
        group: Option<OfGroup<'_>>,
    ) -> Result<Entry, AllocError> {
        let current = self.current(cpu, order);
        loop {
            let id = current.load(Ordering::Acquire);
            if let Some(entry) = self.take_from(id, order, words, group)? {
                return Ok(entry);
            }
            // In each round somebody has taken the last run of a cluster since our look, so this ends.
            if let Err(error) = self.refill(current, order, id) {
                if order.is_slot() {
                    self.count_rejected();
                }
                return Err(error);
            }
        }
    }

    /// Like [`Area::allocate`], but only from the CPU's current cluster. `None` if that cluster has no such run left.
    #[inline]
    pub(crate) fn allocate_near(
        &self,
        cpu: usize,
        order: Order,
        words: &[Word],
        group: Option<OfGroup<'_>>,
    ) -> Option<Entry> {
        let id = self.current(cpu, order).load(Ordering::Acquire);
        self.take_from(id, order, words, group).ok().flatten()
    }

    /// Takes a run from cluster `id` if it is some CPU's current one. The cluster may have filled up since our look, or
    /// have been emptied and be another CPU's or of another order by now. Without a group the slots belong to the root
    /// group.
    #[inline]
    fn take_from(
        &self,
        id: u32,
        order: Order,
        words: &[Word],
        group: Option<OfGroup<'_>>,
    ) -> Result<Option<Entry>, AllocError> {
        let record = self.directory.get(id);
        let Some(mut cluster) = record.and_then(Cluster::lock) else {
            return Ok(None);
        };
        if !cluster.record().serves(order) {
            return Ok(None);
        }
        let is_mapped = words.first().is_some_and(|word| word.is_used());
        let index = self.prepare(&mut cluster, group, is_mapped)?;
        let slot = if order.is_slot() {
            words.first().and_then(|&word| cluster.take_slot(word))
        } else {
            cluster.take_run(order, words)
        };
        let Some(slot) = slot else {
            return Ok(None);
        };
        Ok(Some(self.enter(&mut cluster, id, slot, index)))
    }

    /// Like [`Area::allocate`], for single slots that page tables will name: one for each of `words`. Slots of one
    /// cluster are taken under one lock. Appends the slots to `taken`.
    ///
    /// # Errors
    /// [`AllocError`]; `taken` then has the slots that there were.
    pub(crate) fn allocate_each(
        &self,
        cpu: usize,
        words: &[Word],
        group: Option<OfGroup<'_>>,
        taken: &mut Vec<Entry>,
    ) -> Result<(), AllocError> {
        let current = self.current(cpu, Order::SLOT);
        let mut left = words;
        while !left.is_empty() {
            let id = current.load(Ordering::Acquire);
            let count = self.take_each_from(id, left, group, taken)?;
            left = &left[count..];
            // As in `allocate`, this ends.
            if count == 0
                && let Err(error) = self.refill(current, Order::SLOT, id)
            {
                self.count_rejected();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes slots for the first of `words` from cluster `id`, as many as it gives. Returns how many.
    fn take_each_from(
        &self,
        id: u32,
        words: &[Word],
        group: Option<OfGroup<'_>>,
        taken: &mut Vec<Entry>,
    ) -> Result<usize, AllocError> {
        let record = self.directory.get(id);
        let Some(mut cluster) = record.and_then(Cluster::lock) else {
            return Ok(0);
        };
        if !cluster.record().serves(Order::SLOT) {
            return Ok(0);
        }
        let index = self.prepare(&mut cluster, group, true)?;
        let mut count = 0;
        for &word in words {
            // The last slot may have put it away, and it is no CPU's any more.
            if !cluster.record().serves(Order::SLOT) {
                break;
            }
            let Some(slot) = cluster.take_slot(word) else {
                break;
            };
            taken.push(self.enter(&mut cluster, id, slot, index));
            count += 1;
        }
        Ok(count)
    }

    /// Makes the tables that slots of `group` need, also those for slots that page tables name. Returns the group's
    /// number. Done each time the lock is taken, because the cluster may have been emptied meanwhile.
    #[inline]
    fn prepare(
        &self,
        cluster: &mut ClusterGuard<'_>,
        group: Option<OfGroup<'_>>,
        is_mapped: bool,
    ) -> Result<GroupIndex, AllocError> {
        let index = match group {
            None => GroupIndex::ROOT,
            Some(group) => group.index(cluster)?,
        };
        if is_mapped && !self.prepare_mapped(cluster) {
            return Err(AllocError::NoMemory);
        }
        Ok(index)
    }

    /// Notes whose a taken slot is. The cluster is put away if its user can take no more from it.
    #[inline]
    fn enter(
        &self,
        cluster: &mut ClusterGuard<'_>,
        id: u32,
        slot: usize,
        group: GroupIndex,
    ) -> Entry {
        if group != GroupIndex::ROOT {
            cluster.state.groups.set(slot, group);
        }
        let goes_on = cluster.state.cursor != 0 && cluster.free_slots() > 0;
        if !goes_on || !cluster.order().is_slot() {
            self.retire_if_spent(cluster, id);
        }
        Entry::of(self.id, id, slot)
    }

    /// Puts a current cluster away if it has no run left for its user, or if the search came round and few slots are
    /// left. If many are left, the search goes through the cluster again.
    #[cold]
    fn retire_if_spent(&self, cluster: &mut ClusterGuard<'_>, id: u32) {
        let serves_runs = cluster.place() == Place::Current && !cluster.order().is_slot();
        let is_spent = if serves_runs {
            cluster.state.runs == 0
        } else {
            cluster.free_slots() == 0 || (cluster.state.cursor == 0 && is_crowded(cluster))
        };
        if is_spent {
            let place = self.place_for(cluster);
            self.relocate(cluster, id, place);
        }
    }

    /// Finds a cluster other than `stale` for the CPU. Does nothing if another thread has already done so.
    #[cold]
    fn refill(&self, current: &AtomicU32, order: Order, stale: u32) -> Result<(), AllocError> {
        let mut waits = 0;
        loop {
            let mut search = Search {
                area: self,
                lists: self.lists.lock(),
                busy: None,
            };
            if search.lists.is_closed {
                return Err(AllocError::Full);
            }
            let now = current.load(Ordering::Relaxed);
            // Also compares the place: the stale cluster may have been emptied and become this CPU's again.
            let serves = |record: &Cluster| record.serves(order);
            if now != stale || self.directory.get(now).is_some_and(serves) {
                return Ok(());
            }
            let error = match search.cluster_for(order) {
                Ok(id) => {
                    // Release pairs with the Acquire in `allocate`: the directory leads to the record.
                    current.store(id, Ordering::Release);
                    return Ok(());
                }
                Err(error) => error,
            };
            let busy = search
                .busy
                .filter(|_| order.is_slot() && waits < BUSY_WAITS_MAX);
            drop(search);
            match busy {
                Some(busy) => drop(busy.lock()),
                None => return Err(error),
            }
            waits += 1;
        }
    }
}

/// A search for a cluster.
struct Search<'a> {
    area: &'a Area,
    lists: LockGuard<'a, Lists>,
    /// A cluster that was skipped because another thread held its lock.
    busy: Option<&'a Cluster>,
}

impl<'a> Search<'a> {
    /// Finds a cluster that serves `order` from now on.
    fn cluster_for(&mut self, order: Order) -> Result<u32, AllocError> {
        if let Some(id) = self.take_listed(Place::Nonfull, order, Place::Current) {
            return Ok(id);
        }
        let error = match self.take_new(order) {
            Ok(id) => return Ok(id),
            Err(error) => error,
        };
        let crowded = if order.is_slot() {
            self.take_listed(Place::Frag, order, Place::Current)
                .or_else(|| self.steal())
        } else {
            None
        };
        crowded.or_else(|| self.any_current(order)).ok_or(error)
    }

    /// Takes a cluster off the list of its place and order, and makes it a current one.
    fn take_listed(&mut self, from: Place, order: Order, to: Place) -> Option<u32> {
        let mut id = self.lists.head(from, order);
        for _ in 0..LIST_TRIES_MAX {
            let record = self.area.directory.linked(id)?;
            // This is against the lock order, so we only try the lock.
            if let Some(mut cluster) = record.try_lock() {
                self.lists.remove(&self.area.directory, from, record);
                if from == Place::Free {
                    cluster.dedicate(order);
                }
                record.set_place(to);
                return Some(id);
            }
            self.busy = Some(record);
            id = Lists::after(record);
        }
        None
    }

    /// Takes a cluster made for runs to allocate single slots from. Clusters of the smallest runs go first.
    fn steal(&mut self) -> Option<u32> {
        Order::runs().find_map(|order| {
            self.take_listed(Place::Frag, order, Place::Stolen)
                .or_else(|| self.take_listed(Place::Nonfull, order, Place::Stolen))
        })
    }

    /// Another CPU's current cluster. It has a free run, else it would not be current. This is the last resort of an
    /// area that has fewer clusters than there are CPUs and orders.
    fn any_current(&self, order: Order) -> Option<u32> {
        let area = self.area;
        let serves = |id: &u32| {
            let record = area.directory.get(*id);
            record.is_some_and(|record| record.serves(order))
        };
        Order::all().find_map(|of| area.currents_of(of).find(serves))
    }

    /// Takes an emptied cluster, else one that was never used.
    fn take_new(&mut self, order: Order) -> Result<u32, AllocError> {
        if let Some(id) = self.take_listed(Place::Free, order, Place::Current) {
            return Ok(id);
        }
        let area = self.area;
        while self.lists.extent.reaches(self.lists.end) {
            let id = self.lists.end;
            let record = area.directory.ensure(id).ok_or(AllocError::NoMemory)?;
            if !record.ensure_tables(area.is_virtual(), &*area.pages) {
                return Err(AllocError::NoMemory);
            }
            // No entry of this cluster was ever handed out, so only an operation on a made-up entry could hold its
            // lock.
            let mut cluster = record.try_lock().ok_or(AllocError::NoMemory)?;
            self.lists.end = id + 1;
            cluster.dedicate(Order::SLOT);
            for slot in self.lists.extent.bad_in(id) {
                cluster.mark_bad(slot);
            }
            // A cluster with bad slots is never empty, so it would keep the order for good.
            let is_whole = cluster.state.used == 0;
            if is_whole {
                cluster.dedicate(order);
            }
            if cluster.free_slots() > 0 && (is_whole || order.is_slot()) {
                record.set_place(Place::Current);
                return Ok(id);
            }
            let place = place_of(&cluster);
            self.lists.push(&area.directory, place, id, record);
            record.set_place(place);
        }
        Err(AllocError::Full)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
