//! Which list of its area a cluster is on, if any.

/// Which list of its area a cluster is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Place {
    /// Empty, without table memory.
    Free = 0,
    /// Some CPU allocates runs of the cluster's order from it. On no list.
    Current,
    /// Some CPU takes single slots from it, although it was made for runs. On no list.
    Stolen,
    /// In order 0: has many free slots. In a higher order: has a free run.
    Nonfull,
    /// Has free slots, but only few of them, or no free run.
    Frag,
    /// Has no free slot. On no list.
    Full,
    /// Empty, without table memory, and still to be discarded in its storage.
    Discard,
    /// Empty, without table memory, and being discarded in its storage right now. On no list.
    Discarding,
}

impl Place {
    /// Whether a cluster at this place is empty and has no table memory.
    pub(crate) fn is_empty(self) -> bool {
        matches!(self, Place::Free | Place::Discard | Place::Discarding)
    }

    pub(super) const ALL: [Place; 8] = [
        Place::Free,
        Place::Current,
        Place::Stolen,
        Place::Nonfull,
        Place::Frag,
        Place::Full,
        Place::Discard,
        Place::Discarding,
    ];
}
