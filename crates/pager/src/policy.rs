//! Decisions that need numbers only: what comes along with a page, which pages left too early, whom to believe, how
//! much memory to leave to others.

pub mod sampling;
pub mod density;
pub mod follow;
pub mod hello;
pub mod pressure;
pub mod read_around;
pub mod repack;
pub mod stream;
pub mod working_set;
