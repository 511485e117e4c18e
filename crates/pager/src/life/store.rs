//! The store: what several runs can share. The swap tables, pool and groups belong to the engine. The areas are here.
//!
//! `vswap run` has its own store with one run on it. The store of `vswap daemon` is shared. Each run on it has its own
//! group, so that what the run has in pool and areas is counted and limited separately (`run/part.rs`). Runs come and
//! go one at a time, under the lock of the list of runs.

use std::sync::{Arc, Weak};

use vswap_areas::{SwapOn, TierName};
use vswap_engine::{Codec, Engine, GroupId, GroupName};
use vswap_sys::{looks, process::cpu};

use crate::base::lock::{Mutex, Row};
use crate::evict::{following, shrink, write_out};
use crate::fault::area_reads;
use crate::life::bring_back::{self, BringingBack};
use crate::life::run::Run;
use crate::life::settings::{self, GroupChange, SetError};
use crate::life::start_error::StartError;
use crate::life::status::StoreStatus;
use crate::run::leaving::Leaving;
use crate::store::areas::{AreaStatus, Areas, GiveUpError, UseError};
use crate::store::config::{Config, StoreConfig};
use crate::store::groups::{self, GroupStatus};
use crate::store::memory::MappedPages;
use crate::store::more_room::Wish;
use crate::store::tiers::{TierStatus, TooManyTiers};

/// Swap tables, pool, groups and areas, of one run or of several.
#[derive(Debug)]
pub struct Store {
    pub(crate) engine: Arc<Engine>,
    pub(crate) areas: Arc<Areas>,
    shared: bool,
    repacks: bool,
    runs: Mutex<Vec<Weak<Run>>>,
}

impl Store {
    /// An empty store.
    ///
    /// # Errors
    /// `StartError` if memory or a descriptor is missing.
    pub fn new(config: &StoreConfig) -> Result<Store, StartError> {
        let engine_config = vswap_engine::Config {
            // Comparing pages with kin's proposals makes room where there is none, so it has frames of its own.
            frames: usize::try_from(config.frames)
                .unwrap_or(usize::MAX)
                .saturating_add(following::FRAMES),
            cpus: cpu::bound(),
            codec: config.codec,
            pool_limit_bytes: config.pool_limit_bytes,
            checksums: config.checksums,
        };
        looks::keep()?;
        let engine = Engine::new(&engine_config, Arc::new(MappedPages::new()?))?;
        Ok(Store {
            engine: Arc::new(engine),
            areas: Arc::new(Areas::default()),
            shared: config.shared,
            repacks: config.repacks,
            runs: Mutex::new(Row::Runs, "the list of runs", Vec::new()),
        })
    }

    /// Remove what the areas would leave behind on other machines. For the end of the process, when no run is left.
    pub fn retire(&self) {
        self.engine.retire_areas();
    }

    /// How its pages are compressed.
    pub fn codec(&self) -> Codec {
        self.engine.codec()
    }

    /// Are cold pages of the pool packed again?
    pub(crate) fn repacks(&self) -> bool {
        self.repacks
    }

    /// Begin to use a physical area.
    ///
    /// # Errors
    /// [`UseError`]. Nothing has changed then, and the disk is closed.
    pub fn swap_on(&self, area: SwapOn) -> Result<(), UseError> {
        self.areas.swap_on(&self.engine, area)?;
        self.runs().iter().for_each(use_areas);
        Ok(())
    }

