//! Numbers that programs get wrong.

use vswap_drive::random::Random;

/// Ends of ranges: of pages, words, addresses and page numbers.
const BOUNDARIES: [u64; 18] = [
    0,
    1,
    0xfff,
    0x1000,
    0x1001,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    (1 << 47) - 0x1000,
    1 << 47,
    (1 << 52) - 1,
    1 << 52,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 0xfff,
    u64::MAX - 1,
    u64::MAX,
];

/// A number that somebody may not have thought of.
pub(crate) fn word(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.next(),
        1 => random.next() >> 17 & !0xfff,
        _ => random.pick(&BOUNDARIES),
    }
}
