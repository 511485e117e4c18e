//! Memory that is passed to a system call and may lie in an arena: it is kept in RAM meanwhile.
//!
//! For whoever passes on addresses and does not know whose they are: interfaces to other languages, wrappers of calls.
//! What lies in no arena is left alone.

use std::ops::Range;

use crate::error::ArenaError;
use crate::pin::Pin;
use crate::registry::{bounds, cores_with};
use crate::state::PAGE_BYTES;

/// Keeps addresses in RAM, as far as they lie in arenas of this process, until this is dropped.
#[derive(Debug)]
pub struct Passed {
    #[expect(dead_code, reason = "they are there to be dropped")]
    pins: Vec<Pin<'static>>,
}

impl Passed {
    /// Pins them.
    ///
    /// # Errors
    /// `TooMuchPinned`, `Full`, `Lost`, and `Forked` where an arena of the parent had them. Then nothing is pinned.
    pub fn new(addresses: Range<usize>) -> Result<Passed, ArenaError> {
        let mut pins = Vec::new();
        for core in cores_with(&addresses)? {
            let arena = bounds(&core);
            let start = addresses.start.max(arena.start) - arena.start;
            let end = addresses.end.min(arena.end).saturating_sub(arena.start);
            if start < end {
                let pages = start / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
                pins.push(Pin::new(&core, pages)?);
            }
        }
        Ok(Passed { pins })
    }

    /// Are there any of these addresses in arenas, of this process or of its parent?
    #[must_use]
    pub fn concerns(addresses: &Range<usize>) -> bool {
        cores_with(addresses).map_or(true, |cores| !cores.is_empty())
    }
}
