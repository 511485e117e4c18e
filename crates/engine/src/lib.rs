//! The swap engine: slot words, clusters, the virtual area and the physical ones, the swap cache, counts and the
//! compressed pool.
//!
//! A page is swapped out in two halves: [`Engine::swap_out`] gives a filled frame a slot, [`Engine::write_out`] finds
//! the content a place and frees the frame; [`Engine::write_back`] moves what is cold in the pool on to an area.
//! [`Engine::swap_in`] copies the content from wherever it is. [`Engine::dup`]
//! and [`Engine::put`] count the page-table references; the last put frees everything. [`Engine::puts`] takes many.
//!
//! Nothing here makes a system call or knows a process, an address or a descriptor. Memory comes from a [`PageSource`],
//! and what physical areas keep goes to their [`Storage`].
//! Each page is of a [group](GroupId), which can be limited.
//! The crate runs under Miri, and under loom and shuttle with `--cfg loom` or `--cfg shuttle`.
//!
//! Lock order, outermost first: frame claim and backing pin (neither is ever waited for with a lock held), tree of
//! groups, cluster, the area's lists; and after releasing the cluster, the pool's locks.

mod alloc;
mod area;
mod areas;
pub mod backing;
mod charge;
mod cluster;
pub mod codec;
mod count;
mod demote;
mod directory;
mod engine;
mod entry;
mod exchange;
#[cfg(all(test, not(any(loom, shuttle))))]
mod far_end;
mod fetch;
mod frame;
mod groups;
pub mod header;
mod lists;
mod order;
pub mod pages;
mod put;
mod read_ahead;
mod runs;
mod shadow;
mod stats;
mod storage;
mod swap_in;
mod swap_off;
mod swap_out;
mod sync;
pub mod table;
#[cfg(all(test, not(any(loom, shuttle))))]
mod testing;
mod transition;
mod write_back;
mod write_out;
pub mod zpool;

pub use alloc::AllocError;
pub use areas::{AREAS_MAX, AreaFigures, Discard, NewArea, PRIORITY_DEFAULT, SwapOnError};
pub use cluster::SLOTS_PER_CLUSTER;
pub use codec::{Codec, Scratch};
pub use count::DupError;
pub use demote::Demotion;
pub use engine::{Config, ConfigError, Engine};
pub use entry::{AreaId, Entry, SLOTS_MAX};
pub use frame::{FrameMut, FrameRef};
pub use groups::{
    GROUPS_MAX, GroupCharges, GroupError, GroupEvents, GroupFigures, GroupId, GroupLimits,
    GroupName, GroupNameError,
};
pub use pages::{HeapPages, PAGE_BYTES, Page, PageSource};
pub use put::Puts;
pub use read_ahead::READ_AROUND_MAX;
pub use shadow::Shadow;
pub use stats::Stats;
pub use storage::{RamStorage, ReadRun, Storage, StorageError};
pub use swap_in::{Lookup, SwapIn, SwapInError};
pub use swap_off::{BringBack, SwapOffError};
pub use swap_out::{Mapping, Placed};
pub use write_back::WriteBack;
pub use write_out::{WriteOutError, Written};
pub use zpool::PoolFill;
