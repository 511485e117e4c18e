//! Bytes of pages. Every word depends on the page's stamp and on its place, and is 0 only if the stamp is.
//!
//! Nothing here allocates.

use vswap_drive::random::mix;

use crate::program::calls::PAGE_BYTES;

pub(crate) const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// A page's words, aligned as direct I/O requires.
#[derive(Clone, Debug)]
#[repr(C, align(4096))]
pub(crate) struct Words(pub(crate) [u64; PAGE_WORDS]);

/// Word `index` of a page. A quarter of the words is noise and the rest is regular, so that pages compress like those
/// of programs.
pub(crate) const fn word(stamp: u64, index: usize) -> u64 {
    if stamp == 0 {
        return 0;
    }
    match index & 3 {
        0 => mix(stamp ^ index as u64) | 1,
        1 => stamp | 1,
        2 => 1 << 63 | stamp >> 1,
        _ => 0x0101_0101_0000_0000 | index as u64,
    }
}

/// The stamp of what line `line` writes to page `page` of the arena.
pub(crate) const fn stamp(line: usize, page: usize) -> u64 {
    // Never 0 and never one of the model's two marks.
    mix((line as u64) << 32 | page as u64) >> 2 | 1
}

/// A whole page.
pub(crate) fn page(stamp: u64) -> Words {
    Words(std::array::from_fn(|index| word(stamp, index)))
}

/// The first word that is wrong: its place, what was expected and what was found.
pub(crate) fn difference(words: &Words, stamp: u64) -> Option<(usize, u64, u64)> {
    let wrong = |(index, found): (usize, &u64)| {
        let expected = word(stamp, index);
        (*found != expected).then_some((index, expected, *found))
    };
    words.0.iter().enumerate().find_map(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_differ_and_a_changed_bit_is_seen() {
        let mut words = page(stamp(3, 4));
        assert_eq!(difference(&words, stamp(3, 4)), None);
        assert!(difference(&words, stamp(3, 5)).is_some());
        assert!(difference(&words, 0).is_some());
        words.0[100] ^= 1 << 40;
        assert_eq!(difference(&words, stamp(3, 4)).unwrap().0, 100);
        assert_eq!(difference(&page(0), 0), None);
    }
}
