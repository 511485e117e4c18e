//! Where slots are taken from: the search of an area for a cluster to allocate from.
//!
//! Each CPU allocates runs of each order from a current cluster of its own, so that pages evicted together get
//! neighbouring slots and CPUs meet on no lock. There is no cache of slots: a slot is taken when it is used. When the
//! current cluster has no run left the CPU looks for another, in this order:
//!
//! 1. nonfull clusters of that order;
//! 2. an empty cluster, which gets the order and keeps it until it is empty again; else one that never was;
//! 3. for single slots: those of order 0 with few free slots;
//! 4. for single slots: clusters of the higher orders, first those without a free run (*stealing*);
//! 5. a current cluster of another CPU, for single slots of any order.
//!
//! So runs and single slots stay apart as long as there is room, and a single slot is refused only when there is none
//! at all. A run is refused much earlier: then the caller asks for shorter ones. Runs are not looked for as in step 3,
//! because a cluster of a higher order that has a free run is always nonfull.
//!
//! The CPU number is a hint: several threads may allocate with the same one. An area on a rotating device is used as if
//! there were one CPU, so that what all of them write lies together.
//!
//! Unlike the kernel's, this search frees no slots whose page is in memory as well ("cache-only"). There such a slot
//! has count 0 and is held by the swap cache alone. Here a count that falls to 0 frees the slot at once, whatever frame
//! holds a copy of its page, or has it freed by the thread that is just at it. What was read ahead
//! (`verbs/read_ahead.rs`) still has references, so its slot cannot go. And a page that is resident while its entry is
//! kept has the reference of whoever keeps it: the pager puts those when no area has room. So the reverse map
//! (`words/slot.rs`) needs no bit for such slots.
//!
//! Locks: the lists' for a search, the cluster's for taking; a busy cluster on a list is passed over.

use super::Area;
use super::placement::{is_crowded, place_of};
use crate::base::sync::{AtomicU32, LockGuard, Ordering};
use crate::cluster::{Cluster, ClusterGuard, Lists, Place};
use crate::groups::{GroupId, GroupIndex, Groups};
use crate::words::entry::Entry;
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::order::Order;
use crate::words::slot::Word;

/// How many clusters of a list are tried before going on to the next step: a busy one means that another thread is just
/// putting slots there, and more than a few busy ones are not to be expected.
const LIST_TRIES_MAX: usize = 8;

/// How often a search that found nothing waits for a cluster that was busy and looks again. Each time another thread
/// has used the cluster meanwhile; that this goes on for long is not to be expected.
const BUSY_WAITS_MAX: usize = 8;

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
    /// The group that the slot was to be of does not exist.
    #[error("the group of this page was removed: name one that exists")]
    NoGroup,
    /// A slot of a physical area was asked for, and none of them has one to give.
    #[error(
        "no swap area has a slot for this page: all are in use, or their areas are failing or about to go: let entries \
         be freed, or add an area"
    )]
    NoSlot,
    /// A slot of a physical area was asked for, and the page's group may not have another one.
    #[error(
        "a swap limit of the page's group, or of one that it is in, leaves no slot for it: raise the limit or free \
         entries of the group"
    )]
    Limited,
}

/// The group that a slot is to be of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfGroup<'a> {
    pub(crate) groups: &'a Groups,
    pub(crate) id: GroupId,
}

