//! Words and names: what is known of a slot, in one atomic word each, and how a slot is named.

pub mod backing;
pub(crate) mod backing_word;
pub(crate) mod entry;
pub(crate) mod geometry;
pub(crate) mod order;
pub(crate) mod shadow;
pub mod slot;
pub(crate) mod tier;
