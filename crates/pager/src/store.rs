//! What several runs can share, and what the user says about it: areas, groups, memory, settings.

pub mod memory;
pub mod config;
pub mod tiers;
pub mod groups;
pub mod more_room;
pub mod areas;
