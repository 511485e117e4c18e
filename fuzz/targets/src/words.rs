//! Slot words and backing words compared with their meaning, and names of slots.

use vswap_engine::backing::{Backing, PINS_MAX};
use vswap_engine::table::{COUNT_OVERFLOW, Kind, POINTER_MAX, Word};
use vswap_engine::{Entry, Shadow};

use crate::bytes::Bytes;

/// Any 64 bits are a word. Changing one part of a word keeps the others.
pub fn words(data: &[u8]) {
    let mut bytes = Bytes(data);
    let raw = bytes.u64();
    any_slot_word(raw);
    any_backing_word(raw);
    if let Some(entry) = Entry::from_raw(raw) {
        assert_eq!(entry.raw(), raw);
    }
    slot_word_steps(&mut bytes);
}

/// A used word consists of its parts and nothing else, and so does a pointer.
fn any_slot_word(raw: u64) {
    let word = Word::from_raw(raw);
    assert_eq!(word.raw(), raw);
    let of_parts = |bare: Word| {
        let whole = bare.with_count_field(word.count_field());
        whole.with_zero(word.is_zero())
    };
    match word.kind() {
        Kind::Null => assert_eq!(word, Word::NULL),
        Kind::Bad => assert_eq!(word, Word::BAD),
        Kind::Shadow(shadow) => assert_eq!(word, of_parts(Word::shadow(shadow))),
        Kind::Cached(frame) => {
            assert_eq!(word.frame(), Some(frame));
            assert_eq!(word, of_parts(Word::cached(frame)));
        }
        Kind::Pointer { offset } => {
            assert!(offset <= POINTER_MAX);
            let mut made = Word::pointer(offset);
            if word.is_read() {
                made = made.map(Word::with_read_mark);
            }
            assert_eq!(Some(word), made);
        }
        Kind::Invalid => assert_eq!(word.frame(), None),
    }
}

fn any_backing_word(raw: u64) {
    let backing = Backing::from_raw(raw);
    assert!(backing.pins() <= PINS_MAX);
    let Some(stored) = backing.stored() else {
        return;
    };
    let mut made = Backing::of(stored).touched(backing.generation());
    for _ in 0..backing.pins() {
        made = made.pinned();
    }
    if backing.is_abandoned() {
        made = made.abandoned();
    }
    if backing.is_dense() {
        made = made.dense();
    }
    // Only the engine sets the mark of damage.
    assert!(made.raw() == raw || backing.is_damaged());
    assert!(!made.is_damaged());
}

/// The expected parts of a used slot word.
#[derive(Debug, Clone, Copy)]
struct Expected {
    kind: Kind,
    count: u8,
    zero: bool,
}

fn slot_word_steps(bytes: &mut Bytes<'_>) {
    let mut word = Word::shadow(Shadow::ABSENT);
    let mut expected = Expected {
        kind: Kind::Shadow(Shadow::ABSENT),
        count: 0,
        zero: false,
    };
    while !bytes.is_empty() {
        match bytes.below(4) {
            0 => {
                let frame = bytes.u32();
                word = word.into_cached(frame);
                expected.kind = Kind::Cached(frame);
            }
            1 => {
                let shadow = Shadow::truncated(bytes.u64());
                word = word.into_shadow(shadow);
                expected.kind = Kind::Shadow(shadow);
            }
            2 => {
                let count = bytes.u8();
                word = word.with_count_field(count);
                expected.count = count.min(COUNT_OVERFLOW);
            }
            _ => {
                let zero = bytes.bool();
                word = word.with_zero(zero);
                expected.zero = zero;
            }
        }
        assert!(word.is_used(), "a used word became {word:?}");
        assert_eq!(word.kind(), expected.kind);
        assert_eq!(word.count_field(), expected.count);
        assert_eq!(word.is_zero(), expected.zero);
    }
}
