//! What a run and a store are told at the start.

use std::path::PathBuf;
use std::time::Duration;

pub use vswap_engine::{Codec, GroupLimits, GroupName, Mapping};

use crate::base::page_run::PAGE_BYTES;

/// What a store is told.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Frames: pages that are on their way out.
    pub frames: u64,
    /// How pages are compressed.
    pub codec: Codec,
    /// Most bytes that the compressed pool may take. A run with its own store sets this limit anew.
    pub pool_limit_bytes: u64,
    /// Keep a checksum of every stored page and check it when the page comes back.
    pub checksums: bool,
    /// Several runs share the store, each with its own group.
    pub shared: bool,
}

/// Everything the pager is told once, at the start of a run.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bytes of RAM that the whole run may use: resident anonymous memory of its processes, pool, frames, metadata, and
    /// vswap's own memory.
    pub limit_bytes: u64,
    /// Most bytes that the compressed pool may take, if the user said so. 0 means no pool.
    pub pool_limit_bytes: Option<u64>,
    /// Which slots page words name: those of the virtual area or those of physical areas.
    pub mapping: Mapping,
    /// The group of all pages of the run. None means the root, which has no limits. In a shared store the run's own
    /// group lies inside it.
    pub group: Option<RunGroup>,
    /// The process from which all others of the run descend.
    pub root_pid: u32,
    /// Directory of this run, made and removed by the caller. The agents' socket is made in it.
    pub run_dir: PathBuf,
    /// Print nothing but errors on standard error.
    pub quiet: bool,
    /// Debugging: evict all that can be evicted, again and again with this pause, whatever the limit says.
    pub evict_all_every: Option<Duration>,
}

/// The group of a run.
#[derive(Debug, Clone)]
pub struct RunGroup {
    /// Its name. The groups around it have no limits.
    pub name: GroupName,
    /// What its pages may take up. If none are given, those that another run has set on this group stay.
    pub limits: GroupLimits,
}

/// Frames take one part in this many of the limit, within bounds: an eviction window needs 64.
const FRAMES_PART: u64 = 128;
const FRAMES_LEAST: u64 = 128;
const FRAMES_MOST: u64 = 2048;

/// Frames of a shared store: 16 MiB if all are in use at once. They suffice for 32 small runs whose pages have nowhere
/// to go.
pub const SHARED_FRAMES: u64 = 4096;

impl Config {
    /// Frames that the run may use, for pages on their way out.
    pub fn frames(&self) -> u64 {
        (self.limit_bytes / PAGE_BYTES / FRAMES_PART).clamp(FRAMES_LEAST, FRAMES_MOST)
    }
}
