//! Helpers of the engine's unit tests: engines with areas whose storage counts requests, breaks and has bad places.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::area::AllocError;
use crate::areas::{Areas, Discard, NewArea, PRIORITY_DEFAULT, Payer};
use crate::base::pages::{HeapPages, PAGE_BYTES, Page};
use crate::base::storage::{RamStorage, Storage, StorageError, StorageExtent};
use crate::codec::{Codec, Scratch};
use crate::engine::{Config, Engine};
use crate::groups::{GroupFigures, GroupId, GroupLimits};
use crate::verbs::swap_in::{SwapIn, SwapInError};
use crate::verbs::swap_out::Mapping;
use crate::words::backing::Stored;
use crate::words::entry::Entry;
use crate::words::shadow::Shadow;
use crate::words::slot::Word;
use crate::words::tier::TierId;
use crate::zpool;
use crate::zpool::testing::{Content, page_bytes};

/// The error of broken storage.
pub(crate) const BROKEN: StorageError = StorageError::Failed { errno: 5 };

/// Storage in memory that counts requests and can be broken. Clones share the storage.
#[derive(Debug, Clone)]
pub(crate) struct Probe(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ram: RamStorage,
    reads: AtomicU64,
    writes: AtomicU64,
    is_broken: AtomicBool,
    /// After this many further writes, writes are refused with this error.
    write_error: Mutex<Option<(u64, StorageError)>>,
    /// Slots that cannot be read.
    unreadable: Mutex<Vec<u64>>,
    /// Slots whose reads get no answer.
    silent: Mutex<Vec<u64>>,
    discarded: Mutex<Vec<Range<u64>>>,
    /// The error of discards, if they fail.
    discard_error: Mutex<Option<StorageError>>,
}

impl Probe {
    pub(crate) fn new(slots: u64) -> Probe {
        Probe(Arc::new(Inner {
            ram: RamStorage::new(usize::try_from(slots).expect("few")),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            write_error: Mutex::new(None),
            unreadable: Mutex::new(Vec::new()),
            silent: Mutex::new(Vec::new()),
            discarded: Mutex::new(Vec::new()),
            discard_error: Mutex::new(None),
        }))
    }

    /// Number of read requests so far.
    pub(crate) fn reads(&self) -> u64 {
        self.0.reads.load(Ordering::Relaxed)
    }

    /// Number of write requests so far, without those that were refused.
    pub(crate) fn writes(&self) -> u64 {
        self.0.writes.load(Ordering::Relaxed)
    }

    /// The discarded ranges, in order.
    pub(crate) fn discarded(&self) -> Vec<Range<u64>> {
        self.0.discarded.lock().expect("no panic").clone()
    }

    pub(crate) fn fail_discards(&self, error: Option<StorageError>) {
        *self.0.discard_error.lock().expect("no panic") = error;
    }

    /// Number of slots that hold a page.
    pub(crate) fn pages(&self) -> usize {
        self.0.ram.pages()
    }

