//! A run: the parts of all floors, put together.

use std::sync::Arc;

use vswap_engine::{Engine, GroupId, GroupName};
use vswap_sys::process::cpu;

use crate::events::listening::Listening;
use crate::evict::evicting::Evicting;
use crate::evict::following::Following;
use crate::fault::serving::Serving;
use crate::life::callers::Callers;
use crate::policy::working_set::WorkingSet;
use crate::run::area_queue::AreaQueues;
use crate::run::buffers::SpareBuffers;
use crate::run::filters::Filters;
use crate::run::forks::Forks;
use crate::run::leaving::Leaving;
use crate::run::limit::Limit;
use crate::run::packing::Packing;
use crate::run::parking::Parking;
use crate::run::part::Part;
use crate::run::pressure::Pressure;
use crate::run::references::References;
use crate::run::remains::Remains;
use crate::run::samples::Samples;
use crate::run::shares::Shares;
use crate::run::shrinker::Shrinker;
use crate::run::spaces::Spaces;
use crate::run::stats::Stats;
use crate::run::stored::Stored;
use crate::run::watch::Watch;
use crate::run::write_queue::WriteQueue;
use crate::store::areas::Areas;
use crate::store::config::Config;

/// One run.
#[derive(Debug)]
pub struct Run {
    /// What the run was told.
    pub config: Config,
    /// CPUs that the run may use. Asked for once, because readers narrow their own set.
    pub cpus: Vec<usize>,
    /// What the run has of the store.
    pub part: Arc<Part>,
    /// What serving faults needs.
    pub serving: Arc<Serving>,
    /// What following its processes needs.
    pub listening: Arc<Listening>,
    /// What moving pages out needs.
    pub evicting: Arc<Evicting>,
    /// Whether any process of the run has the filter.
    pub filters: Filters,
    /// How much each process asks of the pager just now.
    pub callers: Arc<Callers>,
}

impl Run {
    /// A run that has no process yet.
    pub fn new(
        config: Config,
        engine: &Arc<Engine>,
        areas: &Arc<Areas>,
        group: GroupId,
        own_group: Option<GroupName>,
        leaving: Leaving,
    ) -> Run {
        let part = Arc::new(Part::new(Arc::clone(engine), &config, group, own_group));
        let serving = Arc::new(Serving {
            engine: Arc::clone(engine),
            areas: Arc::clone(areas),
            limit: Limit::new(config.ram, config.pool_limit),
            parking: Parking::default(),
            stats: Stats::default(),
            samples: Samples::new(config.sample_every),
            pressure: Pressure::default(),
            references: References::new(Arc::clone(engine)),
            working_set: WorkingSet::default(),
            packing: Packing::default(),
            area_queues: AreaQueues::default(),
            shrinker: Shrinker::default(),
            spare_buffers: SpareBuffers::default(),
            quiet: config.quiet,
        });
        let listening = Arc::new(Listening {
            serving: Arc::clone(&serving),
            spaces: Spaces::default(),
            remains: Remains::default(),
            forks: Forks::default(),
            shares: Shares::default(),
            watch: Watch::default(),
            leaving,
        });
        let evicting = Arc::new(Evicting {
            serving: Arc::clone(&serving),
            listening: Arc::clone(&listening),
            part: Arc::clone(&part),
            following: Following::default(),
            write_queue: WriteQueue::default(),
            stored: Stored::default(),
            mapping: config.mapping,
            all_every: config.evict_all_every,
        });
        Run {
            cpus: cpu::permitted(),
            part,
            serving,
            listening,
            evicting,
            filters: Filters::default(),
            callers: Arc::default(),
            config,
        }
    }
}
