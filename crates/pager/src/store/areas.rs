//! Physical areas: their names, adding and removing them, and saying what goes wrong with them.
//!
//! The engine knows areas by number. Here they have the path that the user gave. The lock of the list is innermost and
//! is held for list operations only. One area at a time is added or removed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde::Serialize;
use vswap_areas::{AskFar, Medium, SwapOn, TierName};
use vswap_engine::{AreaFigures, AreaId, BringBack, Engine, NewArea, SwapOffError, SwapOnError};

use crate::base::lock::{Mutex, Row};
use crate::base::page_run::PAGE_BYTES;
use crate::store::more_room::MoreRoom;
use crate::store::tiers::{TierStatus, Tiers, TooManyTiers, microseconds};

/// Figures of an area, for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AreaStatus {
    /// The path that the user gave.
    pub name: String,
    /// `file` or `partition`, as swapon says, or `far`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The most bytes of its medium that the area may take up.
    pub size_bytes: u64,
    /// Bytes of its medium in use now.
    pub used_bytes: u64,
    /// Bytes of the pages in it. More than `used_bytes` if it keeps them packed, otherwise as many.
    pub held_bytes: u64,
    /// Its priority.
    pub priority: i16,
    /// Bytes read so far.
    pub read_bytes: u64,
    /// Bytes written so far.
    pub written_bytes: u64,
    /// Requests that failed so far.
    pub errors: u64,
    /// The area could not take a page last time. It gets no more pages until one has left it.
    pub failing: bool,
    /// How the area is read and written.
    pub io: &'static str,
    /// Its pages are encrypted.
    pub encrypted: bool,
    /// The tier that it belongs to.
    pub tier: TierName,
    /// How long reading a lone page takes on average, in microseconds. None if that is not known, or not yet.
    pub latency_us: Option<f64>,
    /// What an area on other machines tells of itself. None for others.
    pub far: Option<serde_json::Value>,
}