    /// Whether only the test still holds the storage.
    pub(crate) fn is_closed(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub(crate) fn broken(&self, is_broken: bool) {
        self.0.is_broken.store(is_broken, Ordering::Relaxed);
    }

    /// Refuses writes after `after` further ones. `None` ends that.
    pub(crate) fn refuse_writes(&self, after: u64, error: Option<StorageError>) {
        *self.0.write_error.lock().expect("no panic") = error.map(|error| (after, error));
    }

    fn check_write(&self) -> Result<(), StorageError> {
        self.check()?;
        match &mut *self.0.write_error.lock().expect("no panic") {
            Some((0, error)) => Err(*error),
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(crate) fn unreadable(&self, slots: &[u64]) {
        *self.0.unreadable.lock().expect("no panic") = slots.to_vec();
    }

    /// Gives no answer to reads of these slots.
    pub(crate) fn silent(&self, slots: &[u64]) {
        *self.0.silent.lock().expect("no panic") = slots.to_vec();
    }

    fn check(&self) -> Result<(), StorageError> {
        let is_broken = self.0.is_broken.load(Ordering::Relaxed);
        if is_broken { Err(BROKEN) } else { Ok(()) }
    }
}

impl Storage for Probe {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        self.check()?;
        let run = slot..slot + pages.len() as u64;
        let unreadable = self.0.unreadable.lock().expect("no panic");
        if unreadable.iter().any(|bad| run.contains(bad)) {
            return Err(BROKEN);
        }
        let silent = self.0.silent.lock().expect("no panic");
        if silent.iter().any(|slot| run.contains(slot)) {
            return Err(StorageError::TimedOut);
        }
        self.0.ram.read(slot, pages)
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        self.check_write()?;
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        self.0.ram.write(slot, pages)
    }

    fn discard(&self, slots: Range<u64>) -> Result<(), StorageError> {
        self.check()?;
        let error = *self.0.discard_error.lock().expect("no panic");
        error.map_or(Ok(()), Err)?;
        self.0
            .discarded
            .lock()
            .expect("no panic")
            .push(slots.clone());
        self.0.ram.discard(slots)
    }
}

/// What storage that keeps payloads may use, as it says.
pub(crate) const PACKING_BYTES: u64 = 1 << 20;

/// Storage that keeps payloads as they are packed, until their slots are free. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Packing(Arc<Mutex<BTreeMap<u64, Vec<u8>>>>);

impl Packing {
    /// Bytes of each payload, by slot.
    pub(crate) fn payloads(&self) -> Vec<usize> {
        let kept = self.0.lock().expect("no panic");
        kept.values().map(Vec::len).collect()
    }
}

impl Storage for Packing {
    fn keeps_packed(&self) -> bool {
        true
    }

    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        let kept = self.0.lock().expect("no panic");
        let mut scratch = Scratch::new();
        for (slot, page) in (slot..).zip(pages) {
            let payload = kept.get(&slot).ok_or(StorageError::Lost)?;
            let unpacked = scratch.decompress(payload, page);
            unpacked.map_err(|_| StorageError::Altered)?;
        }
        Ok(())
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        let payloads: Vec<&[u8]> = pages.iter().map(|page| &page.0[..]).collect();
        self.write_packed(slot, &payloads)
    }

    fn write_packed(&self, slot: u64, payloads: &[&[u8]]) -> Result<(), StorageError> {
        let payloads = payloads.iter().map(|payload| payload.to_vec());
        let mut kept = self.0.lock().expect("no panic");
        kept.extend((slot..).zip(payloads));
        Ok(())
    }

    fn freed(&self, slot: u64) {
        self.0.lock().expect("no panic").remove(&slot);
    }

    fn extent(&self) -> Option<StorageExtent> {
        let used_bytes = self.payloads().iter().sum::<usize>() as u64;
        Some(StorageExtent {
            used_bytes,
            size_bytes: PACKING_BYTES,
            free_bytes: PACKING_BYTES - used_bytes,
        })
    }
}

/// An area on `probe`. Its slot 0 is bad.
pub(crate) fn area_on(probe: &Probe, slots: u64) -> NewArea {
    NewArea {
        slots,
        bad: vec![0],
        priority: PRIORITY_DEFAULT,
        tier: TierId::default(),
        discard: Discard::None,
        rotating: false,
        storage: Box::new(probe.clone()),
    }
}

/// An engine with an area of each of these sizes, used in this order.
pub(crate) fn engine_with_areas(
    frames: usize,
    pool_limit_bytes: u64,
    sizes: &[u64],
) -> (Engine, Vec<Probe>) {
    let config = Config {
        frames,
        cpus: 1,
        codec: Codec::Lz4,
        pool_limit_bytes,
        checksums: true,
    };
    let engine = Engine::new(&config, Arc::new(HeapPages::new())).expect("memory");
    let mut probes = Vec::new();
    for (&slots, priority) in sizes.iter().zip((0..10).rev()) {
        let probe = Probe::new(slots);
        let area = area_on(&probe, slots);
        let swapped_on = engine.swap_on(NewArea { priority, ..area });
        swapped_on.expect("a good area");
        probes.push(probe);
    }
    (engine, probes)
}

/// Swaps out the page of this kind and seed, and does not write it out.
pub(crate) fn out(engine: &Engine, kind: Content, seed: u64) -> Entry {
    out_of(engine, GroupId::ROOT, kind, seed)
}

/// The same for a page of a group.
pub(crate) fn out_of(engine: &Engine, group: GroupId, kind: Content, seed: u64) -> Entry {
    let mut frame = engine.frame().expect("a free frame");
    frame.0.copy_from_slice(&page_bytes(kind, seed)[..]);
    let swapped = engine.swap_out(0, frame, Shadow::ABSENT, group);
    swapped.expect("a slot")
}

/// The same with this mapping. Returns an error if there is no slot.
pub(crate) fn try_out(
    engine: &Engine,
    mapping: Mapping,
    group: GroupId,
    kind: Content,
    seed: u64,
) -> Result<Entry, AllocError> {
    let frame = engine.frame().expect("a free frame");
    let placed = engine.place(0, frame, group, mapping);
    let mut placed = placed.map_err(|(_, error)| error)?;
    placed.0.copy_from_slice(&page_bytes(kind, seed)[..]);
    Ok(placed.publish(Shadow::ABSENT))
}

/// Damages the bytes of a page in the pool.
pub(crate) fn damage(engine: &Engine, entry: Entry) {
    let (cluster, slot) = engine.locate(entry).expect("in use");
    match cluster.lock().expect("used").backing(slot).stored() {
        Some(Stored::Pool(handle)) => zpool::damage(&engine.pool, handle, 40),
        other => panic!("not in the pool: {other:?}"),
    }
}

/// Makes a group that may have this many pages in areas and has no other limit.
pub(crate) fn group(engine: &Engine, name: &str, swap_max_pages: u64) -> GroupId {
    let limits = GroupLimits {
        swap_max_bytes: swap_max_pages * PAGE_BYTES as u64,
        ..GroupLimits::default()
    };
    let name = name.parse().expect("a good name");
    engine.add_group(&name, limits).expect("a new group")
}

/// What a group is charged: pages in areas, and bytes in the pool.
pub(crate) fn charges(engine: &Engine, id: GroupId) -> (u64, u64) {
    let of_it = figures_of(engine, id);
    (of_it.swap_bytes / PAGE_BYTES as u64, of_it.pool_bytes)
}

pub(crate) fn figures_of(engine: &Engine, id: GroupId) -> GroupFigures {
    let figures = engine.groups();
    let of_it = figures.into_iter().find(|group| group.id == id);
    of_it.expect("not removed")
}

pub(crate) fn read(engine: &Engine, entry: Entry) -> Result<(SwapIn, Box<Page>), SwapInError> {
    let mut page = Box::new(Page([0xee; PAGE_BYTES]));
    let from = engine.swap_in(entry, &mut page, &mut engine.scratch())?;
    Ok((from, page))
}

/// Checks that the entry holds the page of this kind and seed, and is in the expected place.
pub(crate) fn assert_holds(
    engine: &Engine,
    entry: Entry,
    kind: Content,
    seed: u64,
    expected: SwapIn,
) {
    let (from, page) = read(engine, entry).expect("not lost");
    assert_eq!(from, expected);
    assert!(page.0 == page_bytes(kind, seed)[..], "content differs");
}

/// Takes a slot of an area for the page of the virtual slot at `offset`.
pub(crate) fn slot(areas: &Areas, cpu: usize, offset: u64) -> Option<Entry> {
    let word = Word::pointer(offset)?;
    Some(areas.allocate(cpu, &[word], &Payer::nobody())?.0)
}

/// The slot of the area that holds an entry's page.
pub(crate) fn slot_of(engine: &Engine, entry: Entry) -> u64 {
    let (cluster, slot) = engine.locate(entry).expect("in use");
    match cluster.lock().expect("used").backing(slot).stored() {
        Some(Stored::Physical(physical)) => physical.offset(),
        other => panic!("it lies elsewhere: {other:?}"),
    }
}
