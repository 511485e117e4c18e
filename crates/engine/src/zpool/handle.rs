//! Names of stored payloads.

use std::num::NonZeroU64;

/// Name of a payload in a [`Pool`](super::Pool). Compaction moves the object but keeps its name.
///
/// Below 2^[`Handle::BITS`], so a table word has room beside it for a tag and for what is known of the page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(NonZeroU64);

// A handle is the row's number plus one.
const _: () = assert!((u32::MAX as u64) + 1 < 1 << Handle::BITS);

impl Handle {
    /// Width of [`Handle::raw`].
    pub const BITS: u32 = 46;

    /// The number that stands for this handle in a table word.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0.get()
    }

    /// The handle that `raw` stands for. `None` if it cannot stand for one.
    ///
    /// Whether the pool holds such a payload is checked where the handle is used.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Option<Handle> {
        match NonZeroU64::new(raw) {
            Some(raw) if raw.get() < 1 << Handle::BITS => Some(Handle(raw)),
            _ => None,
        }
    }

    pub(super) const fn of_index(index: u32) -> Handle {
        Handle(NonZeroU64::MIN.saturating_add(index as u64))
    }

    /// Number of the row. `None` for a number beyond any table.
    pub(super) fn index(self) -> Option<u32> {
        u32::try_from(self.0.get() - 1).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_handles_survive_the_round_trip() {
        for index in [0, 1, u32::MAX] {
            let handle = Handle::of_index(index);
            assert!(handle.raw() < 1 << Handle::BITS);
            assert_eq!(Handle::from_raw(handle.raw()), Some(handle));
            assert_eq!(handle.index(), Some(index));
        }
        assert_eq!(Handle::from_raw(0), None);
        assert_eq!(Handle::from_raw(1 << Handle::BITS), None);
        assert_eq!(
            Handle::from_raw((1 << Handle::BITS) - 1).and_then(Handle::index),
            None
        );
    }
}
