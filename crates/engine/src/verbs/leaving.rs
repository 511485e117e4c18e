//! A page on its way from one place to another.

use crate::base::storage::StorageError;
use crate::groups::GroupIndex;
use crate::words::backing::Stored;
use crate::words::entry::Entry;

/// What [`Engine::write_out`](crate::Engine::write_out) made of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All zeros: kept as a flag.
    Zero,
    /// Compressed to this many bytes.
    Compressed {
        /// Length of the payload.
        bytes: usize,
    },
    /// Did not compress; kept in the pool as it is.
    Raw,
    /// In a physical area.
    Physical,
    /// The last reference went away meanwhile: everything is freed.
    Freed,
}

/// A page on its way to another place: out of its frame, out of an area that is swapped off, or out of the pool.
pub(crate) struct Leaving<P> {
    pub(crate) entry: Entry,
    pub(crate) group: GroupIndex,
    pub(crate) page: P,
    pub(crate) to: Destination,
}

impl<P> Leaving<P> {
    pub(crate) fn new(entry: Entry, group: GroupIndex, page: P) -> Leaving<P> {
        Leaving {
            entry,
            group,
            page,
            to: Destination::NOWHERE,
        }
    }

    /// Did an area fail to take it?
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.to, Destination::Refused(_))
    }
}

/// Where a page goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Destination {
    /// Nowhere: it is all zeros.
    Zero,
    Stored(Stored, Written),
    /// None yet: the pool did not take it.
    None {
        /// It did not compress, and the pool was not asked.
        is_raw: bool,
        /// Something had room and its group's limits did not.
        is_limited: bool,
    },
    /// An area failed to take it.
    Refused(StorageError),
}

impl Destination {
    pub(super) const NOWHERE: Destination = Destination::None {
        is_raw: false,
        is_limited: false,
    };

    /// The same; if it is none, `limited` may be why.
    pub(super) fn or_limited(self, limited: bool) -> Destination {
        match self {
            Destination::None { is_raw, is_limited } => Destination::None {
                is_raw,
                is_limited: is_limited || limited,
            },
            other => other,
        }
    }
}

/// What pages that go to areas come out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coming {
    /// Frames or the pool: their groups are charged for the slots.
    FromMemory,
    /// Another area: their groups are charged already.
    FromArea,
}
