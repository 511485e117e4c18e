//! The physical areas of an engine: which there are, and which is used next.
//!
//! Areas are used by priority, the highest first. Areas of equal priority take turns: a CPU stays with one until its
//! cluster there is used up, and then goes on to the next. So all of them fill evenly, and all their storage works at
//! once. An area is passed over if it is full, closed, or failed to take a page.
//!
//! An entry leads to its area without a lock. So the record of an area that was swapped off stays, with its tables, and
//! the next area with the same number uses it. An area cannot go while a slot of it is in use, so whoever has a slot
//! finds the right area.
//!
//! Several pages get the longest run of slots that any area of a priority has. A longer run in a lower priority is not
//! preferred to a shorter one.
//!
//! Lock order: the order of areas, then a cluster, then its area's lists. No lock is held while storage is read or
//! written.

mod closing;
mod cost;
mod discard;
mod new_area;
mod payer;
mod physical;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod tiers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::area::Area;
use crate::base::lock_order;
use crate::base::pages::{Page, PageSource};
use crate::base::storage::{ReadRun, StorageError};
use crate::base::sync::{AtomicU32, Lock, OncePtr, Ordering};
use crate::cluster::{ClusterGuard, Extent};
use crate::words::entry::{AreaId, Entry};
use crate::words::order::Order;
use crate::words::slot::Word;
use crate::words::tier::TierId;

pub(crate) use closing::CloseError;
pub use cost::READ_AROUND_MAX;
use new_area::check;
pub use new_area::{AREAS_MAX, Discard, NewArea, PRIORITY_DEFAULT, SwapOnError};
pub(crate) use payer::Payer;
pub(crate) use physical::Physical;

/// The CPU has no area.
const NO_AREA: u32 = u32::MAX;

/// Figures of one area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AreaFigures {
    /// Which area.
    pub id: AreaId,
    /// The most bytes of its medium that the area may take up.
    pub size_bytes: u64,
    /// Bytes of its medium in use now.
    pub used_bytes: u64,
    /// Bytes of the pages in it. More than `used_bytes` if it keeps them packed, otherwise as many.
    pub held_bytes: u64,
    /// Its priority.
    pub priority: i16,
    /// The tier that it belongs to.
    pub tier: TierId,
    /// How long reading a lone page takes on average. None if none was read yet.
    pub latency: Option<Duration>,
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
    /// The area could not take a page the last time.
    pub failing: bool,
    /// Why the area last failed to take a page.
    pub last_error: Option<StorageError>,
    /// The area is being swapped off.
    pub closing: bool,
}

/// All physical areas.
pub(crate) struct Areas {
    /// The area with each number, or the last one that had it.
    areas: [OncePtr<Physical>; AREAS_MAX],
    /// Areas by priority, highest first. Among equals the one whose turn it is comes first.
    order: Lock<Vec<AreaId>, { lock_order::AREAS }>,
    /// Number of the area from which each CPU takes runs of each order.
    currents: Box<[CachePadded<[AtomicU32; Order::COUNT]>]>,
    pages: Arc<dyn PageSource>,
}

impl Areas {
    pub(crate) fn new(cpus: usize, pages: Arc<dyn PageSource>) -> Areas {
        let none = || CachePadded::new(std::array::from_fn(|_| AtomicU32::new(NO_AREA)));
        Areas {
            areas: std::array::from_fn(|_| OncePtr::new()),
            order: Lock::new(Vec::new()),
            currents: (0..cpus).map(|_| none()).collect(),
            pages,
        }
    }

    /// Starts to use an area, placed behind those of the same priority.
    pub(crate) fn add(&self, mut new: NewArea) -> Result<AreaId, SwapOnError> {
        check(&mut new)?;
        // Without a lock, because a large device takes a while.
        let discarded = match new.discard {
            Discard::Once => discard::discard_whole(&new),
            Discard::None | Discard::Pages => Ok(0),
        };
        let mut order = self.order.lock();
        let (id, place) = self.vacant().ok_or(SwapOnError::TooMany)?;
        let priority = new.priority;
        let physical = self.open(id, place, new)?;
        physical.count_discard(discarded);
        let behind = order.partition_point(|&other| self.priority_of(other) >= priority);
        order.insert(behind, id);
        Ok(id)
    }

    /// The lowest number that no area has, and its place. So the tables of former areas are used before new ones are
    /// made. The caller holds the lock of the order.
    fn vacant(&self) -> Option<(AreaId, &OncePtr<Physical>)> {
        let is_vacant = |place: &OncePtr<Physical>| place.get().is_none_or(Physical::is_gone);
        let index = self.areas.iter().position(is_vacant)?;
        Some((AreaId::physical(index)?, &self.areas[index]))
    }

