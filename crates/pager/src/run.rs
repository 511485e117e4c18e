//! The parts of one run, each with what it owns.

pub mod stats;
pub mod stored;
pub mod samples;
pub mod buffers;
pub mod spaces;
pub mod references;
pub mod remains;
pub mod filters;
pub mod leaving;
pub mod forks;
pub mod bounds;
pub mod pressure;
pub mod packing;
pub mod part;
pub mod pool_share;
pub mod stall;
pub mod limit;
pub mod parking;
pub mod shares;
pub mod arenas;
pub mod watch;
pub mod write_queue;
pub mod area_queue;
pub mod shrinker;
