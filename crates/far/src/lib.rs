//! A swap area whose storage is on other machines: a Valkey or Redis store, or an export of a block store.
//!
//! [`FarSpec`] is how a store is named, [`probe`] says whether it is fit, and [`FarStorage`] is the storage that the
//! engine is given. [`gc`] finds and removes what crashed machines have left. All of it blocks; there is one thread for
//! an area, and one more if it has a backup. Connections are made when they are needed.
//!
//! The same for an export of a block store, as NBD servers have them: [`NbdSpec`], [`probe_export`] and [`NbdStorage`].
//!
//! What leaves the machine is encrypted and authenticated, and bound to its slot and version. What the store does not
//! give back as it was written is an error, never other bytes and never zeros.
//!
//! The library `redis` has the protocol, its parser, TLS and the login. Everything above a connection is ours and works
//! with a [`Network`], so that simulated servers can take the place of real ones. The library's client for a cluster is
//! not used: when one node has gone, it asks all of them again before it serves anybody; it shows nobody which node is
//! waited for; and it sends no MULTI, without which a key could be left without a lease. Its client for Sentinel has no
//! time-outs. So the questions `CLUSTER SLOTS` and `SENTINEL get-master-addr-by-name` are asked here.

// The floors, lowest first. A module imports only what stands above it here (`cargo xtask tidy` checks that).

// What a store is named by.
mod spec;
// Encryption of payloads.
mod cipher;
// Versions of slots.
mod slots;
// One connection, and what makes connections.
mod wire;
// What is told as it happens.
mod event;
// How long requests take.
mod latency;
// One server and its lanes.
mod node;
// Which node has which key.
mod topology;
// Requests to many nodes at once, until they are served.
mod exchange;
// What a server says of itself.
mod info;
// Names of keys.
mod keys;
// Connecting to a store of whatever kind.
mod store;
// Whether a store is fit.
mod probe;
// Copies that may lack pages.
mod suspects;
// What the threads of an area share.
mod area;
// Writing to slots and forgetting them.
mod write;
// Writing missing copies anew.
mod mend;
// A second storage, written behind.
mod backup;
// Reading slots.
mod read;
// Leases of keys.
mod lease;
// What an area has done.
mod figures;
// The storage.
mod storage;
// What crashed machines have left.
mod gc;
// Exports of block stores.
mod nbd;

pub use event::{FarEvent, Listener};
pub use figures::{FarFigures, FarWatch, NodeFigures, NodeState};
pub use gc::{AliveRun, FoundArea, GcReport, gc};
pub use keys::{AreaId, RunId};
pub use nbd::export::{Content, NbdProbe, probe as probe_export};
pub use nbd::protocol::Export;
pub use nbd::spec::{NbdServer, NbdSpec, NbdSpecError};
pub use nbd::storage::{NbdOptions, NbdStorage};
pub use probe::{Demand, Probe, ProbedNode, probe};
pub use spec::{Address, FarSpec, PASSWORD_VARIABLE, Password, SpecError};
pub use storage::{FarOptions, FarStorage};
pub use store::{FarError, Patience};
pub use wire::{Network, Role, Wire, WireError};
