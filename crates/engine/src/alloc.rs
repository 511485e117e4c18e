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
//! holds a copy of its page, or has it freed by the thread that is just at it. What was read ahead (`read_ahead.rs`)
//! still has references, so its slot cannot go. And a page that is resident while its entry is kept has the reference
//! of whoever keeps it: the pager puts those when no area has room. So the reverse map's cache-only bit (`table.rs`) is
//! never set.
//!
//! Locks: the lists' for a search, the cluster's for taking; a busy cluster on a list is passed over.

use crate::area::Area;
use crate::cluster::{Cluster, ClusterGuard, Place, SLOTS_PER_CLUSTER};
use crate::entry::Entry;
use crate::groups::{GroupId, GroupIndex, Groups};
use crate::lists::Lists;
use crate::order::Order;
use crate::sync::{AtomicU32, LockGuard, Ordering};
use crate::table::Word;

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

/// Whose a slot is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(crate) groups: &'a Groups,
    pub(crate) id: GroupId,
}

impl Owner<'_> {
    /// The number to put down in a cluster, which has room for it then.
    #[inline]
    fn index(self, cluster: &mut ClusterGuard<'_>) -> Result<GroupIndex, AllocError> {
        let group = self.groups.index_for_slot(self.id)?;
        if cluster.ensure_groups(group) {
            Ok(group)
        } else {
            Err(AllocError::NoMemory)
        }
    }
}

