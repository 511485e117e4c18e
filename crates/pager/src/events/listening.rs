//! What listening to spaces takes.

use std::sync::Arc;

use crate::fault::serving::Serving;
use crate::run::forks::Forks;
use crate::run::shares::Shares;
use crate::run::spaces::Spaces;
use crate::run::watch::Watch;

/// The parts of a run that following its processes takes.
#[derive(Debug)]
pub struct Listening {
    /// What their faults are served with.
    pub serving: Arc<Serving>,
    /// The spaces that have not ended.
    pub spaces: Spaces,
    /// Forked children that have not said hello.
    pub forks: Forks,
    /// What counts of processes that share pages, and of those without an agent.
    pub shares: Shares,
    /// What the readers listen to.
    pub watch: Watch,
}
