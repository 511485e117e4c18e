//! The compressed pool: payloads of different lengths, packed into spans of pages.
//!
//! A payload of up to [`PACKED_BYTES_MAX`] bytes becomes an object of a size class. A longer payload, up to a whole
//! page, gets a page of its own. A [`Handle`] names a row of a table, and the row says where the object is. So
//! compaction can move objects without telling those who stored them.
//!
//! Locks: each size class has one mutex. It guards which objects of the class's spans are taken, and the lists of the
//! spans. Reading an object takes no lock: the reader counts itself in the row's word, and compaction skips objects
//! that have readers. Under a class lock only the locks of the row table and the span table are taken, and the page
//! source is never called.

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
pub(crate) use sizes::{SPANS_BYTES, takes_less};
