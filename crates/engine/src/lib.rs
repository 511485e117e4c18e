//! The swap engine: slot words, clusters, the virtual area, physical areas, the swap cache, counts and the compressed
//! pool.
//!
//! A page is swapped out in two halves. [`Engine::swap_out`] gives a filled frame a slot. [`Engine::write_out`] then
//! finds a place for the content and frees the frame. [`Engine::repack`] packs what is cold in the pool more densely,
//! and [`Engine::write_back`] moves it on to an area. [`Engine::swap_in`] copies the content from wherever it is.
//! [`Engine::dup`] and [`Engine::put`] count page-table references, and the last put frees everything.
//! [`Engine::puts`] puts many entries at once.
//!
//! The engine makes no system call and knows no process, address or descriptor. Its memory comes from a [`PageSource`].
//! The bytes of a physical area go to its [`Storage`]. Each page belongs to a [group](GroupId), which can be limited.
//!
//! The crate runs under Miri, and under loom and shuttle with `--cfg loom` or `--cfg shuttle`.
//!
//! Lock order, outermost first: frame claim and backing pin (no thread waits for either while it holds a lock), tree of
//! groups, hands of writing back and of packing again, order of areas, hand of demotion, cluster. Innermost are the
//! queue of clean frames, the storage and the area's lists. The pool's locks are taken with none of these held. Debug
//! builds check the order (`base/lock_order.rs`).

// The floors, lowest first. A module imports only what stands above it here (`cargo xtask tidy` checks that).

// Pages of memory, storage of areas, locks and atomics.
mod base;
// The compressed pool.
pub mod zpool;
// How a page is compressed.
pub mod codec;
// The header of an area on disk.
pub mod header;
// Names of slots, and the words that say what is in them.
mod words;
// Which group a page belongs to, and what is charged to the group.
mod groups;
// Frames, and the queue of clean ones.
mod frames;
// Clusters of slots, their tables, and the steps that are taken under a cluster's lock.
mod cluster;
// One area: its clusters, and which of them gives the next slot.
mod area;
// All physical areas, by priority.
mod areas;
// Figures of all of the above.
mod stats;
// The engine: what it is made of, and what concerns areas, groups and counts alone.
mod engine;
// What an engine does with pages: out, in, on to other places, and away.
mod verbs;

#[cfg(all(test, not(any(loom, shuttle))))]
mod testing;

pub use area::AllocError;
pub use areas::{
    AREAS_MAX, AreaFigures, Discard, NewArea, PRIORITY_DEFAULT, READ_AROUND_MAX, SwapOnError,
};
pub use base::buffer::PageBuffer;
pub use base::pages::{self, HeapPages, PAGE_BYTES, Page, PageSource};
pub use base::storage::{RamStorage, ReadRun, Storage, StorageError, StorageExtent};
pub use cluster::DupError;
pub use codec::{Codec, CodecNameError, Pack, Scratch, ZstdLevel};
pub use engine::{Config, ConfigError, Engine};
pub use frames::{FrameMut, FrameRef};
pub use groups::{
    GROUPS_MAX, GroupCharges, GroupError, GroupEvents, GroupFigures, GroupId, GroupLimits,
    GroupName, GroupNameError,
};
pub use stats::Stats;
pub use verbs::demote::Demotion;
pub use verbs::dup::Dups;
pub use verbs::leaving::Written;
pub use verbs::lookup::Lookup;
pub use verbs::put::Puts;
pub use verbs::recount::Recount;
pub use verbs::repack::Repack;
pub use verbs::swap_in::{SwapIn, SwapInError};
pub use verbs::swap_off::{BringBack, SwapOffError};
pub use verbs::swap_out::{Mapping, Placed};
pub use verbs::write_back::WriteBack;
pub use verbs::write_out::WriteOutError;
pub use words::entry::{AreaId, Entry};
pub use words::geometry::{SLOTS_MAX, SLOTS_PER_CLUSTER};
pub use words::shadow::Shadow;
pub use words::tier::{TIERS_MAX, TierId};
pub use words::{backing, slot as table};
pub use zpool::PoolFill;
