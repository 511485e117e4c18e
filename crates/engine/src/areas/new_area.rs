//! A new area, and why it may be refused.

use crate::base::storage::Storage;
use crate::words::geometry::SLOTS_MAX;
use crate::words::tier::TierId;

/// How many physical areas an engine can have. The kernel has room for 23 to 29. An entry has 8 bits for the number.
/// Few under the model checkers, which make many engines.
pub const AREAS_MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// The priority of an area that was given none. All such areas are equal, and below every area with a given priority.
pub const PRIORITY_DEFAULT: i16 = -1;

/// When to tell an area's storage which slots it need not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discard {
    /// Never.
    #[default]
    None,
    /// The whole area, when it is swapped on.
    Once,
    /// Clusters, as they become empty.
    Pages,
}

/// An area to start using.
#[derive(Debug)]
pub struct NewArea {
    /// Slots that its storage has room for, including bad ones.
    pub slots: u64,
    /// Slots that must never be used: the header's, and places where the device is damaged. In any order.
    pub bad: Vec<u64>,
    /// 0 to 32767, or [`PRIORITY_DEFAULT`].
    pub priority: i16,
    /// The tier that it belongs to.
    pub tier: TierId,
    /// When to tell its storage which slots it need not keep.
    pub discard: Discard,
    /// Whether its device is slow to seek, as a rotating disk is. All CPUs then allocate from the same clusters, so
    /// that what they write lies together.
    pub rotating: bool,
    /// The storage of its bytes.
    pub storage: Box<dyn Storage>,
}

/// Why an area cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SwapOnError {
    /// There are already as many as there can be.
    #[error("{AREAS_MAX} areas are in use, the most there can be: use fewer, larger ones")]
    TooMany,
    /// No slot in it can be used.
    #[error("the area has no usable slot ({slots} slots, {bad} of them bad): make it larger")]
    Empty {
        /// All slots.
        slots: u64,
        /// How many of them are bad.
        bad: u64,
    },
    /// More slots than an entry can name.
    #[error("the area has {slots} slots, at most {SLOTS_MAX} can be named: make it smaller")]
    TooLarge {
        /// All slots.
        slots: u64,
    },
    /// A bad slot behind the area's end.
    #[error("slot {slot} is said to be bad, and the area ends before it: check its header")]
    BadBeyondEnd {
        /// The slot.
        slot: u64,
    },
    /// Not a valid priority.
    #[error("a priority of {priority} was given, expected 0 to 32767: choose a number in between")]
    Priority {
        /// What was given.
        priority: i16,
    },
    /// No memory for its directory.
    #[error("no memory for the area's tables: raise the limit")]
    NoMemory,
}

/// Checks that an area can be used. Sorts its bad slots.
pub(super) fn check(new: &mut NewArea) -> Result<(), SwapOnError> {
    let (slots, priority) = (new.slots, new.priority);
    new.bad.sort_unstable();
    new.bad.dedup();
    let bad = new.bad.len() as u64;
    if slots > SLOTS_MAX {
        return Err(SwapOnError::TooLarge { slots });
    }
    if let Some(&slot) = new.bad.last().filter(|&&slot| slot >= slots) {
        return Err(SwapOnError::BadBeyondEnd { slot });
    }
    if bad >= slots {
        return Err(SwapOnError::Empty { slots, bad });
    }
    if priority < PRIORITY_DEFAULT {
        return Err(SwapOnError::Priority { priority });
    }
    Ok(())
}
