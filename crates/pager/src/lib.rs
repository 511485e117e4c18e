//! Swap for unmodified programs: spaces, faults, eviction, layout events, limits.
//!
//! [`Store`] is what runs can share. [`Pager`] is one run on it. Its threads:
//!
//! - one hears agents say hello (`server`);
//! - one samples memory (`governor`);
//! - one measures how much memory is shared (`share_watch`);
//! - one measures what paging costs and what the machine can spare (`pressure_watch`);
//! - one for each CPU compresses (`write_out`);
//! - one for each filter takes system calls in, and two for each space answer them (`notify`);
//! - one for each CPU reads faults and layout events of all active spaces (`reader`);
//! - one for each active space moves pages out (`evict`);
//! - with physical areas, a few wait for them (`area_reads`, `write_out`), and one moves there what is cold in the pool
//!   (`shrink`).
//!
//! State lies below, verbs above. A floor is given what it needs of a run: single parts, or the plain structs
//! `Serving`, `Listening` and `Evicting`. Only the top floor knows a whole run (`life/run.rs`).

// The floors, lowest first: each imports only from those above it in this list.

// Kernel, locks, threads, rules, pages and sets of them.
mod base;
// Decisions that need numbers only.
mod policy;
// What runs can share: areas, groups, memory, settings.
mod store;
// What is known of each page of a process.
pub mod layout;
// One process: its memory, its agent, its kin.
mod space;
// The parts of a run, each with what it owns.
mod run;
// Serving faults.
mod fault;
// What the kernel tells of a space, and which of its memory is watched.
mod events;
// System calls that stop at the filter.
mod calls;
// Moving pages out.
mod evict;
// Beginnings and ends, and the threads that watch over all.
mod life;
// A model of everything below the pager, for tests of all of it.
#[cfg(test)]
mod simulator;

pub use base::{page_run, ranges};
pub use layout::{pins, words};
pub use life::leave::NotManaged;
pub use life::memory_map::{self, MapQuery, MemoryMap};
pub use life::pager::{Pager, environment};
pub use life::park::{OutOfStep, ParkStep, Parked};
pub use life::process_status::ProcessStatus;
pub use life::sampling::{NotSampled, Sampling};
pub use life::settings::{self, GroupChange, SetError, Settings};
pub use life::start_error::StartError;
pub use life::status::{self, Status, StoreStatus};
pub use life::store::Store;
pub use policy::{hello, sampling, working_set};
pub use run::pressure::{Lost, Share};
pub use run::samples::{self, Sampled};
pub use run::stats::LatencyBucket;
pub use store::areas::{self, AreaStatus, GiveUpError, UseError};
pub use store::config::{self, Config, RunGroup, StoreConfig};
pub use store::groups::{self, GroupStatus};
pub use store::more_room::Wish;
pub use store::tiers::{GroupTier, TierLimit, TierStatus, TooManyTiers, UnknownTier};
