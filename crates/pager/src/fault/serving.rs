//! The parts of a run that serving faults needs.

use std::sync::Arc;

use vswap_engine::Engine;

use crate::policy::working_set::WorkingSet;
use crate::run::area_queue::AreaQueues;
use crate::run::buffers::SpareBuffers;
use crate::run::limit::Limit;
use crate::run::packing::Packing;
use crate::run::parking::Parking;
use crate::run::pressure::Pressure;
use crate::run::references::References;
use crate::run::samples::Samples;
use crate::run::shrinker::Shrinker;
use crate::run::stats::Stats;
use crate::store::areas::Areas;

/// The parts of a run that bringing pages back needs.
#[derive(Debug)]
pub struct Serving {
    /// Swap tables, cache, pool: the store's.
    pub engine: Arc<Engine>,
    /// Files and devices behind the pool: the store's.
    pub areas: Arc<Areas>,
    /// What the run uses, and how much more it may take.
    pub limit: Limit,
    /// Whether the run is parked.
    pub parking: Parking,
    /// Counters.
    pub stats: Stats,
    /// What was seen of watched pages, if there are any.
    pub samples: Samples,
    /// What paging costs the program.
    pub pressure: Pressure,
    /// What page words refer to.
    pub references: References,
    /// Which pages went out too early.
    pub working_set: WorkingSet,
    /// How densely pages are packed.
    pub packing: Packing,
    /// Swap-ins that wait to be read from areas.
    pub area_queues: AreaQueues,
    /// Figures on pages that come back from areas.
    pub shrinker: Shrinker,
    /// Buffers for threads that bring pages back only now and then.
    pub spare_buffers: SpareBuffers,
    /// Print nothing but errors.
    pub quiet: bool,
}
