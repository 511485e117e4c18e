//! The parts of one run, each with what it owns.

pub mod buffers;
pub mod core;
pub mod pool_share;
pub mod stats;
pub mod usage;
pub mod watch;
