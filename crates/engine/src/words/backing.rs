//! The backing word: where the bytes of a slot are, for a slot that page tables name and that is neither cached nor
//! zero. The steps that change it, and who takes them: `backing_word.rs` and `cluster/transition.rs`.
//!
//! ```text
//!          63 62    59 58        51 50 49 48                           3 2     0
//!         +--+--------+---------------------------------------------------+-------+
//! none    |0 |   0    |                         0                         | 0 0 0 |
//!         +--+--------+------------+--+--+--------------------------------+-------+
//! compr.  |A | pins   | generation |D |R |     pool handle (46 bits)      | 0 0 1 |
//!         +--+--------+------------+--+--+--------------------------------+-------+
//! phys.   |A | pins   |        entry of a physical slot (56 bits)         | 0 1 0 |
//!         +--+--------+---------------------------------------------------+-------+
//! ```
//!
//! *generation* says coarsely, modulo 256, when the page was stored or last read. Pages left alone for long are written
//! back to an area (`verbs/write_back.rs`). *D* says that writing back found the bytes damaged. Damaged bytes stay, so
//! that whoever touches the page gets the error. *R* says that the page was packed again, or that this gains nothing
//! (`verbs/repack.rs`). These fields use bits that a handle leaves free, so they cost no memory.
//!
//! "Zero" and "cached" are said by the slot word and stored nowhere else. A cached page that was read ahead also has a
//! backing. *pins* counts the readers that are using the stored bytes right now. Readers take no lock, so a put that
//! reaches count 0 finds them here. It then sets *A* (abandoned), and the last reader frees the bytes. Pinning and
//! freeing are both a compare-exchange on this word, so they cannot both succeed.

use super::entry::Entry;
use crate::zpool::Handle;

const TAG_BITS: u32 = 3;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const TAG_NONE: u64 = 0;
const TAG_COMPRESSED: u64 = 1;
const TAG_PHYSICAL: u64 = 2;

/// Width of the name: an entry, or a pool handle and what is known of its page. The tag says which.
const NAME_BITS: u32 = 56;
const NAME_MASK: u64 = ((1 << NAME_BITS) - 1) << TAG_BITS;
const HANDLE_MASK: u64 = ((1 << Handle::BITS) - 1) << TAG_BITS;
const DENSE_SHIFT: u32 = TAG_BITS + Handle::BITS;
const DENSE_FLAG: u64 = 1 << DENSE_SHIFT;
const DAMAGED_SHIFT: u32 = DENSE_SHIFT + 1;
const DAMAGED_FLAG: u64 = 1 << DAMAGED_SHIFT;
const GENERATION_SHIFT: u32 = DAMAGED_SHIFT + 1;
const GENERATION_MASK: u64 = (u8::MAX as u64) << GENERATION_SHIFT;
const PINS_SHIFT: u32 = TAG_BITS + NAME_BITS;
const PINS_BITS: u32 = 4;
const PINS_MASK: u64 = ((1 << PINS_BITS) - 1) << PINS_SHIFT;
const ABANDONED_SHIFT: u32 = PINS_SHIFT + PINS_BITS;
const ABANDONED_FLAG: u64 = 1 << ABANDONED_SHIFT;

/// What one reader adds to the word.
pub const ONE_PIN: u64 = 1 << PINS_SHIFT;
/// How many threads can read one slot's bytes at the same moment. A further reader waits. There are as many readers as
/// processes that share the page and fault on it in the same microsecond.
pub const PINS_MAX: u64 = (1 << PINS_BITS) - 1;

const _: () = assert!(ABANDONED_SHIFT + 1 == u64::BITS);
const _: () = assert!(Entry::BITS == NAME_BITS);
const _: () = assert!(GENERATION_SHIFT + u8::BITS == PINS_SHIFT);
const _: () = assert!(TAG_PHYSICAL <= TAG_MASK && TAG_PHYSICAL != TAG_COMPRESSED);
const _: () = assert!(TAG_NONE == 0, "an untouched virtual table reads as NONE");

/// Where stored bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// In the compressed pool.
    Pool(Handle),
    /// In a slot of a physical area.
    Physical(Entry),
}

/// One slot's backing word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backing(u64);

impl Backing {
    /// Nothing is stored behind the slot: it is free, cached or zero.
    pub const NONE: Backing = Backing(TAG_NONE);

