//! Physical areas: their names, beginning and ending to use them, and saying what goes wrong with them.
//!
//! The engine knows areas by number and bytes by `Storage`; here they have the path that the user gave. The list's
//! lock is innermost and held for list operations only. One area at a time is begun or ended.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use vswap_engine::{
    AreaFigures, AreaId, Discard, Engine, NewArea, Page, ReadRun, Storage, StorageError,
};
use vswap_engine::{SwapOffError, SwapOnError};
use vswap_sys::area_file::Kind;
use vswap_sys::disk::{self, Disk, DiskError, PageBytes};

use crate::base::lock::{Mutex, Row};
use crate::base::page_run::PAGE_BYTES;
use crate::life::bring_back::{self, BringingBack};
use crate::run::core::Core;
use crate::run::stats::Stats;
use crate::space::Space;

/// Lost pages that are named one by one; what comes after them is counted.
const LOST_NAMED_MAX: u64 = 16;

/// An area to be used, opened and looked at by the caller.
#[derive(Debug)]
pub struct SwapOn {
    /// What the user calls it: its path.
    pub name: String,
    /// Its bytes.
    pub disk: Disk,
    /// Slots that it has, the header's included.
    pub slots: u64,
    /// Slots that are never to be used.
    pub bad: Vec<u64>,
    /// 0 to 32767, or `vswap_engine::PRIORITY_DEFAULT`.
    pub priority: i16,
    /// When the device is told what is free.
    pub discard: Discard,
}

/// What is known of an area, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AreaStatus {
    /// The path that the user gave.
    pub name: String,
    /// `file` or `partition`, as swapon says.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Bytes that it can hold.
    pub size_bytes: u64,
    /// Bytes in use now.
    pub used_bytes: u64,
    /// Its priority.
    pub priority: i16,
    /// Bytes read so far.
    pub read_bytes: u64,
    /// Bytes written so far.
    pub written_bytes: u64,
    /// Requests that failed so far.
    pub errors: u64,
    /// It could not take a page the last time: nothing is given to it until a page has left it.
    pub failing: bool,
    /// How it is read and written.
    pub io: &'static str,
}

/// Why an area cannot be given up.
#[derive(Debug, thiserror::Error)]
pub enum GiveUpError {
    /// There is no such area.
    #[error("it is not in use: `vswap status --areas` lists what it uses")]
    Unknown,
    /// The engine's reason.
    #[error(transparent)]
    Engine(#[from] SwapOffError),
}

/// One area's entry in the list.
#[derive(Debug)]
struct Known {
    id: AreaId,
    name: String,
    kind: &'static str,
    io: &'static str,
    /// The user was told that it fails.
    failing: bool,
}

/// The areas of a store.
#[derive(Debug)]
pub struct Areas {
    list: Mutex<Vec<Known>>,
    /// Areas that a page may lie on.
    in_use: AtomicUsize,
    /// Of these, areas that are being given up.
    leaving: AtomicUsize,
}

impl Default for Areas {
    fn default() -> Areas {
        Areas {
            list: Mutex::new(Row::Innermost, "the list of areas", Vec::new()),
            in_use: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
        }
    }
}

impl Areas {
    /// May a page lie on an area?
    pub fn any(&self) -> bool {
        self.in_use.load(Ordering::Acquire) > 0
    }

    /// Is there an area that pages can be given to from here on?
    pub fn any_stays(&self) -> bool {
        self.in_use.load(Ordering::Acquire) > self.leaving.load(Ordering::Acquire)
    }

    /// Begin to use an area.
    pub fn swap_on(&self, engine: &Engine, new: SwapOn) -> Result<(), SwapOnError> {
        let io = new.disk.engine();
        let kind = match new.disk.kind() {
            Kind::RegularFile => "file",
            Kind::BlockDevice => "partition",
        };
        // Before the first page can be on it.
        self.in_use.fetch_add(1, Ordering::AcqRel);
        let begun = engine.swap_on(NewArea {
            slots: new.slots,
            bad: new.bad,
            priority: new.priority,
            discard: new.discard,
            rotating: new.disk.is_rotating(),
            storage: Box::new(OnDisk::new(new.disk)),
        });
        let id = begun.inspect_err(|_| {
            self.in_use.fetch_sub(1, Ordering::AcqRel);
        })?;
        self.list.lock().push(Known {
            id,
            name: new.name,
            kind,
            io,
            failing: false,
        });
        Ok(())
    }

    /// An area is about to be given up: from here on it is none that stays.
    pub fn begin_leaving(&self, name: &str) -> Result<Leaving<'_>, GiveUpError> {
        let list = self.list.lock();
        let known = list.iter().rev().find(|known| known.name == name);
        let id = known.ok_or(GiveUpError::Unknown)?.id;
        drop(list);
        self.leaving.fetch_add(1, Ordering::AcqRel);
        Ok(Leaving { areas: self, id })
    }

    /// All areas, in the order in which they came.
    pub fn status(&self, engine: &Engine) -> Vec<AreaStatus> {
        let figures = engine.areas();
        let list = self.list.lock();
        let found = |known: &Known| figures.iter().find(|area| area.id == known.id).copied();
        list.iter()
            .filter_map(|known| Some(status(known, &found(known)?)))
            .collect()
    }

