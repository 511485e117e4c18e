//! What an engine does with pages. Each file has one operation, or what several operations share.

pub(crate) mod ages;
pub(crate) mod charge;
pub(crate) mod demote;
#[cfg(all(test, not(any(loom, shuttle))))]
mod discard_tests;
pub(crate) mod dup;
pub(crate) mod exchange;
#[cfg(all(test, not(any(loom, shuttle))))]
mod far_end_tests;
pub(crate) mod fetch;
pub(crate) mod homes;
pub(crate) mod leaving;
pub(crate) mod lookup;
pub(crate) mod pins;
#[cfg(all(test, not(any(loom, shuttle))))]
mod place_all_tests;
pub(crate) mod put;
pub(crate) mod read_ahead;
pub(crate) mod recount;
pub(crate) mod repack;
pub(crate) mod runs;
// The stand-in for zstd packs no more than that for lz4.
#[cfg(all(test, not(any(loom, shuttle, miri, tsan))))]
mod second_codec_tests;
pub(crate) mod swap_in;
pub(crate) mod swap_off;
pub(crate) mod swap_out;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tier_tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod transition_tests;
mod validity;
pub(crate) mod write_back;
pub(crate) mod write_out;
