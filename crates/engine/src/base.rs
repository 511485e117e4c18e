//! What everything else stands on: pages of memory, storage of areas, and what threads meet at.

pub(crate) mod lock_order;
pub mod pages;
pub(crate) mod buffer;
pub(crate) mod storage;
pub(crate) mod sync;
