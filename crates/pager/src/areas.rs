//! The run's physical areas: their names, beginning and ending to use them, and saying what goes wrong with them.
//!
//! The engine knows areas by number and bytes by `Storage`; here they have the path that the user gave. The list's
//! lock is innermost and held for list operations only. One area at a time is begun or ended.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;
use vswap_engine::{AreaFigures, AreaId, Discard, Engine, NewArea, Page, Storage, StorageError};
use vswap_engine::{SwapOffError, SwapOnError};
use vswap_sys::area_file::Kind;
use vswap_sys::disk::{Disk, DiskError, PageBytes};

use crate::lock::{Mutex, Row};
use crate::run::PAGE_BYTES;
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
    #[error("the run does not use it: `vswap status --areas` lists what it uses")]
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

/// The areas of a run.
#[derive(Debug)]
pub struct Areas {
    list: Mutex<Vec<Known>>,
    any: AtomicBool,
    lost: AtomicU64,
}

impl Default for Areas {
    fn default() -> Areas {
        Areas {
            list: Mutex::new(Row::Innermost, "the list of areas", Vec::new()),
            any: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        }
    }
}

impl Areas {
    /// Was any area ever used?
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Pages that could not be read back.
    pub fn pages_lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Begin to use an area.
    pub fn swap_on(&self, engine: &Engine, new: SwapOn) -> Result<(), SwapOnError> {
        let io = new.disk.engine();
        let kind = match new.disk.kind() {
            Kind::RegularFile => "file",
            Kind::BlockDevice => "partition",
        };
        // Before the first page can be on it.
        self.any.store(true, Ordering::Release);
        let id = engine.swap_on(NewArea {
            slots: new.slots,
            bad: new.bad,
            priority: new.priority,
            discard: new.discard,
            rotating: new.disk.is_rotating(),
            storage: Box::new(OnDisk(new.disk)),
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

    /// Give an area up: what is on it comes back or goes elsewhere. Takes as long as reading it takes.
    pub fn swap_off(
        &self,
        engine: &Engine,
        name: &str,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), GiveUpError> {
        let id = {
            let list = self.list.lock();
            let known = list.iter().rev().find(|known| known.name == name);
            known.ok_or(GiveUpError::Unknown)?.id
        };
        engine.swap_off(id, &mut engine.scratch(), cancel)?;
        self.list.lock().retain(|known| known.id != id);
        Ok(())
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

    /// A page could not be read back, and whoever touches it gets SIGBUS.
    pub fn page_lost(&self, space: &Space, page: u64, why: &dyn Display) {
        let before = self.lost.fetch_add(1, Ordering::Relaxed);
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

/// A file or block device as the engine's storage: slot n lies at byte n * 4096.
#[derive(Debug)]
struct OnDisk(Disk);

impl Storage for OnDisk {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        let mut pages: Vec<&mut PageBytes> = pages.iter_mut().map(|page| &mut page.0).collect();
        self.0.read(slot * PAGE_BYTES, &mut pages).map_err(error)
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        let pages: Vec<&PageBytes> = pages.iter().map(|page| &page.0).collect();
        self.0.write(slot * PAGE_BYTES, &pages).map_err(error)
    }

    fn discard(&self, slots: std::ops::Range<u64>) -> Result<(), StorageError> {
        let bytes = slots.start * PAGE_BYTES..slots.end * PAGE_BYTES;
        self.0.discard(bytes).map_err(error)
    }
}

fn error(error: DiskError) -> StorageError {
    match error {
        DiskError::Full => StorageError::Full,
        DiskError::Short => StorageError::Short,
        DiskError::Failed { errno } => StorageError::Failed { errno },
    }
}
