//! What a run is told at its start.

use std::path::PathBuf;
use std::time::Duration;

pub use vswap_engine::{Codec, GroupLimits, GroupName};

use crate::run::PAGE_BYTES;

/// Everything the pager is told once, at the start of a run.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bytes of RAM that the run may use in all: resident anonymous memory of its processes, pool, frames,
    /// metadata and vswap's own memory.
    pub limit_bytes: u64,
    /// How pages are compressed.
    pub codec: Codec,
    /// Bytes that the compressed pool may take at the most, if the user said so; 0 is no pool at all.
    pub pool_limit_bytes: Option<u64>,
    /// The group that all pages of the run are of; the root, which has no limits, where there is none.
    pub group: Option<RunGroup>,
    /// Directory of this run, made and removed by the caller; the agent's socket is made in it.
    pub run_dir: PathBuf,
    /// Keep a checksum of every stored page and check it when the page comes back.
    pub checksums: bool,
    /// Say nothing on standard error that is not an error.
    pub quiet: bool,
    /// Debugging: evict everything that can be evicted, again and again with this pause, whatever the limit says.
    pub evict_all_every: Option<Duration>,
}

/// The group of a run.
#[derive(Debug, Clone)]
pub struct RunGroup {
    /// Its name. Those that it is in have no limits.
    pub name: GroupName,
    /// What its pages may take up.
    pub limits: GroupLimits,
}

/// Frames take one part in this many of the limit, within bounds: an eviction window needs 64.
const FRAMES_PART: u64 = 128;
const FRAMES_LEAST: u64 = 128;
const FRAMES_MOST: u64 = 2048;

impl Config {
    /// Frames of the engine: pages that are on their way out.
    pub fn frames(&self) -> u64 {
        (self.limit_bytes / PAGE_BYTES / FRAMES_PART).clamp(FRAMES_LEAST, FRAMES_MOST)
    }

    /// Memory of the frames.
    pub fn frames_bytes(&self) -> u64 {
        self.frames() * PAGE_BYTES
    }
}
