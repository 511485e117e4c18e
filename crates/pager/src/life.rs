//! Beginnings and ends, of agents, spaces and runs, and the threads that watch over all of them.

pub mod bring_back;
pub mod governor;
pub mod last_thread;
pub mod lifecycle;
pub mod pager;
pub mod server;
pub mod shares;
pub mod start_error;
pub mod status;
pub mod store;
