//! A page on its way from one place to another.

use std::ops::Deref;

use crate::base::pages::{PAGE_BYTES, Page};
use crate::base::storage::StorageError;
use crate::groups::GroupIndex;
use crate::words::backing::Stored;
use crate::words::entry::Entry;
use crate::words::tier::TierId;

/// Where [`Engine::write_out`](crate::Engine::write_out) put a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All zeros: kept as a flag.
    Zero,
    /// Compressed to this many bytes.
    Compressed {
        /// Length of the payload.
        bytes: usize,
    },
    /// Did not compress, so the pool keeps it raw.
    Raw,
    /// In a physical area.
    Physical,
    /// The last reference was put meanwhile, and everything is freed.
    Freed,
}

/// A page on its way to another place: out of its frame, the pool, or an area.
pub(crate) struct Leaving<P> {
    pub(crate) entry: Entry,
    pub(crate) group: GroupIndex,
    pub(crate) page: P,
    /// The tier of the slot that the page leaves, if it leaves one. The slot is charged until the page has left it.
    pub(crate) from: Option<TierId>,
    /// How many of the page's bytes are a payload as the pool had it. All of them are the page itself.
    payload_bytes: usize,
    pub(crate) to: Destination,
}

impl<P> Leaving<P> {
    pub(crate) fn new(entry: Entry, group: GroupIndex, page: P) -> Leaving<P> {
        Leaving {
            entry,
            group,
            page,
            from: None,
            payload_bytes: PAGE_BYTES,
            to: Destination::NOWHERE,
        }
    }

    /// The same with a payload in place of the page: its bytes are the first ones of `page`.
    pub(crate) fn with_payload(self, payload_bytes: usize) -> Leaving<P> {
        Leaving {
            payload_bytes,
            ..self
        }
    }

    /// The same on its way from a slot of this tier.
    pub(crate) fn out_of_tier(self, tier: TierId) -> Leaving<P> {
        Leaving {
            from: Some(tier),
            ..self
        }
    }

    pub(crate) fn is_packed(&self) -> bool {
        self.payload_bytes < PAGE_BYTES
    }

    /// Whether the page has nowhere to go, and a limit of its group may be the reason.
    pub(crate) fn is_limited(&self) -> bool {
        matches!(
            self.to,
            Destination::None {
                is_limited: true,
                ..
            }
        )
    }

    /// Whether an area failed to take the page.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.to, Destination::Refused(_))
    }
}

impl<P: Deref<Target = Page>> Leaving<P> {
    /// The page, or what the pool had in its place.
    pub(crate) fn payload(&self) -> &[u8] {
        self.page.0.get(..self.payload_bytes).unwrap_or_default()
    }
}

/// Where a page goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Destination {
    /// Nowhere: the page is all zeros.
    Zero,
    Stored(Stored, Written),
    /// Undecided: the pool did not take the page.
    None {
        /// The page did not compress, and the pool was not asked.
        is_raw: bool,
        /// There was room, but the limits of the page's group did not allow it.
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

    /// The same destination. If there is none, a group's limit may be the reason if `limited`.
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

/// Where pages that go to areas come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coming {
    /// Frames or the pool. Their groups are charged for the slots.
    FromMemory,
    /// Another area. Their groups are already charged.
    FromArea,
}
