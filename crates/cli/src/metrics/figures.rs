//! What the endpoint tells of: runs and a store, as they are at one moment.

use std::time::SystemTime;

use vswap_pager::{Status, StoreStatus};

/// What one process can tell.
#[derive(Debug, Default)]
pub struct Figures {
    /// The run; or the daemon's runs, in which case there may be none.
    pub runs: Vec<RunFigures>,
    /// Pool, areas and groups. None in a run of the daemon, which has them.
    pub store: Option<StoreFigures>,
}

/// A run.
#[derive(Debug)]
pub struct RunFigures {
    /// The process of `vswap run` or `vswap attach`.
    pub pid: u32,
    /// The name of its program. The daemon does not know it.
    pub program: Option<String>,
    /// When it began. The daemon does not know it.
    pub started: Option<SystemTime>,
    /// The rest.
    pub status: Status,
}

/// A store.
#[derive(Debug)]
pub struct StoreFigures {
    /// How it compresses pages.
    pub codec: String,
    /// The rest.
    pub status: StoreStatus,
}