    /// Say which areas have begun to fail since the last call, and which work again.
    pub fn report(&self, engine: &Engine) {
        if !self.any() {
            return;
        }
        let figures = engine.areas();
        for known in self.list.lock().iter_mut() {
            let Some(area) = figures.iter().find(|area| area.id == known.id) else {
                continue;
            };
            if area.failing && !known.failing {
                eprintln!(
                    "vswap: {}: it takes no more pages: {}; they stay in memory or go elsewhere",
                    known.name,
                    area.last_error
                        .map_or_else(|| "an error".to_owned(), |error| error.to_string())
                );
            }
            known.failing = area.failing;
        }
    }
}

/// An area that is being given up, or stays after all when this is dropped.
#[derive(Debug)]
pub struct Leaving<'a> {
    areas: &'a Areas,
    id: AreaId,
}

impl Leaving<'_> {
    /// Have what is on it come back or go elsewhere, pages of these `runs`. Takes as long as reading it takes.
    pub fn give_up(
        self,
        engine: &Engine,
        runs: &[Arc<Core>],
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), GiveUpError> {
        let mut bringing = BringingBack::of(runs, self.id, cancel);
        let mut bring_back = || bring_back::walk(&mut bringing);
        engine.swap_off_mapped(self.id, &mut engine.scratch(), cancel, &mut bring_back)?;
        self.areas.list.lock().retain(|known| known.id != self.id);
        self.areas.in_use.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.areas.leaving.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A page could not be read back, and whoever touches it gets SIGBUS.
pub fn page_lost(stats: &Stats, space: &Space, page: u64, why: &dyn Display) {
    let before = stats.pages_lost.get();
    stats.pages_lost.add(1);
    if before < LOST_NAMED_MAX {
        eprintln!(
            "vswap: the page at {:#x} of process {} is lost: {why}; a thread that touches it gets SIGBUS, \
             everything else goes on",
            page * PAGE_BYTES,
            space.pid().unwrap_or(0),
        );
    } else if before == LOST_NAMED_MAX {
        eprintln!("vswap: more pages are lost; they are counted and not named any more");
    }
}

fn status(known: &Known, area: &AreaFigures) -> AreaStatus {
    AreaStatus {
        name: known.name.clone(),
        kind: known.kind,
        size_bytes: area.size_bytes,
        used_bytes: area.used_bytes,
        priority: area.priority,
        read_bytes: area.pages_read * PAGE_BYTES,
        written_bytes: area.pages_written * PAGE_BYTES,
        errors: area.errors,
        failing: area.failing,
        io: known.io,
    }
}

/// A page that comes in less is there at once: fetching one more with it costs about as much as it may save.
const QUICK: Duration = Duration::from_micros(10);
/// The newest read counts for one part in this many.
const LATENCY_PART: u64 = 8;

/// A file or block device as the engine's storage: slot n lies at byte n * 4096.
#[derive(Debug)]
struct OnDisk {
    disk: Disk,
    /// How long the read of one page takes, on average; 0 while nobody knows.
    latency_ns: AtomicU64,
}

impl OnDisk {
    fn new(disk: Disk) -> OnDisk {
        OnDisk {
            disk,
            latency_ns: AtomicU64::new(0),
        }
    }

    fn note_latency(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        // Two threads may lose each other's change: it is an average.
        let so_far = self.latency_ns.load(Ordering::Relaxed);
        let average = match so_far {
            0 => took,
            _ => so_far - so_far / LATENCY_PART + took / LATENCY_PART,
        };
        self.latency_ns.store(average, Ordering::Relaxed);
    }
}

impl Storage for OnDisk {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        let mut pages: Vec<&mut PageBytes> = pages.iter_mut().map(|page| &mut page.0).collect();
        let begun = Instant::now();
        let read = self.disk.read(slot * PAGE_BYTES, &mut pages);
        if pages.len() == 1 {
            self.note_latency(begun.elapsed());
        }
        read.map_err(error)
    }

    fn read_runs(&self, runs: &mut [ReadRun<'_>]) {
        if let [one] = runs {
            one.outcome = self.read(one.slot, &mut one.pages);
            return;
        }
        let mut on_disk: Vec<disk::ReadRun<'_>> = runs
            .iter_mut()
            .map(|run| disk::ReadRun {
                at: run.slot * PAGE_BYTES,
                pages: run.pages.iter_mut().map(|page| &mut page.0).collect(),
                outcome: Ok(()),
            })
            .collect();
        self.disk.read_runs(&mut on_disk);
        let outcomes: Vec<_> = on_disk.into_iter().map(|run| run.outcome).collect();
        for (run, outcome) in runs.iter_mut().zip(outcomes) {
            run.outcome = outcome.map_err(error);
        }
    }

    fn is_quick(&self) -> bool {
        let known = self.latency_ns.load(Ordering::Relaxed);
        known > 0 && u128::from(known) < QUICK.as_nanos()
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        let pages: Vec<&PageBytes> = pages.iter().map(|page| &page.0).collect();
        self.disk.write(slot * PAGE_BYTES, &pages).map_err(error)
    }

    fn discard(&self, slots: std::ops::Range<u64>) -> Result<(), StorageError> {
        let bytes = slots.start * PAGE_BYTES..slots.end * PAGE_BYTES;
        self.disk.discard(bytes).map_err(error)
    }
}

fn error(error: DiskError) -> StorageError {
    match error {
        DiskError::Full => StorageError::Full,
        DiskError::Short => StorageError::Short,
        DiskError::Failed { errno } => StorageError::Failed { errno },
    }
}
