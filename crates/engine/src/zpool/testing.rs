//! Seeded content for tests and measurements.

use std::iter;

/// Bytes of a page.
const BYTES: usize = 4096;

/// Kinds of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Objects of an interpreter: reference counts, type pointers, pointers to neighbours, small numbers, short names.
    Heap,
    /// Words from a small vocabulary.
    Text,
    /// Incompressible.
    Random,
    /// A few words among zeros.
    Sparse,
}

/// A sequence of numbers that depends only on `seed`.
pub fn seeded(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

fn heap(random: &mut impl FnMut() -> u64) -> impl Iterator<Item = u8> {
    const TYPES: [u64; 6] = [0x955a40, 0x9585c0, 0x957da0, 0x95a120, 0x954fe0, 0x95b7e0];
    let base = 0x7f3a_0000_0000 | (random() & 0xff) << 24;
    let at = random() & 0xff_f000;
    let mut words = Vec::with_capacity(BYTES / 8);
    while words.len() < BYTES / 8 {
        let kind = random() % 10;
        words.push(1 + (random() % 8 / 6));
        words.push(TYPES[usize::try_from(kind % 6).unwrap_or(0)]);
        match kind {
            0..4 => words.extend([base | (at + random() % 0x8000) & !15, u64::MAX, 0]),
            4..7 => words.extend([1, random() % 1_000_000]),
            _ => words.extend([
                8,
                random(),
                u64::from_le_bytes(*b"key_name"),
                random() % 10_000,
            ]),
        }
    }
    words.into_iter().flat_map(u64::to_le_bytes)
}

fn text(random: &mut impl FnMut() -> u64) -> impl Iterator<Item = u8> {
    const SYLLABLES: [&str; 16] = [
        "ta", "ble", "swap", "ing", "er", "the", "of", "page", "re", "ca", "che", "un", "or",
        "time", "st", "li",
    ];
    let mut bytes = Vec::with_capacity(BYTES + 32);
    while bytes.len() < BYTES {
        // Small word numbers are common and large ones rare, as in a language.
        let word = random() % 2000 * (random() % 2000) / 4000;
        let mut part = seeded(word);
        for _ in 0..=part() % 3 {
            bytes.extend(SYLLABLES[usize::try_from(part() % 16).unwrap_or(0)].as_bytes());
        }
        bytes.extend(if random().is_multiple_of(9) {
            &b", "[..]
        } else {
            b" "
        });
    }
    bytes.into_iter()
}

/// A page of content of `kind`.
pub fn page_bytes(kind: Content, seed: u64) -> Box<[u8; BYTES]> {
    let mut page = Box::new([0; BYTES]);
    let mut random = seeded(seed);
    let mut put = |bytes: &mut dyn Iterator<Item = u8>| {
        page.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    };
    match kind {
        Content::Heap => put(&mut heap(&mut random)),
        Content::Text => put(&mut text(&mut random)),
        Content::Random => put(&mut iter::repeat_with(&mut random).flat_map(u64::to_le_bytes)),
        Content::Sparse => put(&mut iter::repeat_with(|| {
            if random().is_multiple_of(64) {
                random()
            } else {
                0
            }
        })
        .flat_map(u64::to_le_bytes)),
    }
    page
}
