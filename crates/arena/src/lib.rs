//! An arena: memory of a program that is larger than the RAM it may take, swapped by the program itself.
//!
//! ```
//! use vswap_arena::Arena;
//!
//! # fn main() -> Result<(), vswap_arena::ArenaError> {
//! let arena = Arena::builder().ram("64M").build()?;
//! let mut numbers = allocator_api2::vec::Vec::new_in(arena.allocator());
//! numbers.extend(0..1_000_000_u64);
//! assert_eq!(numbers[999_999], 999_999);
//! # Ok(())
//! # }
//! ```
//!
//! The engine is the one of `vswap run`. A page that is touched while it is out raises SIGBUS (userfaultfd), and the
//! handler brings it back in the thread that touched it. A background thread, the evictor, keeps room: it
//! write-protects a window of pages, compresses them from where they lie, and drops those that nobody wrote to
//! meanwhile.
//!
//! **Why a fault cannot wait for its own thread.** A fault can come anywhere: inside malloc, and while the program
//! holds any of its locks.
//!
//! - The handler takes no lock but a free one among the desks (`desk.rs`), by trying, and shares of two
//!   reader-writer locks that are taken for writing only where no memory of the arena is touched (`registry.rs`, the
//!   gate in `state.rs`). It calls nothing of the engine but what takes no lock: lookups and swapping in from the pool.
//!   It allocates nothing. What it has to put afterwards it leaves to others (`owed.rs`).
//! - Locks of the engine are taken by the arena's own threads and inside calls of this crate, with signals blocked
//!   (`Masked`), and with no lock held is memory of the arena touched but for one copy out of pages that are claimed,
//!   so present. So nobody faults who holds such a lock, nor does a handler of the program that interrupts its holder.
//! - A claim of a page (`word.rs`) is a lock too. Its holder has signals blocked, and touches no page of the arena.
//! - A handler that finds no room waits for the evictor, but not for ever: if that makes no progress, because it
//!   allocates and the faulting thread is inside malloc, the handler takes a little more than the limit (`room.rs`).
//!   What lies in a swap area is read by a thread that allocates, and this waits: see the limits in `docs/library.md`.

// The floors, lowest first. A module imports only what stands above it here (`cargo xtask tidy` checks that).

// Sizes, codecs, errors, figures.
mod size;
mod packing;
mod error;
mod stats;
// Waiting without a lock; the state of each page; which pages owe something.
mod event;
mod word;
mod owed;
// How much memory there is to give; what handlers work with; which addresses are free.
mod room;
mod allowance;
mod desk;
mod space;
mod streams;
mod bridges;
// The engine's memory and its areas; whose pages are, and what he may have.
mod memory;
mod areas;
mod groups;
mod limits;
// What all parts share.
mod state;
// Serving faults, moving pages out, giving memory up, and the threads for it.
mod fault;
mod reader;
mod protect;
mod density;
mod evict;
mod give;
// Finding calls that are given memory which is out.
mod callers;
mod observer;
mod threads;
// Which arena an address is of; objects smaller than pages; what the handles have in common.
mod registry;
mod small;
mod blocks;
mod owner;
// What the program sees.
mod pin;
mod region;
mod allocator;
mod heap;
mod passed;
mod pinning;
mod arena;
#[cfg(test)]
mod allowance_tests;
#[cfg(test)]
mod protect_tests;

pub use allocator::ArenaAllocator;
pub use arena::{Arena, Builder};
pub use error::ArenaError;
pub use heap::Heap;
pub use limits::Limits;
pub use packing::{Packing, PackingNameError};
pub use passed::Passed;
pub use pin::{Pin, PinMut};
pub use pinning::Pinning;
pub use region::{Advice, Region};
pub use size::{Size, SizeError};
pub use stats::{AreaStats, GroupStats, Stats};
pub use vswap_areas::{OpenError, SpecError, TierNameError};
pub use vswap_engine::{Codec, CodecNameError, ZstdLevel};

/// The page of the book, whose examples are run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryPage;