    /// A word as loaded. Any value is accepted; [`Backing::stored`] judges it.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Backing {
        Backing(raw)
    }

    /// The word as stored.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The backing word for bytes at `stored`. For the pool, its generation is 0.
    #[must_use]
    pub fn of(stored: Stored) -> Backing {
        let (name, tag) = match stored {
            Stored::Pool(handle) => (handle.raw(), TAG_COMPRESSED),
            Stored::Physical(entry) => (entry.raw(), TAG_PHYSICAL),
        };
        // The handle and the entry promise this.
        debug_assert!(name >> NAME_BITS == 0);
        Backing(((name << TAG_BITS) & NAME_MASK) | tag)
    }

    /// Where the bytes are, if they are stored.
    #[must_use]
    pub fn stored(self) -> Option<Stored> {
        match self.0 & TAG_MASK {
            TAG_COMPRESSED => {
                Handle::from_raw((self.0 & HANDLE_MASK) >> TAG_BITS).map(Stored::Pool)
            }
            TAG_PHYSICAL => Entry::from_raw((self.0 & NAME_MASK) >> TAG_BITS).map(Stored::Physical),
            _ => None,
        }
    }

    const fn is_compressed(self) -> bool {
        self.0 & TAG_MASK == TAG_COMPRESSED
    }

    /// The same word for a page that was stored or read in `generation`. Unchanged if the bytes are not in the pool.
    #[must_use]
    pub const fn touched(self, generation: u8) -> Backing {
        if !self.is_compressed() {
            return self;
        }
        Backing((self.0 & !GENERATION_MASK) | (generation as u64) << GENERATION_SHIFT)
    }

    /// The generation in which a page in the pool was stored or last read. Meaningless for other words.
    #[must_use]
    pub const fn generation(self) -> u8 {
        ((self.0 & GENERATION_MASK) >> GENERATION_SHIFT) as u8
    }

    /// True if the bytes are in the pool and known to be damaged.
    #[must_use]
    pub const fn is_damaged(self) -> bool {
        self.is_compressed() && self.0 & DAMAGED_FLAG != 0
    }

    /// True if the bytes are in the pool and cannot be packed more densely.
    #[must_use]
    pub const fn is_dense(self) -> bool {
        self.is_compressed() && self.0 & DENSE_FLAG != 0
    }

    /// The same word for a page that was packed again. Unchanged if the bytes are not in the pool.
    #[must_use]
    pub const fn dense(self) -> Backing {
        if !self.is_compressed() {
            return self;
        }
        Backing(self.0 | DENSE_FLAG)
    }

    /// The bit that marks a page in the pool as dense.
    pub(crate) const DENSE: u64 = DENSE_FLAG;

    /// The bit that marks a page in the pool as damaged.
    pub(crate) const DAMAGED: u64 = DAMAGED_FLAG;

    /// How many readers are using the bytes.
    #[must_use]
    pub const fn pins(self) -> u64 {
        (self.0 & PINS_MASK) >> PINS_SHIFT
    }

    /// True once the slot's count is 0 and the last reader must free it.
    #[must_use]
    pub const fn is_abandoned(self) -> bool {
        self.0 & ABANDONED_FLAG != 0
    }

    /// The same word after the slot's count became 0.
    #[must_use]
    pub const fn abandoned(self) -> Backing {
        Backing(self.0 | ABANDONED_FLAG)
    }

    /// The same word without pins.
    #[must_use]
    pub const fn unpinned(self) -> Backing {
        Backing(self.0 & !PINS_MASK)
    }

    /// The same word with one more pin. There must be fewer than [`PINS_MAX`].
    #[must_use]
    pub const fn pinned(self) -> Backing {
        Backing(self.0 + ONE_PIN)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::words::entry::AreaId;
    use crate::words::geometry::{CLUSTERS_MAX, SLOTS_PER_CLUSTER};

    #[test]
    fn extremes_come_back_whole() {
        let in_pool = [1, 2, 1 << (Handle::BITS - 1), (1 << Handle::BITS) - 1]
            .map(|raw| Stored::Pool(Handle::from_raw(raw).expect("not zero")));
        let last = SLOTS_PER_CLUSTER - 1;
        let physical = [(0, 0, 0), (253, CLUSTERS_MAX - 1, last)].map(|(index, cluster, slot)| {
            let area = AreaId::physical(index).expect("a number");
            Stored::Physical(Entry::of(area, cluster, slot))
        });
        for stored in in_pool.into_iter().chain(physical) {
            let mut word = Backing::of(stored);
            for pins in 0..=PINS_MAX {
                assert_eq!(word.pins(), pins);
                assert_eq!(word.stored(), Some(stored));
                assert_eq!(word.abandoned().stored(), Some(stored));
                assert_eq!(word.abandoned().pins(), pins);
                assert!(word.abandoned().is_abandoned() && !word.is_abandoned());
                if pins < PINS_MAX {
                    word = word.pinned();
                }
            }
        }
        assert_eq!(Backing::NONE.stored(), None);
        assert_eq!(Backing::NONE.touched(7), Backing::NONE);
        assert_eq!(Backing::from_raw(TAG_PHYSICAL).stored(), None);
        assert_eq!(Backing::NONE.raw(), 0);
    }

    #[test]
    fn what_is_known_of_a_page_does_not_touch_its_name() {
        let handle = Handle::from_raw((1 << Handle::BITS) - 1).expect("not zero");
        let stored = Stored::Pool(handle);
        let word = Backing::of(stored);
        for generation in [0, 1, u8::MAX, 0x55] {
            let touched = word.pinned().touched(1).touched(generation);
            assert_eq!(touched.generation(), generation);
            assert_eq!((touched.stored(), touched.pins()), (Some(stored), 1));
            let damaged = Backing::from_raw(touched.raw() | Backing::DAMAGED);
            assert!(damaged.is_damaged() && !touched.is_damaged());
            assert_eq!(damaged.stored(), Some(stored));
            assert_eq!(damaged.touched(3).generation(), 3);
            assert!(damaged.touched(3).abandoned().is_damaged());
            let dense = damaged.dense().touched(5).abandoned();
            assert!(dense.is_dense() && dense.is_damaged() && !damaged.is_dense());
            assert_eq!((dense.stored(), dense.generation()), (Some(stored), 5));
        }
        // In an entry's word all bits belong to the entry.
        let last = Entry::from_raw(Entry::of(AreaId::VIRTUAL, CLUSTERS_MAX - 1, 0).raw());
        let physical = Backing::of(Stored::Physical(last.expect("an entry")));
        assert_eq!(physical.touched(9), physical);
        assert!(!physical.is_damaged() && !physical.is_dense());
        assert_eq!(physical.dense(), physical);
        assert_eq!(Backing::NONE.dense(), Backing::NONE);
    }
}
