//! The subcommands, one module each.

pub mod bench;
pub mod completions;
pub mod daemon;
pub mod doctor;
pub mod far;
pub mod man;
pub mod mkswap;
pub mod run;
pub mod advise;
pub mod attach;
pub mod detach;
pub mod status;
pub mod swap;
pub mod top;
pub mod set;
pub mod park;
