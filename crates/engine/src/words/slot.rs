//! The slot word: everything the engine knows of one slot, in one atomic 64-bit word.
//!
//! ```text
//!          63    60 59 58                        34 33              3 2 1 0
//!         +--------+--+----------------------------------------------------+
//! null    |                               0                                | free; nothing behind it
//!         +--------+--+--------------------------------------------------+-+
//! shadow  | count  |Z |                 shadow (58 bits)                 |1| used, not in memory
//!         +--------+--+---------------------------+--------------------+-+-+
//! cached  | count  |Z |             0             |   frame (32 bits)  |1 0| used, content in a frame
//!         +--+-----+--+---------------------------+------------------+-+---+
//! pointer |0 R|               virtual slot offset (59 bits)          |1 0 0| physical slot behind a virtual one
//!         +---+------------------------------------------------------+-----+
//! bad     |                 1 1 1 ... 1 1 1                          |0 0 0| never to be used
//!         +----------------------------------------------------------+-----+
//! ```
//!
//! *count* is how many page-table references the slot has. 0..=14 is the count itself; 15 says that the count is in the
//! cluster's extend table. *Z* says that the page is all zeros and stored nowhere. *R* says that the page was read
//! since the hand that looks for cold pages last came by (`area/cold.rs`). Whoever has the page pinned may set *R*
//! without the lock. A used slot is never null: without a known age it has shadow value 0 and the shadow mark. Going
//! from shadow to cached or back keeps count and Z. All other writes are made under the cluster's lock, and reads need
//! no lock.

use super::entry::{AreaId, Entry};
use super::geometry::SLOTS_MAX;
use super::shadow::Shadow;

const COUNT_SHIFT: u32 = 60;
const COUNT_BITS: u32 = 4;
const COUNT_MASK: u64 = ((1 << COUNT_BITS) - 1) << COUNT_SHIFT;
const ZERO_SHIFT: u32 = 59;
const ZERO_FLAG: u64 = 1 << ZERO_SHIFT;
const FLAGS_MASK: u64 = COUNT_MASK | ZERO_FLAG;

// The lowest set bit decides, so no word has two kinds.
const SHADOW_MARK: u64 = 0b1;
const SHADOW_MARK_BITS: u32 = 1;
const CACHED_MARK: u64 = 0b10;
const CACHED_MARK_BITS: u32 = 2;
const POINTER_MARK: u64 = 0b100;
const POINTER_MARK_BITS: u32 = 3;

const FRAME_BITS: u32 = 32;
const FRAME_MASK: u64 = ((1 << FRAME_BITS) - 1) << CACHED_MARK_BITS;
const POINTER_BITS: u32 = 59;
const READ_SHIFT: u32 = 62;
const READ_FLAG: u64 = 1 << READ_SHIFT;

/// The count field's value that says "look in the extend table".
pub const COUNT_OVERFLOW: u8 = (1 << COUNT_BITS) - 1;
/// The largest count that the word itself holds.
pub const COUNT_INLINE_MAX: u8 = COUNT_OVERFLOW - 1;
/// The largest slot offset that a pointer word holds.
pub const POINTER_MAX: u64 = (1 << POINTER_BITS) - 1;

// Every width in the drawing above: fields touch and do not overlap.
const _: () = assert!(COUNT_SHIFT + COUNT_BITS == u64::BITS);
const _: () = assert!(ZERO_SHIFT + 1 == COUNT_SHIFT);
const _: () = assert!(SHADOW_MARK_BITS + Shadow::BITS == ZERO_SHIFT);
const _: () = assert!(CACHED_MARK_BITS + FRAME_BITS <= ZERO_SHIFT);
const _: () = assert!(FRAME_BITS == u32::BITS);
const _: () = assert!(POINTER_MARK_BITS + POINTER_BITS == READ_SHIFT);
const _: () = assert!(FRAME_MASK & FLAGS_MASK == 0 && FRAME_MASK & CACHED_MARK == 0);
// A pointer can name every slot of an area.
const _: () = assert!(SLOTS_MAX - 1 <= POINTER_MAX);

/// One slot's word. See the drawing at the top of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

/// The meaning of a [`Word`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Free.
    Null,
    /// Used; the content is not in a frame.
    Shadow(Shadow),
    /// Used; the content is in this frame.
    Cached(u32),
    /// A physical slot that backs the virtual slot at `offset`.
    Pointer {
        /// Offset of the virtual slot.
        offset: u64,
    },
    /// Must not be used.
    Bad,
    /// Not a word that the engine writes: memory was damaged.
    Invalid,
}

