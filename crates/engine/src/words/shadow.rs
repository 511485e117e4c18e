//! What a slot word keeps of the age of a page that left memory.

/// The age of an evicted page, as the pager wants to remember it. The engine does not interpret it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Shadow(u64);

impl Shadow {
    /// Width of a shadow's value.
    pub const BITS: u32 = 58;
    /// The largest value that a shadow holds.
    pub const MAX: u64 = (1 << Self::BITS) - 1;
    /// Nothing is known of the page's age.
    pub const ABSENT: Shadow = Shadow(0);

    /// A shadow of `value`, cut to [`Shadow::BITS`] bits. Compare ages modulo that width.
    #[must_use]
    pub const fn truncated(value: u64) -> Shadow {
        Shadow(value & Self::MAX)
    }

    /// The value that the shadow was made from, cut to [`Shadow::BITS`] bits.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}