    /// Areas of these tiers will come. From now on limits may name them.
    ///
    /// # Errors
    /// [`TooManyTiers`].
    pub fn expect_tiers<'a>(
        &self,
        mut names: impl Iterator<Item = &'a TierName>,
    ) -> Result<(), TooManyTiers> {
        names.try_for_each(|name| self.areas.tiers.declare(&self.engine, name).map(drop))
    }

    /// Give a physical area up while programs run. Each of its pages comes back to the pool or goes to another area. If
    /// it is the last area, the pool may at once take as much as without areas. Returns when the area is empty. Asks
    /// `cancel` in between.
    ///
    /// # Errors
    /// [`GiveUpError`]. The area is then in use as before, with its old priority.
    pub fn swap_off(&self, name: &str, cancel: &dyn Fn() -> bool) -> Result<(), GiveUpError> {
        let area = self.areas.begin_leaving(name)?;
        let runs = self.runs();
        runs.iter()
            .for_each(|run| run.serving.limit.pool.renew(&run.part, &self.areas));
        let mut bringing = BringingBack::of(&runs, area.id(), cancel);
        area.empty(&self.engine, cancel, &mut || {
            bring_back::walk(&mut bringing)
        })
    }

    /// Wait until a run has no area and soon nowhere else to put pages, or is to be parked, so that an area had better
    /// come. One thread at a time.
    pub fn wait_until_room_is_wanted(&self) -> Wish {
        let mut wish = self.areas.more_room.wait();
        // A wish may have come while the last one was granted.
        while self.areas.any() {
            wish = self.areas.more_room.wait();
        }
        wish
    }

    /// The physical areas, in the order in which they came.
    pub fn areas(&self) -> Vec<AreaStatus> {
        self.areas.status(&self.engine)
    }

    /// The tiers that have areas, the highest priority first.
    pub fn tiers(&self) -> Vec<TierStatus> {
        self.areas.tiers_status(&self.engine)
    }

    /// All groups, the root first.
    pub fn groups(&self) -> Vec<GroupStatus> {
        groups::status(&self.engine, &self.areas, &self.engine.stats())
    }

    /// Change the limits of a group, which hold for what is stored from now on.
    ///
    /// # Errors
    /// [`SetError`]; nothing has changed.
    pub fn set_group(&self, name: &GroupName, change: &GroupChange) -> Result<(), SetError> {
        let change = change.resolve(&self.areas.tiers)?;
        let runs = self.runs();
        // What a run's own group may have of the pool follows the run's limit as well.
        if let Some(run) = runs
            .iter()
            .find(|run| run.part.own_group.as_ref() == Some(name))
        {
            run.part.change_limits(|limits| change.of(limits));
            run.serving.limit.pool.renew(&run.part, &self.areas);
            return Ok(());
        }
        let group = self.engine.find_group(name);
        let group = group.ok_or_else(|| SetError::UnknownGroup(name.clone()))?;
        settings::set_group(&self.engine, group, &change)
    }

    /// Figures of all runs together.
    pub fn status(&self) -> StoreStatus {
        let engine = self.engine.stats();
        StoreStatus {
            pool_bytes: engine.pool_bytes,
            payload_bytes: engine.payload_bytes,
            swapped_pages: engine.slots_used,
            zero_pages: engine.zero,
            compressed_pages: engine.compressed,
            raw_pages: engine.raw,
            physical_pages: engine.physical,
            metadata_bytes: engine.table_bytes,
            areas: self.areas(),
            tiers: self.tiers(),
            groups: groups::status(&self.engine, &self.areas, &engine),
        }
    }

    /// Add a run and make its group.
    pub(crate) fn join(&self, config: Config) -> Result<Arc<Run>, StartError> {
        let leaving = Leaving::new()?;
        let mut runs = self.runs.lock();
        let own = self.shared.then_some(config.root_pid);
        let made = groups::make(&self.engine, &self.areas.tiers, config.group.as_ref(), own);
        let (group, name) = made.inspect_err(|_| {
            let named = config.group.as_ref().map(|group| group.name.clone());
            remove_unused(&self.engine, named);
        })?;
        let run = Arc::new(Run::new(
            config,
            &self.engine,
            &self.areas,
            group,
            name.filter(|_| self.shared),
            leaving,
        ));
        runs.push(Arc::downgrade(&run));
        drop(runs);
        // Whoever adds the first area from now on finds the run in the list.
        if self.areas.any() {
            use_areas(&run);
        }
        Ok(run)
    }

    /// Remove a run whose processes are gone. False if its group is still charged for pages.
    pub(crate) fn leave(&self, run: &Arc<Run>) -> bool {
        let mut runs = self.runs.lock();
        if let Some(name) = &run.part.own_group
            && !remove_group(&self.engine, name, run.part.group)
        {
            return false;
        }
        runs.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(run)));
        drop(runs);
        if self.shared {
            // What its pages have left behind is nobody's.
            self.engine.compact(usize::MAX);
            self.engine.give_frames_back();
        }
        true
    }

    fn runs(&self) -> Vec<Arc<Run>> {
        self.runs.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// From now on pages may lie on areas.
fn use_areas(run: &Arc<Run>) {
    area_reads::start(&run.serving);
    write_out::start_for_areas(&run.evicting);
    shrink::start(&run.evicting);
    run.serving.limit.has_more_room();
}

/// Remove a run's own group, and its outer groups if they are empty then. False if pages are left in the group.
fn remove_group(engine: &Engine, name: &GroupName, group: GroupId) -> bool {
    if engine.remove_group(group).is_err() && engine.find_group(name) == Some(group) {
        return false;
    }
    remove_unused(engine, name.parent());
    true
}

/// Remove a group and its outer groups, up to one that is in use.
fn remove_unused(engine: &Engine, mut name: Option<GroupName>) {
    while let Some(unused) = name {
        let group = engine.find_group(&unused);
        if group.is_none_or(|group| engine.remove_group(group).is_err()) {
            return;
        }
        name = unused.parent();
    }
}
