//! Where a payload lies: the word of its slot, and what the word of its block counts.
//!
//! | bits of a slot's word | say |
//! |---|---|
//! | 0 to 31 | the block |
//! | 32 to 44 | bytes of the payload, 1 to 4096. 0 if the slot holds nothing: then the whole word is 0 |
//! | 45 to 56 | at which byte of the block its record begins |
//! | 57 to 63 | how often the payload was moved, modulo 128 |
//!
//! A payload that is moved has another word in any case, so whoever has read a block sees by the word whether that was
//! still the right one.
//!
//! | bits of a block's word | say |
//! |---|---|
//! | 0 to 15 | how many payloads in it are live |
//! | 16 to 31 | how many bytes of it these take up |
//! | 32 | it is held: somebody moves payloads out of it |
//!
//! The word is 0 for a free block, and for one that is being filled.

use vswap_engine::PAGE_BYTES;

/// Bytes before each payload that shares its block: slot, length, checksum (`record.rs`).
pub(super) const HEADER_BYTES: usize = 4 + 2 + 4;

const LENGTH_AT: u32 = 32;
const LENGTH_BITS: u32 = 13;
const OFFSET_AT: u32 = LENGTH_AT + LENGTH_BITS;
const OFFSET_BITS: u32 = 12;
const MOVES_AT: u32 = OFFSET_AT + OFFSET_BITS;
const MOVES: u64 = u64::MAX >> MOVES_AT;

const _: () = assert!(PAGE_BYTES < 1 << LENGTH_BITS && PAGE_BYTES <= 1 << OFFSET_BITS);

/// Where the payload of a slot lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) block: u32,
    /// Bytes of the payload.
    pub(super) length: u16,
    /// Where in the block its record begins.
    pub(super) offset: u16,
    moves: u8,
}

impl Place {
    pub(super) fn new(block: u32, offset: u16, length: u16) -> Place {
        Place {
            block,
            length,
            offset,
            moves: 0,
        }
    }

    /// The same payload, which has been moved to `to`.
    pub(super) fn moved(self, to: Place) -> Place {
        Place {
            moves: self.moves.wrapping_add(1),
            ..to
        }
    }

    /// Whether it was moved, for tests.
    #[cfg(test)]
    pub(super) fn was_moved(self) -> bool {
        self.moves > 0
    }

    /// A page that lies in its block as it is.
    pub(super) fn is_whole(self) -> bool {
        usize::from(self.length) == PAGE_BYTES
    }

    /// What it takes up in its block.
    pub(super) fn share(self) -> Share {
        Share::of(usize::from(self.length))
    }

    pub(super) fn word(self) -> u64 {
        u64::from(self.block)
            | u64::from(self.length) << LENGTH_AT
            | u64::from(self.offset) << OFFSET_AT
            | (u64::from(self.moves) & MOVES) << MOVES_AT
    }

    /// None if the slot holds nothing.
    #[expect(clippy::cast_possible_truncation, reason = "each field is as wide")]
    pub(super) fn from_word(word: u64) -> Option<Place> {
        let field = |at: u32, bits: u32| (word >> at) & (u64::MAX >> (u64::BITS - bits));
        let length = field(LENGTH_AT, LENGTH_BITS) as u16;
        (length > 0).then_some(Place {
            block: word as u32,
            length,
            offset: field(OFFSET_AT, OFFSET_BITS) as u16,
            moves: (word >> MOVES_AT) as u8,
        })
    }
}

/// What live payloads take up in a block: so it is added to the block's word, and taken away from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share(u64);

const BYTES_AT: u32 = 16;
const COUNT: u64 = 0xffff;

impl Share {
    /// Somebody moves payloads out of the block.
    pub(super) const HELD: Share = Share(1 << 32);

    /// One payload of `length` bytes.
    pub(super) fn of(length: usize) -> Share {
        let header = if length == PAGE_BYTES {
            0
        } else {
            HEADER_BYTES
        };
        Share(1 | ((length + header) as u64) << BYTES_AT)
    }

    pub(super) fn from_word(word: u64) -> Share {
        Share(word)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn and(self, other: Share) -> Share {
        Share(self.0 + other.0)
    }

    pub(super) fn without(self, other: Share) -> Share {
        Share(self.0 - other.0)
    }

    pub(super) fn bytes(self) -> u64 {
        (self.0 >> BYTES_AT) & COUNT
    }

    pub(super) fn is_nothing(self) -> bool {
        self.0 == 0
    }

    /// Live payloads lie in it, and nobody holds it.
    pub(super) fn can_be_held(self) -> bool {
        self.0 & COUNT > 0 && self.0 < Share::HELD.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_they_were_made_of() {
        for place in [
            Place::new(0, 0, 1),
            Place::new(u32::MAX, 4095, 4096),
            Place::new(77, 1234, 567),
        ] {
            assert_eq!(Place::from_word(place.word()), Some(place));
        }
        assert_eq!(Place::from_word(0), None);
    }

    #[test]
    fn a_move_changes_the_word_even_to_the_same_place() {
        let place = Place::new(5, 6, 7);
        let mut moved = place;
        for _ in 0..127 {
            moved = moved.moved(place);
            assert!(moved.word() != place.word() && moved.share() == place.share());
            assert_eq!(Place::from_word(moved.word()), Some(moved));
        }
    }

    #[test]
    fn shares_add_up() {
        let both = Share::of(100).and(Share::of(4096)).and(Share::HELD);
        assert_eq!(both.bytes(), (100 + HEADER_BYTES + 4096) as u64);
        assert!(!both.can_be_held() && both.without(Share::HELD).can_be_held());
        let none = both.without(Share::of(100)).without(Share::of(4096));
        assert!(!none.can_be_held() && none.without(Share::HELD).is_nothing());
    }
}
