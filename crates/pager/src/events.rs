//! What the kernel tells of a space's memory: faults, layout events, forks; and what of it is watched.

pub mod fork;
pub mod layout_events;
pub mod reader;
pub mod regions;
