//! The physical areas of an engine: which there are, and which is used next.
//!
//! Areas are used by priority, the highest first. Those of equal priority take turns: a CPU stays with an area until it
//! has used up its cluster there and then goes on to the next, so that all of them are filled evenly and all their
//! storage works at once. An area that is full, closed, or failed to take a page, is passed over.
//!
//! An entry leads to its area without a lock. So the record of an area that is swapped off stays, and the area that
//! gets its number next hangs on it: finding it costs one more step for each that was before, and the number with the
//! fewest is taken. An area cannot go while a slot of it is in use, so whoever has a slot finds the right one.
//!
//! Several pages get a run of slots, the longest that any area of a priority has; a lower priority's longer run is not
//! preferred to a shorter one.
//!
//! Lock order: the order of areas, then a cluster, then its area's lists. No lock is held while storage is read or
//! written.

mod closing;
mod discard;
mod physical;
mod tiers;

use std::fmt;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::alloc::Owner;
use crate::area::{Area, AreaStats};
use crate::cluster::ClusterGuard;
use crate::entry::{AreaId, Entry, SLOTS_MAX};
use crate::order::Order;
use crate::pages::{Page, PageSource};
use crate::storage::{ReadRun, Storage, StorageError};
use crate::sync::{AtomicU32, AtomicU64, Lock, OncePtr, Ordering};
use crate::table::Word;

pub use discard::Discard;
pub(crate) use physical::Physical;

/// How many physical areas an engine can have. The kernel has room for 23 to 29; a number in an entry is 8 bits wide.
/// Few under the model checkers, which make many engines.
pub const AREAS_MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// The priority of an area that was given none. All of these are equal, and below every one that was given.
pub const PRIORITY_DEFAULT: i16 = -1;

/// No CPU's area.
const NO_AREA: u32 = u32::MAX;

/// An area to be used.
#[derive(Debug)]
pub struct NewArea {
    /// Slots that its storage has room for, bad ones included.
    pub slots: u64,
    /// Slots that are never to be used: the header's, and places where the device is damaged. In any order.
    pub bad: Vec<u64>,
    /// 0 to 32767, or [`PRIORITY_DEFAULT`].
    pub priority: i16,
    /// When its storage is told what it need not keep.
    pub discard: Discard,
    /// Its device takes long to go to another place, as a disk that turns does: all CPUs allocate from the same
    /// clusters, so that what they write lies together.
    pub rotating: bool,
    /// Its bytes.
    pub storage: Box<dyn Storage>,
}

/// Why an area cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SwapOnError {
    /// There are as many as there can be.
    #[error("{AREAS_MAX} areas are in use, the most there can be: use fewer, larger ones")]
    TooMany,
    /// No slot in it can be used.
    #[error("the area has no usable slot ({slots} slots, {bad} of them bad): make it larger")]
    Empty {
        /// All slots.
        slots: u64,
        /// Of them, bad.
        bad: u64,
    },
    /// More slots than an entry can name.
    #[error("the area has {slots} slots, at most {SLOTS_MAX} can be named: make it smaller")]
    TooLarge {
        /// All slots.
        slots: u64,
    },
    /// A bad slot that is none of the area's.
    #[error("slot {slot} is said to be bad, and the area ends before it: check its header")]
    BadBeyondEnd {
        /// The slot.
        slot: u64,
    },
    /// A priority that is none.
    #[error("a priority of {priority} was given, expected 0 to 32767: choose a number in between")]
    Priority {
        /// What was given.
        priority: i16,
    },
    /// No memory for its directory.
    #[error("no memory for the area's tables: raise the limit")]
    NoMemory,
}