    /// Makes the area, with the tables of the one before it if there was one. The caller holds the lock of the order.
    fn open<'a>(
        &self,
        id: AreaId,
        place: &'a OncePtr<Physical>,
        new: NewArea,
    ) -> Result<&'a Physical, SwapOnError> {
        let make = || {
            let pages = Arc::clone(&self.pages);
            let area = Area::new(id, Extent::default(), self.currents.len(), pages)?;
            Some(Box::new(Physical::retired(area)))
        };
        let physical = place.get_or_try_init(make).ok_or(SwapOnError::NoMemory)?;
        physical.begin(new);
        Ok(physical)
    }

    #[inline]
    pub(crate) fn get(&self, id: AreaId) -> Option<&Physical> {
        let physical = self.areas.get(id.physical_index()?)?.get()?;
        (!physical.is_gone()).then_some(physical)
    }

    fn priority_of(&self, id: AreaId) -> i16 {
        self.get(id).map_or(PRIORITY_DEFAULT, Physical::priority)
    }

    /// Whether there never was an area. A hint: pages that do not compress need a slot, and with no area there is none
    /// to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.areas[0].get().is_none()
    }

    /// Takes neighbouring slots for pages with these `words`, all of them the payer's: as many, from the first word on,
    /// as fit in one place and as the payer may have in its tier. Returns the first slot and their number. `None` if no
    /// area has room that the payer may have, if no words are given, if there is no memory for tables, or if the group
    /// of directly mapped slots is gone.
    pub(crate) fn allocate(
        &self,
        cpu: usize,
        words: &[Word],
        payer: &Payer<'_>,
    ) -> Option<(Entry, usize)> {
        let order = Order::for_pages(words.len())?;
        let index = self.current(cpu, order).load(Ordering::Acquire);
        self.take_near(cpu, index, order, words, payer)
            .or_else(|| self.take_in_turn(cpu, order, words, payer))
            .or_else(|| self.allocate_discarded(cpu, order, words, payer))
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
        payer: &Payer<'_>,
    ) -> Option<(Entry, usize)> {
        let physical = AreaId::physical(index as usize).and_then(|id| self.get(id))?;
        physical.take(payer, up_to(order, words), |words| {
            let group = payer.of_group();
            physical.area.allocate_near(cpu, order, words, group)
        })
    }

    /// Takes the longest run that the highest priority with room has. For a CPU that has used up its cluster of this
    /// order, or never had one.
    #[cold]
    fn take_in_turn(
        &self,
        cpu: usize,
        order: Order,
        words: &[Word],
        payer: &Payer<'_>,
    ) -> Option<(Entry, usize)> {
        let mut areas = self.order.lock();
        let equals = areas.chunk_by_mut(|&a, &b| self.priority_of(a) == self.priority_of(b));
        for equals in equals {
            let longest = order
                .and_below()
                .find_map(|order| self.take_of_equals(cpu, equals, order, words, payer));
            if longest.is_some() {
                return longest;
            }
        }
        None
    }

    /// Takes a run from the CPU's area for this order, or else from the next area in turn. The CPU then stays with that
    /// area, unless only a limit has led there: others may have slots of a higher tier.
    fn take_of_equals(
        &self,
        cpu: usize,
        equals: &mut [AreaId],
        order: Order,
        words: &[Word],
        payer: &Payer<'_>,
    ) -> Option<(Entry, usize)> {
        let current = self.current(cpu, order);
        let index = current.load(Ordering::Relaxed);
        if equals.iter().any(|&id| index_of(id) == index)
            && let Some(taken) = self.take_near(cpu, index, order, words, payer)
        {
            return Some(taken);
        }
        let mut in_turn = equals.iter().enumerate();
        let (at, taken) = in_turn
            .find_map(|(at, &id)| Some((at, self.take_of(id, cpu, order, words, payer)?)))?;
        if !payer.was_refused() {
            // Release pairs with the Acquire in `allocate`: the area exists.
            current.store(index_of(equals[at]), Ordering::Release);
        }
        equals[at..].rotate_left(1);
        Some(taken)
    }

    /// Takes a run from an area that is not failing.
    fn take_of(
        &self,
        id: AreaId,
        cpu: usize,
        order: Order,
        words: &[Word],
        payer: &Payer<'_>,
    ) -> Option<(Entry, usize)> {
        let physical = self.get(id)?;
        physical.take(payer, up_to(order, words), |words| {
            let group = payer.of_group();
            physical.area.allocate(cpu, order, words, group).ok()
        })
    }

    /// The tier of a slot in use.
    pub(crate) fn tier_of(&self, entry: Entry) -> TierId {
        let physical = self.get(entry.area());
        physical.map_or_else(TierId::default, Physical::tier)
    }

    /// Frees a slot that held a page. Returns the slot's tier, in which its group is still charged. Once the slot is
    /// free its area can go, and another area have its number.
    #[must_use]
    pub(crate) fn free(&self, entry: Entry) -> TierId {
        let tier = self.give_back(entry);
        self.note_freed(entry);
        tier
    }

    /// Frees a directly mapped slot, whose cluster is locked. Returns its tier, as `free` does.
    #[must_use]
    pub(crate) fn release_mapped(&self, cluster: &mut ClusterGuard<'_>, entry: Entry) -> TierId {
        let tier = self.tier_of(entry);
        if let Some(physical) = self.get(entry.area()) {
            physical.release_slot(cluster, entry);
        }
        tier
    }

    /// Notes that a slot with a page was freed. If its area failed for lack of room, there is room again.
    pub(crate) fn note_freed(&self, entry: Entry) {
        if let Some(physical) = self.get(entry.area()) {
            physical.set_failing(false);
        }
    }

    /// Frees a slot that could not be written. Returns its tier, as `free` does.
    #[must_use]
    pub(crate) fn give_back(&self, entry: Entry) -> TierId {
        let tier = self.tier_of(entry);
        if let Some(physical) = self.get(entry.area()) {
            physical.release(entry);
        }
        tier
    }

    /// The entry whose page a physical slot holds, or held a moment ago. That is the virtual slot before it, or the
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

    /// The areas that have or had directly mapped slots, by number.
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

    /// The most pages of the area that are worth one request.
    pub(crate) fn window_max(&self, id: AreaId) -> usize {
        match self.get(id) {
            Some(physical) if !physical.is_quick() => physical.cost.window_max(),
            _ => 1,
        }
    }

    /// Notes that reading this many neighbouring pages of the area took so long.
    pub(crate) fn note_read(&self, id: AreaId, pages: usize, took: Duration) {
        if let Some(physical) = self.get(id) {
            physical.cost.note(pages, took);
        }
    }

    /// Nobody needs any area again.
    pub(crate) fn retire_storage(&self) {
        self.all().for_each(|(_, area)| area.retire_storage());
    }

    /// Whether the area's storage is on other machines.
    pub(crate) fn is_far(&self, id: AreaId) -> bool {
        self.get(id).is_some_and(Physical::is_far)
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

    /// Writes pages to neighbouring slots of one area, starting with `first`.
    pub(crate) fn write(&self, first: Entry, pages: &[&Page]) -> Result<(), StorageError> {
        let physical = self.get(first.area()).ok_or(StorageError::Short)?;
        physical.write(first.offset(), pages)
    }

    /// Whether the area's storage takes payloads of the pool as they are.
    pub(crate) fn keeps_packed(&self, id: AreaId) -> bool {
        self.get(id).is_some_and(Physical::keeps_packed)
    }

    /// Writes payloads to neighbouring slots of one area that keeps them packed, starting with `first`.
    pub(crate) fn write_packed(
        &self,
        first: Entry,
        payloads: &[&[u8]],
    ) -> Result<(), StorageError> {
        let physical = self.get(first.area()).ok_or(StorageError::Short)?;
        physical.write_packed(first.offset(), payloads)
    }

    /// All areas, by number.
    pub(crate) fn all(&self) -> impl Iterator<Item = (AreaId, &Physical)> {
        let ids = (0..AREAS_MAX).filter_map(AreaId::physical);
        ids.filter_map(|id| Some((id, self.get(id)?)))
    }

    /// All areas that ever were, by number, without a gap. The tables of one that is gone wait for another.
    pub(crate) fn ever(&self) -> impl Iterator<Item = &Area> {
        let places = self.areas.iter().map_while(|place| place.get());
        places.map(|physical| &physical.area)
    }

    /// Figures of each area, by number.
    pub(crate) fn figures(&self) -> Vec<AreaFigures> {
        self.all()
            .map(|(id, physical)| physical.figures(id))
            .collect()
    }
}

impl fmt::Debug for Areas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Areas")
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

/// The index of an area as a CPU's current area. [`NO_AREA`] for the virtual area.
fn index_of(id: AreaId) -> u32 {
    let index = id.physical_index();
    index
        .and_then(|index| u32::try_from(index).ok())
        .unwrap_or(NO_AREA)
}

/// The first words, as many as a run of `order` has slots.
fn up_to(order: Order, words: &[Word]) -> &[Word] {
    &words[..words.len().min(order.slots())]
}

const _: () = assert!(AREAS_MAX < NO_AREA as usize);
