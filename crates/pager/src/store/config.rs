//! What a run and a store are told at the start.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::policy::follow::RamRange;
pub use vswap_engine::{Codec, GroupLimits, GroupName, Mapping};

use crate::base::page_run::PAGE_BYTES;
use crate::store::tiers::TierLimit;

/// What a store is told.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Frames: pages that are on their way out.
    pub frames: u64,
    /// How pages are compressed.
    pub codec: Codec,
    /// Pack cold pages of the pool again, with zstd.
    pub repacks: bool,
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
    pub ram: RamRange,
    /// What the compressed pool may take at the most, if the user said so.
    pub pool_limit: Option<PoolLimit>,
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
    /// Debugging: a file in place of the kernel's own for how much is waited for memory.
    pub pressure_file: Option<PathBuf>,
    /// Debugging: evict all that can be evicted, again and again with this pause, whatever the limit says.
    pub evict_all_every: Option<Duration>,
    /// Watch some pages, with this pause between two sweeps, to tell what less memory would cost.
    pub sample_every: Option<Duration>,
}

/// What the compressed pool may take at the most; nothing is no pool at all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolLimit {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the run's limit, whatever that comes to.
    Percent(f64),
}

impl PoolLimit {
    /// Bytes, where the run's limit is `limit_bytes`.
    pub fn of(self, limit_bytes: u64) -> u64 {
        match self {
            PoolLimit::Bytes(bytes) => bytes,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "the cast saturates, and a share need not be exact"
            )]
            PoolLimit::Percent(share) => (limit_bytes as f64 * share / 100.0) as u64,
        }
    }
}

/// The group of a run.
#[derive(Debug, Clone)]
pub struct RunGroup {
    /// Its name. The groups around it have no limits.
    pub name: GroupName,
    /// What its pages may take up. If none are given, those that another run has set on this group stay.
    pub limits: GroupLimits,
    /// And of each tier that is named here, whatever `limits` say.
    pub tiers: Vec<TierLimit>,
}

/// Frames take one part in this many of the limit, within bounds: an eviction window needs 64.
const FRAMES_PART: u64 = 128;
const FRAMES_LEAST: u64 = 128;
const FRAMES_MOST: u64 = 2048;

/// Frames of a shared store: 16 MiB if all are in use at once. They suffice for 32 small runs whose pages have nowhere
/// to go.
pub const SHARED_FRAMES: u64 = 4096;

impl Config {
    /// The same with sampling, if there is a pause between sweeps.
    #[must_use]
    pub fn sampling(self, sample_every: Option<Duration>) -> Config {
        Config {
            sample_every,
            ..self
        }
    }

    /// Frames that the run may have in use: pages that are on their way out. They stay what they were at the start,
    /// whatever its limit becomes: the engine has them all from then on.
    pub fn frames(&self) -> u64 {
        (self.ram.least_bytes / PAGE_BYTES / FRAMES_PART).clamp(FRAMES_LEAST, FRAMES_MOST)
    }
}