impl Word {
    /// A free slot.
    pub const NULL: Word = Word(0);
    /// A slot that must never be used.
    pub const BAD: Word = Word(u64::MAX << POINTER_MARK_BITS);

    /// The word as stored.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// A word as loaded. Any value is accepted; [`Word::kind`] judges it.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Word {
        Word(raw)
    }

    /// A used slot without a frame, count 0, not zero.
    #[must_use]
    pub const fn shadow(shadow: Shadow) -> Word {
        Word((shadow.value() << SHADOW_MARK_BITS) | SHADOW_MARK)
    }

    /// A used slot whose content is in `frame`, count 0, not zero.
    #[must_use]
    pub const fn cached(frame: u32) -> Word {
        Word(((frame as u64) << CACHED_MARK_BITS) | CACHED_MARK)
    }

    /// A physical slot that backs the virtual slot at `offset`. `None` if the offset is too wide.
    #[must_use]
    pub const fn pointer(offset: u64) -> Option<Word> {
        if offset > POINTER_MAX {
            return None;
        }
        Some(Word((offset << POINTER_MARK_BITS) | POINTER_MARK))
    }

    /// The same slot with its content in `frame`. Keeps count and zero flag.
    #[must_use]
    pub const fn into_cached(self, frame: u32) -> Word {
        Word((self.0 & FLAGS_MASK) | Word::cached(frame).0)
    }

    /// The same slot without a frame. Keeps count and zero flag.
    #[must_use]
    pub const fn into_shadow(self, shadow: Shadow) -> Word {
        Word((self.0 & FLAGS_MASK) | Word::shadow(shadow).0)
    }

    /// The word's meaning.
    #[must_use]
    #[inline]
    pub const fn kind(self) -> Kind {
        let raw = self.0;
        if raw & SHADOW_MARK != 0 {
            Kind::Shadow(Shadow::truncated(raw >> SHADOW_MARK_BITS))
        } else if raw & CACHED_MARK != 0 {
            if raw & !(FLAGS_MASK | FRAME_MASK | CACHED_MARK) != 0 {
                return Kind::Invalid;
            }
            let frame = ((raw & FRAME_MASK) >> CACHED_MARK_BITS) as u32;
            Kind::Cached(frame)
        } else if raw & POINTER_MARK != 0 {
            let offset = (raw & !READ_FLAG) >> POINTER_MARK_BITS;
            if offset > POINTER_MAX {
                return Kind::Invalid;
            }
            Kind::Pointer { offset }
        } else if raw == 0 {
            Kind::Null
        } else if raw == Word::BAD.0 {
            Kind::Bad
        } else {
            Kind::Invalid
        }
    }

    /// True for words in use that carry count and zero flag: shadow and cached.
    #[must_use]
    #[inline]
    pub const fn is_used(self) -> bool {
        self.0 & (SHADOW_MARK | CACHED_MARK) != 0
    }

    /// The virtual slot behind which this physical slot stands, if there is one.
    #[must_use]
    pub fn owner(self) -> Option<Entry> {
        match self.kind() {
            Kind::Pointer { offset, .. } => Entry::at(AreaId::VIRTUAL, offset),
            _ => None,
        }
    }

    /// The bit that marks a physical slot whose page was read.
    pub(crate) const READ: u64 = READ_FLAG;

    /// The same pointer word with the mark that its page was read.
    #[must_use]
    pub const fn with_read_mark(self) -> Word {
        Word(self.0 | READ_FLAG)
    }

    /// True for a physical slot whose page was read since a hand last came by.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(self.kind(), Kind::Pointer { .. }) && self.0 & READ_FLAG != 0
    }

    /// The frame that holds the content, if there is one.
    #[must_use]
    #[inline]
    pub const fn frame(self) -> Option<u32> {
        match self.kind() {
            Kind::Cached(frame) => Some(frame),
            _ => None,
        }
    }

    /// The count field. 0..=14 is the count; [`COUNT_OVERFLOW`] says that the extend table has it. 0 for words without
    /// a count.
    #[must_use]
    #[inline]
    pub const fn count_field(self) -> u8 {
        if !self.is_used() {
            return 0;
        }
        (self.0 >> COUNT_SHIFT) as u8
    }

    /// The same word with another count field. Values above [`COUNT_OVERFLOW`] become [`COUNT_OVERFLOW`]. Only for used
    /// words.
    #[must_use]
    #[inline]
    pub const fn with_count_field(self, count: u8) -> Word {
        let count = if count > COUNT_OVERFLOW {
            COUNT_OVERFLOW
        } else {
            count
        };
        Word((self.0 & !COUNT_MASK) | ((count as u64) << COUNT_SHIFT))
    }

    /// True if the page is all zeros and stored nowhere.
    #[must_use]
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.is_used() && self.0 & ZERO_FLAG != 0
    }

    /// The same word with the zero flag set or cleared. Only for used words.
    #[must_use]
    #[inline]
    pub const fn with_zero(self, zero: bool) -> Word {
        Word((self.0 & !ZERO_FLAG) | if zero { ZERO_FLAG } else { 0 })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const FRAMES: [u32; 5] = [0, 1, 0x8000_0000, u32::MAX - 1, u32::MAX];
    const SHADOWS: [u64; 5] = [0, 1, 1 << 57, Shadow::MAX - 1, Shadow::MAX];

    #[test]
    fn extremes_come_back_whole() {
        for count in 0..=COUNT_OVERFLOW {
            for zero in [false, true] {
                for frame in FRAMES {
                    let word = Word::cached(frame).with_count_field(count).with_zero(zero);
                    assert_eq!(word.kind(), Kind::Cached(frame));
                    assert_eq!((word.count_field(), word.is_zero()), (count, zero));
                    assert_eq!(Word::from_raw(word.raw()), word);
                }
                for value in SHADOWS {
                    let shadow = Shadow::truncated(value);
                    let word = Word::shadow(shadow).with_count_field(count).with_zero(zero);
                    assert_eq!(word.kind(), Kind::Shadow(shadow));
                    assert_eq!((word.count_field(), word.is_zero()), (count, zero));
                }
            }
        }
        for offset in [0, 1, 1 << 58, POINTER_MAX - 1, POINTER_MAX] {
            let word = Word::pointer(offset).expect("in range");
            assert_eq!(word.kind(), Kind::Pointer { offset });
            let read = word.with_read_mark();
            assert_eq!(read.kind(), word.kind());
            assert!(read.is_read() && !word.is_read());
        }
        assert_eq!(Word::pointer(POINTER_MAX + 1), None);
        assert_eq!(Word::NULL.kind(), Kind::Null);
        assert_eq!(Word::BAD.kind(), Kind::Bad);
    }

    #[test]
    fn conversions_keep_count_and_zero_flag() {
        for count in 0..=COUNT_OVERFLOW {
            for zero in [false, true] {
                let cached = Word::cached(u32::MAX)
                    .with_count_field(count)
                    .with_zero(zero);
                let shadow = cached.into_shadow(Shadow::truncated(Shadow::MAX));
                assert_eq!((shadow.count_field(), shadow.is_zero()), (count, zero));
                assert_eq!(shadow.kind(), Kind::Shadow(Shadow::truncated(Shadow::MAX)));
                let back = shadow.into_cached(0);
                assert_eq!((back.count_field(), back.is_zero()), (count, zero));
                assert_eq!(back.kind(), Kind::Cached(0));
            }
        }
    }

    #[test]
    fn a_used_word_is_never_null() {
        for word in [Word::shadow(Shadow::ABSENT), Word::cached(0)] {
            assert_ne!(word, Word::NULL);
            assert!(word.is_used());
            assert!(word.with_count_field(0).with_zero(false).is_used());
        }
        for word in [Word::NULL, Word::BAD] {
            assert!(!word.is_used());
            assert_eq!((word.count_field(), word.is_zero()), (0, false));
        }
        let pointer = Word::pointer(POINTER_MAX).expect("in range");
        assert!(!pointer.is_used());
        assert_eq!(pointer.count_field(), 0);
    }

    #[test]
    fn damaged_words_are_told_apart() {
        assert_eq!(Word::from_raw(8).kind(), Kind::Invalid);
        assert_eq!(Word::from_raw(Word::BAD.raw() - 8).kind(), Kind::Invalid);
        assert_eq!(Word::from_raw((1 << 40) | 2).kind(), Kind::Invalid);
        assert_eq!(Word::from_raw((1 << 63) | 4).kind(), Kind::Invalid);
    }
}
