//! Beginnings and ends, of agents, spaces and runs, and the threads that watch over all of them.

pub mod callers;
pub mod connections;
pub mod run;
pub mod start_error;
pub mod pressure_watch;
pub mod process_status;
pub mod status;
pub mod memory_map;
pub mod last_thread;
pub mod lifecycle;
pub mod residents;
pub mod governor;
pub mod share_watch;
pub mod bring_back;
pub mod settings;
pub mod leave;
pub mod sampling;
pub mod park;
pub mod store;
pub mod introduction;
pub mod server;
pub mod pager;
