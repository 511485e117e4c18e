//! What moving pages out takes.

use std::sync::Arc;
use std::time::Duration;

use vswap_engine::Mapping;

use crate::events::listening::Listening;
use crate::fault::serving::Serving;
use crate::run::part::Part;
use crate::run::write_queue::WriteQueue;

/// The parts of a run that moving pages out takes.
#[derive(Debug)]
pub struct Evicting {
    /// What faults on pages that leave are served with.
    pub serving: Arc<Serving>,
    /// What forks that come in between are followed with.
    pub listening: Arc<Listening>,
    /// What the run has of the store.
    pub part: Arc<Part>,
    /// What is to be compressed.
    pub write_queue: WriteQueue,
    /// Which slots page words name.
    pub mapping: Mapping,
    /// Debugging: move everything out, again and again with this pause.
    pub all_every: Option<Duration>,
}
