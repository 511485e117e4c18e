//! The parts of a run that moving pages out needs.

use std::sync::Arc;
use std::time::Duration;

use vswap_engine::Mapping;

use crate::events::listening::Listening;
use crate::evict::following::Following;
use crate::fault::serving::Serving;
use crate::run::part::Part;
use crate::run::stored::Stored;
use crate::run::write_queue::WriteQueue;

/// The parts of a run that moving pages out needs.
#[derive(Debug)]
pub struct Evicting {
    /// Serves the faults on pages that leave.
    pub serving: Arc<Serving>,
    /// Follows the forks that come in between.
    pub listening: Arc<Listening>,
    /// What the run has of the store.
    pub part: Arc<Part>,
    /// Which evictors follow their kin.
    pub following: Following,
    /// Pages that wait to be compressed.
    pub write_queue: WriteQueue,
    /// Whether pages were stored since somebody looked.
    pub stored: Stored,
    /// Which slots page words name.
    pub mapping: Mapping,
    /// Debugging: move everything out, again and again with this pause.
    pub all_every: Option<Duration>,
}