/// Figures of one area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AreaFigures {
    /// Which area.
    pub id: AreaId,
    /// Bytes that it can hold.
    pub size_bytes: u64,
    /// Bytes in use now.
    pub used_bytes: u64,
    /// Its priority.
    pub priority: i16,
    /// Bytes of its tables.
    pub table_bytes: u64,
    /// Pages read so far.
    pub pages_read: u64,
    /// Pages written so far.
    pub pages_written: u64,
    /// Requests that failed so far.
    pub errors: u64,
    /// Pages discarded so far.
    pub pages_discarded: u64,
    /// Discards that failed so far.
    pub discard_errors: u64,
    /// It could not take a page the last time.
    pub failing: bool,
    /// Why it could not take a page the last time that it failed to.
    pub last_error: Option<StorageError>,
    /// It is being swapped off.
    pub closing: bool,
}

/// All physical areas.
pub(crate) struct Areas {
    /// By number, the first area that had it.
    areas: [OncePtr<Physical>; AREAS_MAX],
    /// Highest priority first; among equals the one whose turn it is.
    order: Lock<Vec<AreaId>>,
    /// Number of the area from which each CPU takes runs of each order.
    currents: Box<[CachePadded<[AtomicU32; Order::COUNT]>]>,
    pages: Arc<dyn PageSource>,
    /// Bytes of the tables of areas that were swapped off.
    retired_bytes: AtomicU64,
}

impl Areas {
    pub(crate) fn new(cpus: usize, pages: Arc<dyn PageSource>) -> Areas {
        let none = || CachePadded::new(std::array::from_fn(|_| AtomicU32::new(NO_AREA)));
        Areas {
            areas: std::array::from_fn(|_| OncePtr::new()),
            order: Lock::new(Vec::new()),
            currents: (0..cpus).map(|_| none()).collect(),
            pages,
            retired_bytes: AtomicU64::new(0),
        }
    }

    /// Begins to use an area, behind those of the same priority.
    pub(crate) fn add(&self, mut new: NewArea) -> Result<AreaId, SwapOnError> {
        check(&mut new)?;
        // Without a lock: a large device is at it for a while.
        let discarded = match new.discard {
            Discard::Once => discard::discard_whole(&new),
            Discard::None | Discard::Pages => Ok(0),
        };
        let mut order = self.order.lock();
        let (id, place) = self.vacant().ok_or(SwapOnError::TooMany)?;
        let physical = self.open(id, new)?;
        physical.count_discard(discarded);
        let priority = physical.priority;
        place
            .get_or_try_init(|| Some(Box::new(physical)))
            .ok_or(SwapOnError::NoMemory)?;
        let behind = order.partition_point(|&other| self.priority_of(other) >= priority);
        order.insert(behind, id);
        Ok(id)
    }

    /// A number that no area has, and where the area that gets it is hung. Under the lock of the order.
    fn vacant(&self) -> Option<(AreaId, &OncePtr<Physical>)> {
        let places = self.areas.iter().enumerate().filter_map(|(index, first)| {
            let (mut place, mut before) = (first, 0_usize);
            while let Some(physical) = place.get() {
                if !physical.is_gone() {
                    return None;
                }
                (place, before) = (&physical.next, before + 1);
            }
            Some((before, AreaId::physical(index)?, place))
        });
        let (_, id, place) = places.min_by_key(|(before, ..)| *before)?;
        Some((id, place))
    }

    fn open(&self, id: AreaId, new: NewArea) -> Result<Physical, SwapOnError> {
        let bad = new.bad.clone().into_boxed_slice();
        let cpus = if new.rotating { 1 } else { self.currents.len() };
        let pages = Arc::clone(&self.pages);
        let area = Area::new(id, new.slots, bad, cpus, pages).ok_or(SwapOnError::NoMemory)?;
        area.set_discards(new.discard == Discard::Pages);
        Ok(Physical::new(area, new))
    }

    #[inline]
    pub(crate) fn get(&self, id: AreaId) -> Option<&Physical> {
        let mut physical = self.areas.get(id.physical_index()?)?.get()?;
        while let Some(next) = physical.next.get() {
            physical = next;
        }
        (!physical.is_gone()).then_some(physical)
    }