/// Why an area cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UseError {
    /// Its tier can have no number.
    #[error(transparent)]
    Tiers(#[from] TooManyTiers),
    /// The engine's reason.
    #[error(transparent)]
    Engine(#[from] SwapOnError),
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
struct NamedArea {
    id: AreaId,
    name: String,
    kind: &'static str,
    io: &'static str,
    encrypted: bool,
    tier: TierName,
    far: Option<AskFar>,
    /// The user was told that the area fails.
    failing: bool,
}

/// The areas of a store.
#[derive(Debug)]
pub struct Areas {
    list: Mutex<Vec<NamedArea>>,
    /// Areas that a page may lie on.
    in_use: AtomicUsize,
    /// Is there, or was there, one on other machines?
    has_far: AtomicBool,
    /// Those of them that are being given up.
    leaving: AtomicUsize,
    /// The wish for one more.
    pub more_room: MoreRoom,
    /// Their tiers.
    pub tiers: Tiers,
}

impl Default for Areas {
    fn default() -> Areas {
        Areas {
            list: Mutex::new(Row::Innermost, "the list of areas", Vec::new()),
            in_use: AtomicUsize::new(0),
            has_far: AtomicBool::new(false),
            leaving: AtomicUsize::new(0),
            more_room: MoreRoom::default(),
            tiers: Tiers::default(),
        }
    }
}

impl Areas {
    /// May a page lie on an area?
    pub fn any(&self) -> bool {
        self.in_use.load(Ordering::Acquire) > 0
    }

    /// Is there an area that pages may still be given to?
    pub fn any_stays(&self) -> bool {
        self.in_use.load(Ordering::Acquire) > self.leaving.load(Ordering::Acquire)
    }

    /// Has there been an area on other machines?
    pub fn any_far(&self) -> bool {
        self.has_far.load(Ordering::Acquire)
    }

    /// Begin to use an area.
    pub fn swap_on(&self, engine: &Engine, new: SwapOn) -> Result<(), UseError> {
        let tier = self.tiers.declare(engine, &new.tier)?;
        let Medium {
            storage,
            kind,
            io,
            encrypted,
            rotating,
            far,
        } = new.medium;
        // Before the first page can lie on it.
        self.has_far.fetch_or(storage.is_far(), Ordering::AcqRel);
        self.in_use.fetch_add(1, Ordering::AcqRel);
        let begun = engine.swap_on(NewArea {
            slots: new.slots,
            bad: new.bad,
            priority: new.priority,
            tier,
            discard: new.discard,
            rotating,
            storage,
        });
        let id = begun.inspect_err(|_| {
            self.in_use.fetch_sub(1, Ordering::AcqRel);
        })?;
        let (area, slots, priority) = (&new.name, new.slots, new.priority);
        tracing::debug!(area, slots, priority, kind, io, encrypted, "swapon");
        self.list.lock().push(NamedArea {
            id,
            name: new.name,
            kind,
            io,
            encrypted,
            tier: new.tier,
            far,
            failing: false,
        });
        Ok(())
    }

    /// An area is about to be given up. From now on it does not count as one that stays.
    pub fn begin_leaving(&self, name: &str) -> Result<LeavingArea<'_>, GiveUpError> {
        let list = self.list.lock();
        let known = list.iter().rev().find(|known| known.name == name);
        let id = known.ok_or(GiveUpError::Unknown)?.id;
        drop(list);
        self.leaving.fetch_add(1, Ordering::AcqRel);
        Ok(LeavingArea {
            areas: self,
            name: name.to_owned(),
            id,
        })
    }

    /// All areas, in the order in which they were added.
    pub fn status(&self, engine: &Engine) -> Vec<AreaStatus> {
        let figures = engine.areas();
        let found = |known: &NamedArea| figures.iter().find(|area| area.id == known.id).copied();
        let described =
            |known: &NamedArea| Some((status(known, &found(known)?), known.far.clone()));
        let list: Vec<_> = self.list.lock().iter().filter_map(described).collect();
        let asked = list.into_iter().map(|(area, ask)| AreaStatus {
            far: ask.and_then(|ask| ask.ask()),
            ..area
        });
        asked.collect()
    }

    /// The tiers that have areas, the highest priority first.
    pub fn tiers_status(&self, engine: &Engine) -> Vec<TierStatus> {
        self.tiers.status(&engine.areas())
    }

    /// Tell the user which areas have begun to fail since the last call.
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
                tracing::warn!(
                    "{}: it takes no more pages: {}; they stay in memory or go elsewhere",
                    known.name,
                    area.last_error
                        .map_or_else(|| "an error".to_owned(), |error| error.to_string())
                );
            }
            known.failing = area.failing;
        }
    }
}

/// An area that is being given up. If this is dropped before that is done, the area stays.
#[derive(Debug)]
pub struct LeavingArea<'a> {
    areas: &'a Areas,
    name: String,
    id: AreaId,
}

impl LeavingArea<'_> {
    /// Its number.
    pub fn id(&self) -> AreaId {
        self.id
    }

    /// Move its pages elsewhere. `bring_back` brings the directly mapped ones back. This takes as long as reading the
    /// area.
    pub fn empty(
        self,
        engine: &Engine,
        cancel: &dyn Fn() -> bool,
        bring_back: &mut dyn FnMut() -> BringBack,
    ) -> Result<(), GiveUpError> {
        let mut bring_back = bring_back;
        engine.swap_off_mapped(self.id, &mut engine.scratch(), cancel, &mut bring_back)?;
        let area = &self.name;
        tracing::debug!(area, "swapoff");
        self.areas.list.lock().retain(|known| known.id != self.id);
        self.areas.in_use.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }
}

impl Drop for LeavingArea<'_> {
    fn drop(&mut self) {
        self.areas.leaving.fetch_sub(1, Ordering::AcqRel);
    }
}

fn status(known: &NamedArea, area: &AreaFigures) -> AreaStatus {
    AreaStatus {
        name: known.name.clone(),
        kind: known.kind,
        size_bytes: area.size_bytes,
        used_bytes: area.used_bytes,
        held_bytes: area.held_bytes,
        priority: area.priority,
        read_bytes: area.pages_read * PAGE_BYTES,
        written_bytes: area.pages_written * PAGE_BYTES,
        errors: area.errors,
        failing: area.failing,
        io: known.io,
        encrypted: known.encrypted,
        tier: known.tier.clone(),
        latency_us: area.latency.map(microseconds),
        far: None,
    }
}
