//! One physical area: its slots, its storage, its figures.
//!
//! Threads reach the record without a lock, so it stays where it is until the engine is dropped. The storage goes when
//! the area is swapped off. What stays then is 64 KiB and an eighth of a byte for each slot that was ever in use. The
//! next area with the same number uses it. All fields can therefore change behind a shared reference, and what a late
//! reader sees of one area instead of the other is a figure or a hint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI16, AtomicU8};

use super::AreaFigures;
use super::cost::ReadCost;
use super::new_area::{Discard, NewArea, PRIORITY_DEFAULT};
use super::payer::Payer;
use crate::area::{Area, ClockHand};
use crate::base::lock_order;
use crate::base::pages::{PAGE_BYTES, Page};
use crate::base::storage::{ReadRun, Storage, StorageError, StorageExtent};
use crate::base::sync::{AtomicU64, Lock, Ordering};
use crate::cluster::{ClusterGuard, Extent};
use crate::words::entry::{AreaId, Entry};
use crate::words::slot::Word;
use crate::words::tier::TierId;

/// An area, or what is left of one.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) area: Area,
    /// `None` once the area is swapped off. Each request holds a reference of its own, so the storage is closed when
    /// the last request is done.
    storage: Lock<Option<Arc<dyn Storage>>, { lock_order::STORAGE }>,
    priority: AtomicI16,
    /// What the storage says of itself.
    quick: AtomicBool,
    far: AtomicBool,
    packed: AtomicBool,
    /// Does not change while a slot is in use.
    tier: AtomicU8,
    /// Slots that are not bad.
    usable: AtomicU64,
    /// Slots in use. The clusters know it too, but adding them up for each written batch of pages would take long.
    used: AtomicU64,
    /// The last write failed. The area gets no page until one has left it.
    failing: AtomicBool,
    /// The error of the last failed write, for people.
    last_error: Lock<Option<StorageError>, { lock_order::LAST_ERROR }>,
    /// The area is being swapped off. Set under the lock of the order; only the thread that set it clears it.
    is_closing: AtomicBool,
    /// The area was swapped off: its number can be reused.
    is_gone: AtomicBool,
    /// Where demotion goes on (`verbs/demote.rs`). Taken before the lock of a cluster.
    pub(crate) hand: Lock<ClockHand, { lock_order::DEMOTION }>,
    /// What reading from it costs.
    pub(super) cost: ReadCost,
    pages_read: AtomicU64,
    pages_written: AtomicU64,
    errors: AtomicU64,
    pages_discarded: AtomicU64,
    discard_errors: AtomicU64,
}

impl Physical {
    /// An area without storage, as one that was swapped off.
    pub(super) fn retired(area: Area) -> Physical {
        Physical {
            area,
            usable: AtomicU64::new(0),
            used: AtomicU64::new(0),
            storage: Lock::new(None),
            priority: AtomicI16::new(PRIORITY_DEFAULT),
            quick: AtomicBool::new(false),
            far: AtomicBool::new(false),
            packed: AtomicBool::new(false),
            tier: AtomicU8::new(TierId::default().raw()),
            failing: AtomicBool::new(false),
            last_error: Lock::new(None),
            is_closing: AtomicBool::new(true),
            is_gone: AtomicBool::new(true),
            hand: Lock::new(ClockHand::default()),
            cost: ReadCost::default(),
            pages_read: AtomicU64::new(0),
            pages_written: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            pages_discarded: AtomicU64::new(0),
            discard_errors: AtomicU64::new(0),
        }
    }