    fn priority_of(&self, id: AreaId) -> i16 {
        self.get(id).map_or(PRIORITY_DEFAULT, |area| area.priority)
    }

    /// Were there never any? A hint for pages that do not compress: with areas, they are worth asking for a slot.
    pub(crate) fn is_empty(&self) -> bool {
        self.areas[0].get().is_none()
    }

    /// Takes neighbouring slots for pages with these `words`, as many from the first on as it finds room for in one
    /// place. Returns the first slot and how many; `None` if no area has room for any, or no words are given.
    pub(crate) fn allocate(&self, cpu: usize, words: &[Word]) -> Option<(Entry, usize)> {
        self.allocate_for(cpu, words, None)
    }

    /// Takes a slot that is directly mapped, as its `word` says. `None` if no area has one to give, or there is no
    /// memory for its tables, or its owner is gone.
    pub(crate) fn allocate_mapped(
        &self,
        cpu: usize,
        word: Word,
        owner: Option<Owner<'_>>,
    ) -> Option<Entry> {
        debug_assert!(word.is_used());
        let (entry, _) = self.allocate_for(cpu, &[word], owner)?;
        Some(entry)
    }

    fn allocate_for(
        &self,
        cpu: usize,
        words: &[Word],
        owner: Option<Owner<'_>>,
    ) -> Option<(Entry, usize)> {
        let order = Order::for_pages(words.len())?;
        let index = self.current(cpu, order).load(Ordering::Acquire);
        self.take_near(cpu, index, order, words, owner)
            .or_else(|| self.take_in_turn(cpu, order, words, owner))
            .or_else(|| self.allocate_discarded(cpu, order, words, owner))
    }

    #[inline]
    fn current(&self, cpu: usize, order: Order) -> &AtomicU32 {
        &self.currents[cpu % self.currents.len()][order.index()]
    }

    /// Takes a run from the CPU's cluster in the area with this index.
    fn take_near(
        &self,
        cpu: usize,
        index: u32,
        order: Order,
        words: &[Word],
        owner: Option<Owner<'_>>,
    ) -> Option<(Entry, usize)> {
        let physical = AreaId::physical(index as usize).and_then(|id| self.get(id))?;
        let words = up_to(order, words);
        if physical.is_failing() {
            return None;
        }
        let first = physical.area.allocate_near(cpu, order, words, owner)?;
        physical.count_taken(words.len());
        Some((first, words.len()))
    }

    /// The CPU has used up its cluster of this order, or never had one: takes the longest run of the highest priority
    /// that has any.
    #[cold]
    fn take_in_turn(
        &self,
        cpu: usize,
        order: Order,
        words: &[Word],
        owner: Option<Owner<'_>>,
    ) -> Option<(Entry, usize)> {
        let mut areas = self.order.lock();
        let equals = areas.chunk_by_mut(|&a, &b| self.priority_of(a) == self.priority_of(b));
        for equals in equals {
            let longest = order
                .and_below()
                .find_map(|order| self.take_of_equals(cpu, equals, order, words, owner));
            if longest.is_some() {
                return longest;
            }
        }
        None
    }

    /// Takes a run from the CPU's area for this order; else from the next in turn, with which the CPU then stays.
    fn take_of_equals(
        &self,
        cpu: usize,
        equals: &mut [AreaId],
        order: Order,
        words: &[Word],
        owner: Option<Owner<'_>>,
    ) -> Option<(Entry, usize)> {
        let current = self.current(cpu, order);
        let index = current.load(Ordering::Relaxed);
        if equals.iter().any(|&id| index_of(id) == index)
            && let Some(taken) = self.take_near(cpu, index, order, words, owner)
        {
            return Some(taken);
        }
        let words = up_to(order, words);
        let mut in_turn = equals.iter().enumerate();
        let (at, first) = in_turn
            .find_map(|(at, &id)| Some((at, self.take_of(id, cpu, order, words, owner)?)))?;
        // Release pairs with the Acquire in `allocate`: the area is there.
        current.store(index_of(equals[at]), Ordering::Release);
        equals[at..].rotate_left(1);
        Some((first, words.len()))
    }

