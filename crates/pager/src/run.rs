//! The parts of one run, each with what it owns. `Run` only holds them together.

pub mod stats;
pub mod buffers;
pub mod spaces;
pub mod references;
pub mod filters;
pub mod forks;
pub mod part;
pub mod pool_share;
pub mod limit;
pub mod shares;
pub mod watch;
pub mod write_queue;
pub mod area_queue;
pub mod shrinker;

use std::sync::Arc;

use vswap_engine::{Engine, GroupId, GroupName};
use vswap_sys::process::cpu;

use crate::policy::working_set::WorkingSet;
use crate::run::area_queue::AreaQueue;
use crate::run::buffers::SpareBuffers;
use crate::run::filters::Filters;
use crate::run::forks::Forks;
use crate::run::limit::Limit;
use crate::run::part::Part;
use crate::run::references::References;
use crate::run::shares::Shares;
use crate::run::shrinker::Shrinker;
use crate::run::spaces::Spaces;
use crate::run::stats::Stats;
use crate::run::watch::Watch;
use crate::run::write_queue::WriteQueue;
use crate::store::areas::Areas;
use crate::store::config::Config;

/// The parts of a run.
#[derive(Debug)]
pub struct Run {
    /// What the run was told.
    pub config: Config,
    /// Swap tables, cache, pool: the store's.
    pub engine: Arc<Engine>,
    /// Files and devices behind the pool: the store's.
    pub areas: Arc<Areas>,
    /// What the run has of the store.
    pub part: Part,
    /// CPUs that the run may use; asked for once, because readers narrow their own.
    pub cpus: Vec<usize>,
    /// What the run uses, and how much it may still take.
    pub limit: Limit,
    /// Counters.
    pub stats: Stats,
    /// What page words refer to.
    pub references: References,
    /// The spaces that have not ended.
    pub spaces: Spaces,
    /// Forked children that have not said hello.
    pub forks: Forks,
    /// What the readers listen to.
    pub watch: Watch,
    /// Whether any process has the filter.
    pub filters: Filters,
    /// Which pages went out too early.
    pub working_set: WorkingSet,
    /// What is to be compressed.
    pub write_queue: WriteQueue,
    /// Swap-ins that wait for areas.
    pub area_queue: AreaQueue,
    /// What moves cold pages from the pool to them.
    pub shrinker: Shrinker,
    /// What counts of processes that share pages, and of those without an agent.
    pub shares: Shares,
    /// Buffers for threads that bring pages back now and then.
    pub spare_buffers: SpareBuffers,
}

impl Run {
    /// The parts of a run that has no process yet.
    pub fn new(
        config: Config,
        engine: &Arc<Engine>,
        areas: &Arc<Areas>,
        group: GroupId,
        own_group: Option<GroupName>,
    ) -> Run {
        Run {
            engine: Arc::clone(engine),
            areas: Arc::clone(areas),
            part: Part::new(Arc::clone(engine), &config, group, own_group),
            cpus: cpu::permitted(),
            limit: Limit::new(config.limit_bytes, config.pool_limit_bytes),
            stats: Stats::default(),
            references: References::new(Arc::clone(engine)),
            spaces: Spaces::default(),
            forks: Forks::default(),
            watch: Watch::default(),
            filters: Filters::default(),
            working_set: WorkingSet::default(),
            write_queue: WriteQueue::default(),
            area_queue: AreaQueue::default(),
            shrinker: Shrinker::default(),
            shares: Shares::default(),
            spare_buffers: SpareBuffers::default(),
            config,
        }
    }
}
