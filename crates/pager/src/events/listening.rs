//! The parts of a run that listening to spaces needs.

use std::sync::Arc;

use crate::fault::serving::Serving;
use crate::run::forks::Forks;
use crate::run::leaving::Leaving;
use crate::run::remains::Remains;
use crate::run::shares::Shares;
use crate::run::spaces::Spaces;
use crate::run::watch::Watch;

/// The parts of a run that following its processes needs.
#[derive(Debug)]
pub struct Listening {
    /// Serves the faults of the spaces.
    pub serving: Arc<Serving>,
    /// The spaces that have not ended.
    pub spaces: Spaces,
    /// What those that have ended have left behind.
    pub remains: Remains,
    /// Forked children that have not said hello.
    pub forks: Forks,
    /// How much memory counts as their own of processes that share pages or have no agent.
    pub shares: Shares,
    /// What the readers listen to.
    pub watch: Watch,
    /// Whether the run ends while its processes live on.
    pub leaving: Leaving,
}