impl OfGroup<'_> {
    /// The number to put down in a cluster, which has room for it then.
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
    /// Takes a free run of `order` and gives its first slots `words`, at least one and not more than the run has; slots
    /// behind them stay free. They are of `group`; without one they are the root group's. Returns the first slot. For
    /// an order above 0 an error says that there is no such run, and shorter ones may be there.
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
            // Each way round somebody has taken the last run of a cluster since our look, so this ends.
            if let Err(error) = self.refill(current, order, id) {
                if order.is_slot() {
                    self.count_rejected();
                }
                return Err(error);
            }
        }
    }

    /// As [`Area::allocate`], but from the CPU's current cluster alone; `None` if that has no such run left.
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

    /// Takes a run from cluster `id` if it is somebody's current one: the CPU's cluster may have filled up, even have
    /// been emptied and be another CPU's or of another order by now. Slots without a group are the root group's.
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
        let record = cluster.record();
        if !record.serves(order) {
            return Ok(None);
        }
        let index = match group {
            None => GroupIndex::ROOT,
            Some(group) => group.index(&mut cluster)?,
        };
        // Each time the lock was taken: the cluster may have been emptied meanwhile.
        let is_mapped = words.first().is_some_and(|word| word.is_used());
        if is_mapped && !self.prepare_mapped(&cluster) {
            return Err(AllocError::NoMemory);
        }
        let slot = if order.is_slot() {
            words.first().and_then(|&word| cluster.take_slot(word))
        } else {
            cluster.take_run(order, words)
        };
        let Some(slot) = slot else {
            return Ok(None);
        };
        if group.is_some() {
            cluster.state.groups.set(slot, index);
        }
        if cluster.state.cursor == 0 || cluster.free_slots() == 0 || !record.order().is_slot() {
            self.retire_if_spent(&mut cluster, id);
        }
        Ok(Some(Entry::of(self.id, id, slot)))
    }

    /// Puts a current cluster away that has no run left for whom it serves, or few slots after the search came round.
    /// One with many is gone through again.
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

    /// Finds the CPU another cluster than `stale`. Does nothing if another thread has done so.
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
            // Compared by place too: the stale cluster may have been emptied and become this CPU's again.
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
    /// A cluster that was passed over because another thread was at it.
    busy: Option<&'a Cluster>,
}

impl<'a> Search<'a> {
    /// A cluster that serves `order` from now on.
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

    /// Takes a cluster off the list of its place and order and makes it somebody's current one.
    fn take_listed(&mut self, from: Place, order: Order, to: Place) -> Option<u32> {
        let mut id = self.lists.head(from, order);
        for _ in 0..LIST_TRIES_MAX {
            let record = self.area.directory.linked(id)?;
            // Against the lock order, so only if nobody holds it.
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

    /// Takes single slots out of a cluster for runs. The smallest runs are given up first.
    fn steal(&mut self) -> Option<u32> {
        Order::runs().find_map(|order| {
            self.take_listed(Place::Frag, order, Place::Stolen)
                .or_else(|| self.take_listed(Place::Nonfull, order, Place::Stolen))
        })
    }

    /// A cluster that another CPU allocates from; it has a free run, or would be current no more. Last resort of an
    /// area with fewer clusters than CPUs and orders.
    fn any_current(&self, order: Order) -> Option<u32> {
        let area = self.area;
        let serves = |id: &u32| {
            let record = area.directory.get(*id);
            record.is_some_and(|record| record.serves(order))
        };
        Order::all().find_map(|of| area.currents_of(of).find(serves))
    }

    /// Takes an emptied cluster, else one that never was.
    fn take_new(&mut self, order: Order) -> Result<u32, AllocError> {
        if let Some(id) = self.take_listed(Place::Free, order, Place::Current) {
            return Ok(id);
        }
        let area = self.area;
        while area.slots_of(self.lists.end).start < area.slots {
            let id = self.lists.end;
            let record = area.directory.ensure(id).ok_or(AllocError::NoMemory)?;
            if !record.ensure_tables(area.is_virtual(), &*area.pages) {
                return Err(AllocError::NoMemory);
            }
            // Entries of this cluster were never handed out; only an operation on a made-up one could hold its lock.
            let mut cluster = record.try_lock().ok_or(AllocError::NoMemory)?;
            self.lists.end = id + 1;
            cluster.dedicate(Order::SLOT);
            for slot in area.bad_in(id) {
                cluster.mark_bad(slot);
            }
            // One with bad slots is never empty, so it would keep the order for good.
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
