//! Which list of its area a cluster is on, if it is on one.

/// Which list of its area a cluster is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Place {
    /// Empty, without table memory.
    Free = 0,
    /// Some CPU allocates runs of the cluster's order from it; on no list.
    Current,
    /// Some CPU takes single slots from it, although it was made for runs; on no list.
    Stolen,
    /// Of order 0: has many free slots. Of a higher one: has a free run.
    Nonfull,
    /// Has free slots, but few of them or no run.
    Frag,
    /// Has none; on no list.
    Full,
    /// Empty, and its storage is still to be told so.
    Discard,
    /// Its storage is just being told; on no list.
    Discarding,
}

impl Place {
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
