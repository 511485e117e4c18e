//! Decisions that need nothing but numbers: what comes along with a page, what went too early, whom to believe, how
//! much memory to leave to others.

pub mod follow;
pub mod hello;
pub mod pressure;
pub mod read_around;
pub mod stream;
pub mod working_set;
