//! Clusters: 512 slots, their tables, and the lock that every change to them takes.
//!
//! A cluster's record and the addresses of its tables are type-stable: they are made when the cluster is first used and
//! freed with the engine. The next area with the same number uses those of the area before it. An empty cluster gives
//! the *memory* of its tables back through `PageSource::discard`, which leaves the addresses readable. A late reader
//! without a lock then finds zeros, and zero means free. An epoch scheme could give back the addresses too, but would
//! cost two more atomic operations in every lookup. The addresses cost nothing.
//!
//! Lock order: cluster, then the area's lists. A thread that holds the lists' lock, to take a cluster off a list, may
//! only try the cluster's lock.

mod count;
mod directory;
mod extent;
mod guard;
mod lists;
mod place;
mod record;
mod slot_groups;
mod tables;
mod transition;
mod validity;

pub use count::DupError;
pub(crate) use directory::Directory;
pub(crate) use extent::Extent;
pub(crate) use guard::ClusterGuard;
pub(crate) use lists::Lists;
pub(crate) use place::Place;
pub(crate) use record::Cluster;
pub(crate) use slot_groups::GroupTable;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use tables::Table;
pub(crate) use tables::{ExtendTable, TABLE_PAGES};
pub(crate) use transition::{Exchanged, Left};
