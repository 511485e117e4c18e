//! The compressed pool: variable-length payloads packed into spans of pages.
//!
//! A payload of up to [`PACKED_BYTES_MAX`] bytes becomes an object of a size class; a longer one, up to a whole page,
//! gets a page of its own. A [`Handle`] names a row of a table, the row says where the object lies, and so
//! compaction can move objects without telling who stored them.
//!
//! Locks: one mutex per size class guards which objects of its spans are taken and the lists of its spans. Reading an
//! object takes no lock: the reader counts itself in the row's word, and compaction passes over objects that have
//! readers. Inside a class lock only the locks of the table of rows and the span table are taken, never a page source.

mod checksum;
mod chunks;
mod class;
mod compact;
mod rows;
mod row;
mod fullness;
mod handle;
mod pool;
mod read;
mod sizes;
mod span;
mod store;
#[cfg(test)]
mod stress;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod validity;
mod whole;

#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use tests::damage;

pub use handle::Handle;
pub use pool::{Pool, PoolFill, PoolFull, PoolStats};
pub use read::ReadError;
pub use sizes::PACKED_BYTES_MAX;
