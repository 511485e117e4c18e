//! An area that is to be used, and why it cannot be.

use crate::base::storage::Storage;
use crate::words::geometry::SLOTS_MAX;

/// How many physical areas an engine can have. The kernel has room for 23 to 29; a number in an entry is 8 bits wide.
/// Few under the model checkers, which make many engines.
pub const AREAS_MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// The priority of an area that was given none. All of these are equal, and below every one that was given.
pub const PRIORITY_DEFAULT: i16 = -1;

/// When the storage of an area is told what it need not keep.
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

/// An area to be used.
#[derive(Debug)]
pub struct NewArea {
    /// Slots that its storage has room for, bad ones included.
    pub slots: u64,
    /// Slots that are never to be used: the header's, and places where the device is damaged. In any order.
    pub bad: Vec<u64>,
    /// 0 to 32767, or [`PRIORITY_DEFAULT`].
    pub priority: i16,
    /// When its storage is told what it need not keep.
    pub discard: Discard,
    /// Its device takes long to go to another place, as a disk that turns does: all CPUs allocate from the same
    /// clusters, so that what they write lies together.
    pub rotating: bool,
    /// Its bytes.
    pub storage: Box<dyn Storage>,
}

/// Why an area cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SwapOnError {
    /// There are as many as there can be.
    #[error("{AREAS_MAX} areas are in use, the most there can be: use fewer, larger ones")]
    TooMany,
    /// No slot in it can be used.
    #[error("the area has no usable slot ({slots} slots, {bad} of them bad): make it larger")]
    Empty {
        /// All slots.
        slots: u64,
        /// Of them, bad.
        bad: u64,
    },
    /// More slots than an entry can name.
    #[error("the area has {slots} slots, at most {SLOTS_MAX} can be named: make it smaller")]
    TooLarge {
        /// All slots.
        slots: u64,
    },
    /// A bad slot that is none of the area's.
    #[error("slot {slot} is said to be bad, and the area ends before it: check its header")]
    BadBeyondEnd {
        /// The slot.
        slot: u64,
    },
    /// A priority that is none.
    #[error("a priority of {priority} was given, expected 0 to 32767: choose a number in between")]
    Priority {
        /// What was given.
        priority: i16,
    },
    /// No memory for its directory.
    #[error("no memory for the area's tables: raise the limit")]
    NoMemory,
}

/// Whether an area can be used. Puts its bad slots in order.
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