    /// Gives a retired area the storage of a new one. The caller holds the lock of the order. Nobody finds a cluster to
    /// allocate from without that lock, so no slot is taken before the area can be found.
    pub(super) fn begin(&self, new: NewArea) {
        // `used` is not set: whoever took a slot of the former area, and then lost it, may be about to count it.
        let usable = new.slots - new.bad.len() as u64;
        self.usable.store(usable, Ordering::Relaxed);
        self.priority.store(new.priority, Ordering::Relaxed);
        self.quick.store(new.storage.is_quick(), Ordering::Relaxed);
        self.far.store(new.storage.is_far(), Ordering::Relaxed);
        self.packed
            .store(new.storage.keeps_packed(), Ordering::Relaxed);
        self.tier.store(new.tier.raw(), Ordering::Relaxed);
        self.cost.forget();
        self.set_failing(false);
        *self.last_error.lock() = None;
        for counter in [
            &self.pages_read,
            &self.pages_written,
            &self.errors,
            &self.pages_discarded,
            &self.discard_errors,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        *self.storage.lock() = Some(Arc::from(new.storage));
        self.area.set_discards(new.discard == Discard::Pages);
        let cpus = if new.rotating { 1 } else { usize::MAX };
        let extent = Extent::new(new.slots, new.bad.into_boxed_slice());
        self.area.begin_again(extent, cpus);
        self.end_closing();
        // Release pairs with the Acquire in `is_gone`: whoever finds the area finds it whole.
        self.is_gone.store(false, Ordering::Release);
    }

    pub(crate) fn priority(&self) -> i16 {
        self.priority.load(Ordering::Relaxed)
    }

    /// The tier that the area belongs to.
    pub(crate) fn tier(&self) -> TierId {
        TierId::from_raw(self.tier.load(Ordering::Relaxed))
    }

    pub(super) fn usable(&self) -> u64 {
        self.usable.load(Ordering::Relaxed)
    }

    /// Takes neighbouring slots for the first of `words`, as many as `payer` may have in the area's tier, by `take`.
    /// Returns the first slot and their number. `None` if there are none, or if the area is failing.
    pub(super) fn take(
        &self,
        payer: &Payer<'_>,
        words: &[Word],
        take: impl FnOnce(&[Word]) -> Option<Entry>,
    ) -> Option<(Entry, usize)> {
        if self.is_failing() {
            return None;
        }
        let tier = self.tier();
        let admitted = payer.admit(tier, words.len());
        if admitted == 0 {
            return None;
        }
        let Some(first) = take(&words[..admitted]) else {
            payer.take_back(tier, admitted);
            return None;
        };
        self.count_taken(admitted);
        if self.tier() == tier {
            return Some((first, admitted));
        }
        // The area that was charged for has gone since our look, and another has its number. While we have slots of
        // that one it stays.
        for at in 0..admitted {
            self.release(first.behind(at));
        }
        payer.take_back(tier, admitted);
        None
    }

    /// Counts slots that the caller has taken.
    fn count_taken(&self, slots: usize) {
        // Relaxed, here and below: a number that says nothing about which slots.
        self.used.fetch_add(slots as u64, Ordering::Relaxed);
    }

    /// Frees a slot whose cluster is locked. The storage hears of it first: afterwards it may be gone.
    pub(super) fn release_slot(&self, cluster: &mut ClusterGuard<'_>, entry: Entry) {
        if self.keeps_packed()
            && let Ok(storage) = self.storage()
        {
            storage.freed(entry.offset());
        }
        self.used.fetch_sub(1, Ordering::Relaxed);
        self.area.release_slot(cluster, entry);
    }

    /// Frees a slot.
    pub(super) fn release(&self, entry: Entry) {
        if let Some((mut cluster, _)) = self.area.lock(entry) {
            self.release_slot(&mut cluster, entry);
        }
    }

    pub(crate) fn free_slots(&self) -> u64 {
        let used = self.used.load(Ordering::Relaxed);
        self.usable().saturating_sub(used)
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    pub(crate) fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::Relaxed);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Marks that the caller swaps the area off. False if somebody else is doing so. The caller holds the lock of the
    /// order.
    pub(super) fn begin_closing(&self) -> bool {
        !self.is_closing.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_closing(&self) {
        self.is_closing.store(false, Ordering::Release);
    }

    /// Frees the area's number and returns the storage, which the caller closes. The caller holds the lock of the
    /// order.
    pub(super) fn retire(&self) -> Option<Arc<dyn Storage>> {
        self.is_gone.store(true, Ordering::Relaxed);
        self.storage.lock().take()
    }

    /// The storage. Callers have a slot of the area or are discarding one of its clusters, so the storage is not gone.
    pub(super) fn storage(&self) -> Result<Arc<dyn Storage>, StorageError> {
        self.storage.lock().clone().ok_or(StorageError::Short)
    }

    /// How much of its medium it takes up, if slots do not tell.
    pub(super) fn extent(&self) -> Option<StorageExtent> {
        let storage = self.keeps_packed().then(|| self.storage().ok());
        storage.flatten()?.extent()
    }

    pub(super) fn is_quick(&self) -> bool {
        self.quick.load(Ordering::Relaxed)
    }

    pub(super) fn read_runs(&self, runs: &mut [ReadRun<'_>]) {
        match self.storage() {
            Ok(storage) => storage.read_runs(runs),
            Err(error) => runs.iter_mut().for_each(|run| run.outcome = Err(error)),
        }
        for run in runs {
            run.outcome = self.count(&self.pages_read, run.pages.len(), run.outcome);
        }
    }

    pub(super) fn retire_storage(&self) {
        if let Ok(storage) = self.storage() {
            storage.retire();
        }
    }

    pub(super) fn is_far(&self) -> bool {
        self.far.load(Ordering::Relaxed)
    }

    pub(super) fn keeps_packed(&self) -> bool {
        self.packed.load(Ordering::Relaxed)
    }

    pub(super) fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        self.write_by(pages.len(), |storage| storage.write(slot, pages))
    }

    pub(super) fn write_packed(&self, slot: u64, payloads: &[&[u8]]) -> Result<(), StorageError> {
        self.write_by(payloads.len(), |storage| {
            storage.write_packed(slot, payloads)
        })
    }

    /// Writes this many pages, and notes how that went.
    fn write_by(
        &self,
        pages: usize,
        write: impl FnOnce(&dyn Storage) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let written = self.storage().and_then(|storage| write(&*storage));
        if let Err(error) = written {
            self.set_failing(true);
            *self.last_error.lock() = Some(error);
        }
        self.count(&self.pages_written, pages, written)
    }

    fn count(
        &self,
        counter: &AtomicU64,
        pages: usize,
        outcome: Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let (counter, by) = match outcome {
            Ok(()) => (counter, pages as u64),
            Err(_) => (&self.errors, 1),
        };
        // Relaxed: a figure for people.
        counter.fetch_add(by, Ordering::Relaxed);
        outcome
    }

    /// Counts discarded pages. Storage that cannot discard is not asked again.
    pub(super) fn count_discard(&self, outcome: Result<u64, StorageError>) {
        if outcome == Err(StorageError::Unsupported) {
            self.area.set_discards(false);
        }
        let (counter, by) = match outcome {
            Ok(pages) => (&self.pages_discarded, pages),
            Err(_) => (&self.discard_errors, 1),
        };
        // Relaxed: a figure for people.
        counter.fetch_add(by, Ordering::Relaxed);
    }

    pub(super) fn figures(&self, id: AreaId) -> AreaFigures {
        let stats = self.area.stats();
        let held_bytes = stats.slots_used * PAGE_BYTES as u64;
        let by_slots = (self.usable() * PAGE_BYTES as u64, held_bytes);
        let of_medium = |extent: StorageExtent| (extent.size_bytes, extent.used_bytes);
        let (size_bytes, used_bytes) = self.extent().map_or(by_slots, of_medium);
        AreaFigures {
            id,
            size_bytes,
            used_bytes,
            held_bytes,
            priority: self.priority(),
            tier: self.tier(),
            latency: self.cost.lone(),
            table_bytes: stats.table_bytes,
            pages_read: self.pages_read.load(Ordering::Relaxed),
            pages_written: self.pages_written.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            pages_discarded: self.pages_discarded.load(Ordering::Relaxed),
            discard_errors: self.discard_errors.load(Ordering::Relaxed),
            failing: self.is_failing(),
            last_error: *self.last_error.lock(),
            closing: self.is_closing(),
        }
    }
}