    /// Takes a run of an area that does not fail.
    fn take_of(
        &self,
        id: AreaId,
        cpu: usize,
        order: Order,
        words: &[Word],
        owner: Option<Owner<'_>>,
    ) -> Option<Entry> {
        let physical = self.get(id).filter(|physical| !physical.is_failing())?;
        let first = physical.area.allocate(cpu, order, words, owner).ok()?;
        physical.count_taken(words.len());
        Some(first)
    }

    /// Frees a slot that held a page.
    pub(crate) fn free(&self, entry: Entry) {
        self.give_back(entry);
        self.note_freed(entry);
    }

    /// Frees a directly mapped slot, whose cluster is locked.
    pub(crate) fn release_mapped(&self, cluster: &mut ClusterGuard<'_>, entry: Entry) {
        if let Some(physical) = self.get(entry.area()) {
            physical.release_slot(cluster, entry);
        }
    }

    /// A slot was freed that held a page: if its area failed for want of room, there is some again.
    pub(crate) fn note_freed(&self, entry: Entry) {
        if let Some(physical) = self.get(entry.area()) {
            physical.set_failing(false);
        }
    }

    /// Frees a slot that could not be written.
    pub(crate) fn give_back(&self, entry: Entry) {
        let physical = self.get(entry.area());
        let locked = physical.and_then(|physical| Some((physical, physical.area.lock(entry)?)));
        if let Some((physical, (mut cluster, _))) = locked {
            physical.release_slot(&mut cluster, entry);
        }
    }

    /// The entry whose page a physical slot holds, or did a moment ago: the virtual one that it stands behind, or the
    /// slot itself if it is directly mapped. Takes no lock.
    pub(crate) fn owner(&self, physical: Entry) -> Option<Entry> {
        let (cluster, slot) = self.get(physical.area())?.area.locate(physical)?;
        let word = cluster.word(slot);
        if word.is_used() {
            Some(physical)
        } else {
            word.owner()
        }
    }

    /// The areas that have, or had, directly mapped slots, by their numbers.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = &Physical> {
        let areas = self.all().map(|(_, physical)| physical);
        areas.filter(|physical| physical.area.is_mapped())
    }

    /// Marks the page in a slot as read. The caller has it pinned.
    pub(crate) fn mark_read(&self, physical: Entry) {
        let area = self.get(physical.area());
        if let Some((cluster, slot)) = area.and_then(|area| area.area.locate(physical)) {
            cluster.mark_read(slot);
        }
    }

    /// Whether the area's storage answers at once.
    pub(crate) fn is_quick(&self, id: AreaId) -> bool {
        self.get(id).is_some_and(Physical::is_quick)
    }

    /// Reads runs of neighbouring slots of one area.
    pub(crate) fn read_runs(&self, id: AreaId, runs: &mut [ReadRun<'_>]) {
        match self.get(id) {
            Some(physical) => physical.read_runs(runs),
            None => {
                let gone = Err(StorageError::Short);
                runs.iter_mut().for_each(|run| run.outcome = gone);
            }
        }
    }

    /// Writes pages to neighbouring slots of one area, of which `first` is the first.
    pub(crate) fn write(&self, first: Entry, pages: &[&Page]) -> Result<(), StorageError> {
        let physical = self.get(first.area()).ok_or(StorageError::Short)?;
        physical.write(first.offset(), pages)
    }

    /// All areas, by their numbers.
    fn all(&self) -> impl Iterator<Item = (AreaId, &Physical)> {
        let ids = (0..AREAS_MAX).filter_map(AreaId::physical);
        ids.filter_map(|id| Some((id, self.get(id)?)))
    }

    /// Sums over all areas.
    pub(crate) fn stats(&self) -> AreaStats {
        let of_each = self.all().map(|(_, physical)| physical.area.stats());
        of_each.fold(AreaStats::default(), |sum, of_one| sum.and(&of_one))
    }

    /// Figures of all areas, by their numbers.
    pub(crate) fn figures(&self) -> Vec<AreaFigures> {
        self.all()
            .map(|(id, physical)| physical.figures(id))
            .collect()
    }
}

