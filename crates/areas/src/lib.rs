//! Swap areas as users name them: the text of `--swap` is read, what it names is checked and opened, and comes out as
//! something that the engine can use.
//!
//! For whoever has an engine: the pager's runs, and arenas. The engine itself knows areas as storage by number. Areas
//! on other machines want the feature `far`.

// The floors, lowest first: each imports only from those above it in this list.

// Sizes and names.
pub mod units;
mod tier_name;
// An area as a user names it.
mod spec;
// An area that was opened.
mod on_disk;
mod packed;
mod ask_far;
mod medium;
// Opening it.
pub mod area_file;
mod open;
#[cfg(feature = "far")]
mod far;
#[cfg(feature = "far")]
mod blocks;

pub use ask_far::AskFar;
#[cfg(feature = "far")]
pub use far::free_bytes;
pub use medium::{Medium, SwapOn};
pub use on_disk::OnDisk;
pub use open::{OpenError, Opening, open};
pub use packed::{PackedDisk, SLOTS_PER_BLOCK};
pub use spec::{Place, SpecError, SwapSpec};
pub use tier_name::{TierName, TierNameError};
