//! Frames: memory for pages on their way between a program's memory and the places where they are kept.

mod clean;
mod frame;

pub(crate) use clean::CleanFrames;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use clean::FRAMES_PART;
pub(crate) use frame::{FRAMES_MAX, Frames};
pub use frame::{FrameMut, FrameRef};