/// Whether an area can be used. Puts its bad slots in order.
fn check(new: &mut NewArea) -> Result<(), SwapOnError> {
    let (slots, priority) = (new.slots, new.priority);
    new.bad.sort_unstable();
    new.bad.dedup();
    let bad = new.bad.len() as u64;
    if slots > SLOTS_MAX {
        return Err(SwapOnError::TooLarge { slots });
    }
    if let Some(&slot) = new.bad.last().filter(|&&slot| slot >= slots) {
        return Err(SwapOnError::BadBeyondEnd { slot });
    }
    if bad >= slots {
        return Err(SwapOnError::Empty { slots, bad });
    }
    if priority < PRIORITY_DEFAULT {
        return Err(SwapOnError::Priority { priority });
    }
    Ok(())
}

impl fmt::Debug for Areas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Areas")
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

/// An area's index as a CPU's current area; [`NO_AREA`] for the virtual one.
fn index_of(id: AreaId) -> u32 {
    let index = id.physical_index();
    index
        .and_then(|index| u32::try_from(index).ok())
        .unwrap_or(NO_AREA)
}

/// The words that a run of `order` has slots for.
fn up_to(order: Order, words: &[Word]) -> &[Word] {
    &words[..words.len().min(order.slots())]
}

const _: () = assert!(AREAS_MAX < NO_AREA as usize);

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::cluster::SLOTS_PER_CLUSTER;
    use crate::pages::{HeapPages, PAGE_BYTES};
    use crate::storage::RamStorage;
    use crate::testing::slot;

    const CLUSTER: u64 = SLOTS_PER_CLUSTER as u64;

    fn areas() -> Areas {
        Areas::new(2, Arc::new(HeapPages::new()))
    }

    fn new(slots: u64, bad: &[u64], priority: i16) -> NewArea {
        let storage = RamStorage::new(usize::try_from(slots).expect("a small area"));
        NewArea {
            slots,
            bad: bad.to_vec(),
            priority,
            discard: Discard::None,
            rotating: false,
            storage: Box::new(storage),
        }
    }

    fn pages(count: usize) -> Vec<Word> {
        let word = |offset| Word::pointer(offset, false).expect("a small offset");
        (0..count as u64).map(word).collect()
    }

    fn used(areas: &Areas) -> Vec<u64> {
        let bytes = |area: &AreaFigures| area.used_bytes / PAGE_BYTES as u64;
        areas.figures().iter().map(bytes).collect()
    }

    #[test]
    fn areas_of_one_priority_take_turns_by_clusters() {
        let areas = areas();
        for _ in 0..4 {
            areas
                .add(new(4 * CLUSTER, &[], PRIORITY_DEFAULT))
                .expect("room");
        }
        for clusters in 1..=16 {
            for _ in 0..CLUSTER {
                slot(&areas, 0, 7).expect("room");
            }
            let used = used(&areas);
            assert_eq!(used.iter().sum::<u64>(), clusters * CLUSTER);
            let (most, least) = (used.iter().max(), used.iter().min());
            assert!(most.unwrap() - least.unwrap() <= CLUSTER, "{used:?}");
        }
        assert_eq!(slot(&areas, 0, 7), None);
        assert_eq!(slot(&areas, 1, 7), None);
    }

    #[test]
    fn equal_areas_take_turns_by_clusters_of_each_order() {
        let areas = areas();
        for _ in 0..2 {
            areas.add(new(9 * CLUSTER, &[], 0)).expect("room");
        }
        for order in Order::runs() {
            let words = pages(order.slots());
            let before = used(&areas);
            for _ in 0..2 * SLOTS_PER_CLUSTER / order.slots() {
                let (_, count) = areas.allocate(0, &words).expect("room");
                assert_eq!(count, words.len());
            }
            let after = used(&areas);
            assert!(
                before
                    .iter()
                    .zip(&after)
                    .all(|(before, after)| after - before == CLUSTER)
            );
        }
    }

    #[test]
    fn on_a_rotating_device_all_cpus_write_one_after_the_other() {
        for rotating in [true, false] {
            let areas = areas();
            let area = NewArea {
                rotating,
                ..new(8 * CLUSTER, &[], 0)
            };
            areas.add(area).expect("room");
            for order in Order::all() {
                let words = pages(order.slots());
                let runs = SLOTS_PER_CLUSTER / order.slots();
                let taken: Vec<Entry> = (0..runs)
                    .map(|at| areas.allocate(at % 2, &words).expect("room").0)
                    .collect();
                let follows = |pair: &[Entry]| pair[1].raw() == pair[0].raw() + words.len() as u64;
                let in_a_row = taken.windows(2).all(follows);
                assert_eq!(in_a_row, rotating || runs == 1, "{order:?}");
                for first in taken {
                    (0..words.len()).for_each(|at| areas.free(first.behind(at)));
                }
            }
        }
    }

    #[test]
    fn priority_comes_before_the_length_of_a_run() {
        let areas = areas();
        // One cluster, which serves no runs as its first slot is bad; above one that does.
        areas.add(new(CLUSTER, &[0], 1)).expect("room");
        areas.add(new(2 * CLUSTER, &[], 0)).expect("room");
        let words = pages(SLOTS_PER_CLUSTER);
        let mut taken = Vec::new();
        while taken.len() < SLOTS_PER_CLUSTER - 1 {
            let (entry, count) = areas.allocate(0, &words).expect("room");
            assert_eq!((entry.area().physical_index(), count), (Some(0), 1));
            taken.push(entry);
        }
        assert!(taken.windows(2).all(|pair| pair[1] == pair[0].behind(1)));
        let (entry, count) = areas.allocate(0, &words).expect("room");
        assert_eq!(
            (entry.area().physical_index(), count),
            (Some(1), SLOTS_PER_CLUSTER)
        );
    }

    #[test]
    fn a_higher_priority_comes_first_and_a_full_area_is_passed_over() {
        let areas = areas();
        for priority in [PRIORITY_DEFAULT, 5, 0, 5] {
            areas.add(new(CLUSTER, &[], priority)).expect("room");
        }
        let mut order = Vec::new();
        for at in 0..4 * CLUSTER {
            let entry = slot(&areas, 0, at).expect("room");
            order.push(entry.area().physical_index().expect("physical"));
        }
        order.dedup();
        assert_eq!(order, [1, 3, 2, 0]);
        assert_eq!(slot(&areas, 0, 0), None);
        let freed = Entry::of(AreaId::physical(2).expect("a number"), 0, 1);
        areas.free(freed);
        assert_eq!(slot(&areas, 1, 0), Some(freed));
    }

    #[test]
    fn bad_slots_and_what_lies_behind_the_end_are_never_given_out() {
        let (areas, slots) = (areas(), 3 * CLUSTER - 1);
        let middle: Vec<u64> = (CLUSTER..2 * CLUSTER).collect();
        let bad: Vec<u64> = [0, 2 * CLUSTER + 1, 0].into_iter().chain(middle).collect();
        areas.add(new(slots, &bad, 0)).expect("usable slots");
        for round in 0..3 {
            let mut entries: Vec<Entry> = std::iter::from_fn(|| slot(&areas, 0, 1)).collect();
            assert_eq!(entries.len() as u64, slots - 2 - CLUSTER, "round {round}");
            assert_eq!(used(&areas), [entries.len() as u64]);
            assert!(entries.iter().all(|entry| !bad.contains(&entry.offset())));
            assert!(entries.iter().all(|entry| entry.offset() < slots));
            entries.sort_unstable();
            entries.dedup();
            assert_eq!(entries.len() as u64, slots - 2 - CLUSTER);
            entries.into_iter().for_each(|entry| areas.free(entry));
            assert_eq!(used(&areas), [0]);
        }
    }

    #[test]
    fn an_area_that_fails_is_passed_over_until_a_page_leaves_it() {
        let areas = areas();
        areas.add(new(CLUSTER, &[], 1)).expect("room");
        areas.add(new(CLUSTER, &[], 0)).expect("room");
        let page = Page([1; PAGE_BYTES]);
        let (first, second) = (slot(&areas, 0, 1), slot(&areas, 0, 2));
        let (first, second) = (first.expect("room"), second.expect("room"));
        areas.write(first, &[&page]).expect("it takes one");
        // Two pages from the area's last slot on: the second lies behind its end.
        let last = Entry::of(first.area(), 0, SLOTS_PER_CLUSTER - 1);
        assert_eq!(areas.write(last, &[&page, &page]), Err(StorageError::Short));
        areas.give_back(second);
        let elsewhere = slot(&areas, 0, 2).expect("room");
        assert_ne!(elsewhere.area(), first.area());
        let figures = areas.figures();
        assert_eq!((figures[0].errors, figures[0].pages_written), (1, 1));
        assert!(figures[0].failing && !figures[1].failing);
        let mut read = Page::zeroed();
        let mut runs = [ReadRun {
            slot: first.offset(),
            pages: vec![&mut read],
            outcome: Ok(()),
        }];
        areas.read_runs(first.area(), &mut runs);
        assert_eq!(runs[0].outcome, Ok(()));
        assert!(read.0 == page.0, "what a failing area holds can be read");
        areas.free(first);
        assert_eq!(slot(&areas, 1, 3).map(Entry::area), Some(first.area()));
    }

    #[test]
    fn areas_that_cannot_be_used_are_refused_and_change_nothing() {
        let areas = areas();
        let refused = |area| areas.add(area).expect_err("it cannot be used");
        assert_eq!(
            refused(new(2, &[1, 0], 0)),
            SwapOnError::Empty { slots: 2, bad: 2 }
        );
        assert_eq!(
            refused(new(2, &[2], 0)),
            SwapOnError::BadBeyondEnd { slot: 2 }
        );
        assert_eq!(
            refused(new(2, &[], -2)),
            SwapOnError::Priority { priority: -2 }
        );
        let huge = NewArea {
            slots: SLOTS_MAX + 1,
            ..new(1, &[], 0)
        };
        assert_eq!(
            refused(huge),
            SwapOnError::TooLarge {
                slots: SLOTS_MAX + 1
            }
        );
        assert!(areas.is_empty() && areas.figures().is_empty());
        for _ in 0..AREAS_MAX {
            areas.add(new(1, &[], 0)).expect("room");
        }
        assert_eq!(refused(new(1, &[], 0)), SwapOnError::TooMany);
    }

    #[test]
    #[cfg(not(any(miri, feature = "tests-small")))]
    fn an_idle_area_costs_next_to_nothing() {
        let areas = areas();
        let tib = NewArea {
            slots: (1 << 40) / PAGE_BYTES as u64,
            ..new(1, &[0], 0)
        };
        areas.add(tib).expect("room");
        let idle = areas.figures()[0].table_bytes;
        assert!(idle <= 64 << 10, "{idle} bytes for an idle TiB");
    }
}
