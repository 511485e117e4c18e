//! Decisions that need numbers only: what comes along with a page, which pages left too early, whom to believe.

pub mod hello;
pub mod read_around;
pub mod stream;
pub mod working_set;
