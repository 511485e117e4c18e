//! Messages as a userfaultfd would give them, with any content.

use vswap_drive::random::Random;

use crate::numbers;

/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: usize = 32;
/// UFFD_EVENT_PAGEFAULT, FORK, REMAP, REMOVE, UNMAP, and one that does not exist.
const EVENTS: [u8; 6] = [0x12, 0x13, 0x14, 0x15, 0x16, 0x17];
const FORK: u8 = 0x13;
/// Numbers of descriptors that a supervisor may have open.
const DESCRIPTORS: u32 = 200;

/// A forged message about addresses in and around a range.
pub(crate) fn forged(random: &mut Random, near: (u64, u64)) -> [u8; MESSAGE_BYTES] {
    let event = random.pick(&EVENTS);
    let mut words: [u64; 3] = [0; 3].map(|_: u64| number(random, near));
    if event == FORK && random.chance(90) {
        words[0] = u64::from(random.below(DESCRIPTORS));
    }
    let mut message = [0; MESSAGE_BYTES];
    message[0] = event;
    for (place, word) in message[8..].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    message
}

fn number(random: &mut Random, (start, bytes): (u64, u64)) -> u64 {
    match random.below(3) {
        0 => start + ((random.next() % bytes.max(1)) & !0xfff),
        1 => random.next() % bytes.max(1),
        _ => numbers::word(random),
    }
}

/// Some messages in a row, the last perhaps cut short.
pub(crate) fn some(random: &mut Random, near: (u64, u64)) -> Vec<u8> {
    let count = random.between(1, 40);
    let mut bytes: Vec<u8> = (0..count).flat_map(|_| forged(random, near)).collect();
    if random.chance(20) {
        bytes.truncate(bytes.len() - random.between(1, 31) as usize);
    }
    bytes
}
