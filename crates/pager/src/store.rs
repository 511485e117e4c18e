//! What several runs can share, and what its user says of it: areas, groups, memory, settings.

pub mod areas;
pub mod config;
pub mod groups;
pub mod memory;
