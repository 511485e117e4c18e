//! The areas of an arena: opened as those of a run are, and given to the engine. And the tiers that they belong to.
//!
//! All of them come when the arena is made. So what is known of them does not change, and needs no lock.

use std::path::{Path, PathBuf};

use vswap_areas::units::PAGE_BYTES;
use vswap_areas::{OpenError, Opening, SwapOn, SwapSpec, TierName};
use vswap_engine::{AreaId, Engine, NewArea, TierId};
use vswap_sys::disk::PrivateError;
use vswap_sys::sigbus::Masked;

use crate::error::ArenaError;
use crate::size::SizeError;
use crate::stats::AreaStats;

/// An area that is asked for.
#[derive(Debug)]
pub enum Asked {
    /// A private file in a directory.
    Private(PathBuf, Result<u64, SizeError>),
    /// What `--swap` of `vswap run` would be given.
    Named(String),
}

impl Asked {
    fn spec(self) -> Result<SwapSpec, ArenaError> {
        match self {
            Asked::Private(directory, bytes) => {
                check_directory(&directory)?;
                Ok(SwapSpec::private(directory, bytes?))
            }
            Asked::Named(text) => Ok(text.parse()?),
        }
    }
}

/// A name that does not exist would lend the directory that it lies in, which nobody has named here.
fn check_directory(directory: &Path) -> Result<(), ArenaError> {
    if directory.is_dir() {
        return Ok(());
    }
    let place = directory.display().to_string();
    let why = PrivateError::NoDirectory(directory.to_owned()).to_string();
    Err(ArenaError::Area(OpenError { place, why }))
}

/// An area that is in use.
#[derive(Debug)]
struct Area {
    id: AreaId,
    name: String,
    kind: &'static str,
    tier: TierName,
}

/// The areas and tiers of an arena.
#[derive(Debug)]
pub struct Areas {
    list: Vec<Area>,
    /// The name of each tier, by its number. The first is that of the areas for which none is named.
    tiers: Vec<TierName>,
    bytes: u64,
}

impl Areas {
    /// No areas.
    pub fn none() -> Areas {
        Areas {
            list: Vec::new(),
            tiers: vec![TierName::default()],
            bytes: 0,
        }
    }

    /// Opens areas, and has the engine use them. May block on a network. If one fails, those before it are closed with
    /// the engine.
    ///
    /// # Errors
    /// `Size`, `AreaName`, `Area`, `SwapOn`, `TooManyTiers`.
    pub fn open(
        asked: Vec<Asked>,
        opening: &Opening,
        engine: &Engine,
    ) -> Result<Areas, ArenaError> {
        // A store has threads of its own, which begin with this mask. A handler of the program that ran on one of them
        // would touch memory while a lock is held that its page needs.
        let _masked = Masked::new();
        let mut areas = Areas::none();
        for asked in asked {
            let area = vswap_areas::open(&asked.spec()?, opening, engine.codec())?;
            areas.swap_on(engine, area)?;
        }
        Ok(areas)
    }

    fn swap_on(&mut self, engine: &Engine, area: SwapOn) -> Result<(), ArenaError> {
        let tier = self.declare(&area.tier)?;
        let added = engine.swap_on(NewArea {
            slots: area.slots,
            bad: area.bad,
            priority: area.priority,
            tier,
            discard: area.discard,
            rotating: area.medium.rotating,
            storage: area.medium.storage,
        });
        let id = added.map_err(|error| ArenaError::SwapOn {
            place: area.name.clone(),
            error,
        })?;
        let bytes = area.slots.saturating_mul(PAGE_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        self.list.push(Area {
            id,
            name: area.name,
            kind: area.medium.kind,
            tier: area.tier,
        });
        Ok(())
    }

    /// The number of a tier, which it has from now on.
    fn declare(&mut self, name: &TierName) -> Result<TierId, ArenaError> {
        if let Some(tier) = self.tier(name) {
            return Ok(tier);
        }
        self.tiers.push(name.clone());
        TierId::new(self.tiers.len() - 1).ok_or(ArenaError::TooManyTiers)
    }

    /// The number of a tier that there is.
    pub fn tier(&self, name: &TierName) -> Option<TierId> {
        let at = self.tiers.iter().position(|known| known == name)?;
        TierId::new(at)
    }

    /// Their names, for people.
    pub fn tier_names(&self) -> String {
        let names: Vec<String> = self.tiers.iter().map(TierName::to_string).collect();
        names.join(", ")
    }

    /// Are there any?
    pub fn any(&self) -> bool {
        !self.list.is_empty()
    }

    /// What all of them can hold.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Figures of each. Takes locks of the engine, with signals blocked.
    pub fn stats(&self, engine: &Engine) -> Vec<AreaStats> {
        let _masked = Masked::new();
        let figures = engine.areas();
        let of = |area: &Area| {
            let found = figures.iter().find(|found| found.id == area.id)?;
            Some(AreaStats {
                name: area.name.clone(),
                kind: area.kind,
                tier: area.tier.to_string(),
                priority: found.priority,
                size_bytes: found.size_bytes,
                used_bytes: found.used_bytes,
                pages_read: found.pages_read,
                pages_written: found.pages_written,
                errors: found.errors,
            })
        };
        self.list.iter().filter_map(of).collect()
    }
}
