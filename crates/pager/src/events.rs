//! What the kernel tells of a space's memory: faults, layout events and forks. And which memory is watched.

pub mod listening;
pub mod layout_events;
pub mod regions;
pub mod fork;
pub mod reader;