impl Area {
    /// Takes a free run of `order` and gives its first slots `words`, at least one and not more than the run has; slots
    /// behind them stay free. They are `owner`'s; without one they are the root group's. Returns the first slot. For an
    /// order above 0 an error says that there is no such run, and shorter ones may be there.
    ///
    /// # Errors
    /// [`AllocError`]; nothing was taken.
    #[inline]
    pub(crate) fn allocate(
        &self,
        cpu: usize,
        order: Order,
        words: &[Word],
        owner: Option<Owner<'_>>,
    ) -> Result<Entry, AllocError> {
        let current = self.current(cpu, order);
        loop {
            let id = current.load(Ordering::Acquire);
            if let Some(entry) = self.take_from(id, order, words, owner)? {
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
        owner: Option<Owner<'_>>,
    ) -> Option<Entry> {
        let id = self.current(cpu, order).load(Ordering::Acquire);
        self.take_from(id, order, words, owner).ok().flatten()
    }

    /// Takes a run from cluster `id` if it is somebody's current one: the CPU's cluster may have filled up, even have
    /// been emptied and be another CPU's or of another order by now. Slots without an owner are the root group's.
    #[inline]
    fn take_from(
        &self,
        id: u32,
        order: Order,
        words: &[Word],
        owner: Option<Owner<'_>>,
    ) -> Result<Option<Entry>, AllocError> {
        let record = self.directory.get(id);
        let Some(mut cluster) = record.and_then(Cluster::lock) else {
            return Ok(None);
        };
        let record = cluster.record();
        if !record.serves(order) {
            return Ok(None);
        }
        let group = match owner {
            None => GroupIndex::ROOT,
            Some(owner) => owner.index(&mut cluster)?,
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
        if owner.is_some() {
            cluster.set_group(slot, group);
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

/// Free slots from which a cluster of order 0 counts as nonfull. A search of such a cluster looks at 8 words for each
/// slot found; what waits in fuller clusters is at most an eighth of the table memory.
pub(crate) const NONFULL_FREE_MIN: usize = if SLOTS_PER_CLUSTER >= 16 {
    SLOTS_PER_CLUSTER / 8
} else {
    2
};

fn is_crowded(cluster: &ClusterGuard<'_>) -> bool {
    cluster.free_slots() < NONFULL_FREE_MIN
}

/// Where a cluster that is nobody's current one belongs.
pub(crate) fn place_of(cluster: &ClusterGuard<'_>) -> Place {
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::area::testing::{assert_sound, free, used};
    use crate::entry::AreaId;
    use crate::pages::HeapPages;

    const CLUSTER: u64 = SLOTS_PER_CLUSTER as u64;

    fn area(slots: u64, bad: &[u64], cpus: usize) -> Area {
        let id = AreaId::physical(0).expect("a number");
        Area::new(id, slots, bad.into(), cpus, Arc::new(HeapPages::new())).expect("memory")
    }

    fn single(area: &Area, cpu: usize) -> Result<Entry, AllocError> {
        area.allocate(cpu, Order::SLOT, &[used()], None)
    }

    /// A whole run.
    fn run(area: &Area, cpu: usize, order: Order) -> Result<Entry, AllocError> {
        area.allocate(cpu, order, &vec![used(); order.slots()], None)
    }

    fn free_run(area: &Area, first: Entry, slots: usize) {
        (0..slots).for_each(|at| free(area, first.behind(at)));
    }

    fn cluster_of(entry: Entry) -> u32 {
        entry.position().0
    }

    #[test]
    fn runs_are_aligned_and_apart_from_other_orders() {
        let area = area(CLUSTER * 16, &[], 1);
        let mut taken = vec![single(&area, 0).expect("room")];
        for order in Order::runs() {
            let first = run(&area, 0, order).expect("room");
            assert_eq!(first.position().1 % order.slots(), 0, "{order:?}");
            assert!(
                taken
                    .iter()
                    .all(|&other| cluster_of(other) != cluster_of(first))
            );
            taken.push(first);
            if order.slots() < SLOTS_PER_CLUSTER {
                let next = run(&area, 0, order).expect("room");
                assert_eq!(next, first.behind(order.slots()), "the next one follows");
                free_run(&area, next, order.slots());
            }
        }
        let in_use: usize = Order::all().map(Order::slots).sum();
        assert_eq!(assert_sound(&area), in_use as u64);
        for (order, first) in Order::all().zip(taken) {
            free_run(&area, first, order.slots());
        }
        assert_eq!(assert_sound(&area), 0);
    }

    #[test]
    fn a_run_is_free_again_when_all_its_slots_are() {
        for order in Order::runs() {
            let area = area(CLUSTER, &[], 1);
            let count = SLOTS_PER_CLUSTER / order.slots();
            let all: Vec<Entry> = (0..count)
                .map(|_| run(&area, 0, order).expect("room"))
                .collect();
            assert!(run(&area, 0, order).is_err());
            // The end of one run and the beginning of the next are no run.
            if let [first, second, ..] = all[..] {
                let half = order.slots() / 2;
                free_run(&area, first.behind(half), half);
                free_run(&area, second, half);
                assert!(run(&area, 0, order).is_err(), "{order:?}");
                free_run(&area, second.behind(half), half);
                assert_eq!(run(&area, 0, order), Ok(second));
            }
            assert_sound(&area);
        }
    }

    #[test]
    fn a_tail_is_left_free_and_found_by_single_slots() {
        for order in Order::runs().filter(|order| order.slots() > 2) {
            let area = area(CLUSTER, &[], 1);
            let words = vec![used(); order.slots() - 1];
            let mut taken = 0;
            while let Ok(first) = area.allocate(0, order, &words, None) {
                assert_eq!(first.position().1 % order.slots(), 0);
                taken += words.len() as u64;
            }
            assert_eq!(assert_sound(&area), taken);
            while let Ok(entry) = single(&area, 0) {
                assert_eq!(entry.position().1 % order.slots(), words.len());
                taken += 1;
            }
            assert_eq!((assert_sound(&area), taken), (CLUSTER, CLUSTER));
        }
    }

    #[test]
    fn single_slots_are_refused_only_when_none_is_left() {
        let area = area(CLUSTER * 12 + 1, &[CLUSTER + 1], 2);
        for order in Order::all() {
            run(&area, 0, order).expect("room");
        }
        // What another CPU gets of that is less, and must not be lost.
        let others = Order::runs().filter_map(|order| run(&area, 1, order).ok());
        assert!(others.count() > 0);
        let capacity = CLUSTER * 12;
        let mut left = capacity - assert_sound(&area);
        while single(&area, 1).is_ok() {
            left -= 1;
        }
        assert_eq!(left, 0);
        assert_eq!(assert_sound(&area), capacity);
        assert_eq!(area.rejected(), 1);
    }

    #[test]
    fn stealing_begins_with_the_smallest_runs_and_where_none_is_free() {
        let (small, large) = (Order::from_raw(1), Order::from_raw(2));
        let area = area(CLUSTER * 3, &[], 1);
        let fill = |order: Order| {
            let count = SLOTS_PER_CLUSTER / order.slots();
            (0..count)
                .map(|_| run(&area, 0, order).expect("room"))
                .collect::<Vec<_>>()
        };
        let (with_run, without, larger) = (fill(small), fill(small), fill(large));
        free(&area, larger[0]);
        free_run(&area, with_run[0], 2);
        free(&area, without[0]);
        let order = [without[0], with_run[0], with_run[0].behind(1), larger[0]];
        for expected in order {
            assert_eq!(single(&area, 0), Ok(expected));
            assert_sound(&area);
        }
        assert_eq!(single(&area, 0), Err(AllocError::Full));
        // A cluster that was stolen from keeps its order: a run that is freed in it is one again.
        free_run(&area, with_run[0], 2);
        assert_eq!(run(&area, 0, small), Ok(with_run[0]));
    }

    #[test]
    fn an_empty_cluster_is_there_for_every_order() {
        let area = area(CLUSTER, &[], 1);
        for order in Order::runs().chain(Order::runs().rev()) {
            let first = run(&area, 0, order).expect("the only cluster is empty");
            free_run(&area, first, order.slots());
            assert_eq!(assert_sound(&area), 0);
        }
        // Single slots are taken from where runs are taken now, rather than from nowhere.
        let small = Order::from_raw(1);
        let first = run(&area, 0, small).expect("the only cluster is empty");
        let beside = single(&area, 0).expect("room");
        assert_eq!(cluster_of(beside), cluster_of(first));
        assert_sound(&area);
    }

    #[test]
    fn a_cluster_with_bad_slots_serves_no_runs() {
        let area = area(CLUSTER * 2 - 1, &[0], 1);
        for order in Order::runs() {
            assert_eq!(run(&area, 0, order), Err(AllocError::Full));
        }
        let mut taken = 0;
        while single(&area, 0).is_ok() {
            taken += 1;
        }
        assert_eq!((taken, assert_sound(&area)), (CLUSTER * 2 - 2, taken));
    }

    /// What threads have done to an area, counted before and after each step.
    #[derive(Default)]
    struct Done {
        taking: AtomicU64,
        taken: AtomicU64,
        freeing: AtomicU64,
        freed: AtomicU64,
    }

    fn add(counter: &AtomicU64, slots: usize) {
        counter.fetch_add(slots as u64, Ordering::SeqCst);
    }

    /// Takes and frees runs of random orders, which fill the area now and then, and frees all in the end.
    fn churn(area: &Area, done: &Done, cpu: usize) {
        const STEPS: usize = if cfg!(miri) { 20 } else { 20_000 };
        let mut state = 0x9e37_79b9_7f4a_7c15 + cpu;
        let mut runs: Vec<(Entry, usize)> = Vec::new();
        for _ in 0..STEPS {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let random = state >> 33;
            if random % 5 < 3 || runs.is_empty() {
                // Mostly single slots, and some runs with a tail.
                let order = Order::all().nth((random / 8).trailing_zeros() as usize);
                let order = order.unwrap_or(Order::SLOT);
                let slots = order.slots() - usize::from(random % 2 == 1 && order.slots() > 2);
                add(&done.taking, slots);
                if let Ok(first) = area.allocate(cpu, order, &vec![used(); slots], None) {
                    add(&done.taken, slots);
                    runs.push((first, slots));
                    continue;
                }
                // It took nothing: as if it had been freed at once. In this order, so that neither bound is missed.
                add(&done.freeing, slots);
                add(&done.freed, slots);
                add(&done.taken, slots);
            }
            if !runs.is_empty() {
                let (first, slots) = runs.swap_remove(random % runs.len());
                add(&done.freeing, slots);
                free_run(area, first, slots);
                add(&done.freed, slots);
            }
        }
        for (first, slots) in runs {
            add(&done.freeing, slots);
            free_run(area, first, slots);
            add(&done.freed, slots);
        }
    }

    #[test]
    fn counters_are_exact_when_quiet_and_bounded_by_what_was_done_meanwhile() {
        const CPUS: usize = 3;
        const ROUNDS: usize = if cfg!(miri) { 1 } else { 3 };
        let area = area(CLUSTER * 6 + 2, &[0, 1, CLUSTER * 4], CPUS - 1);
        let capacity = CLUSTER * 6 - 1;
        let done = Done::default();
        let load = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        for _ in 0..ROUNDS {
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..CPUS)
                    .map(|cpu| {
                        let (area, done) = (&area, &done);
                        scope.spawn(move || churn(area, done, cpu))
                    })
                    .collect();
                while workers.iter().any(|worker| !worker.is_finished()) {
                    let (freed, taken) = (load(&done.freed), load(&done.taken));
                    let read = area.stats().slots_used;
                    let (taking, freeing) = (load(&done.taking), load(&done.freeing));
                    assert!(
                        read <= (taking - freed).min(capacity),
                        "{read} of {taking} - {freed}"
                    );
                    assert!(read + freeing >= taken, "{read} of {taken} - {freeing}");
                }
            });
            // Each thread frees what it took; now fill the area to the last slot and compare again.
            assert_eq!(assert_sound(&area), 0);
            let all: Vec<Entry> = std::iter::from_fn(|| single(&area, 0).ok()).collect();
            assert_eq!(
                (all.len() as u64, assert_sound(&area)),
                (capacity, capacity)
            );
            all.into_iter().for_each(|entry| free(&area, entry));
        }
    }
}
