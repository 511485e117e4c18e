//! What a call looks like on x86-64.

/// A near call, relative (5 bytes) or by a register or memory (2 to 7 bytes).
const CALL_RELATIVE: u8 = 0xe8;
const CALL_GROUP: u8 = 0xff;

/// The address that a word of a stack is, if it is that of code.
pub fn address_in(word: u64) -> u64 {
    word
}

/// May these bytes of code end with a call?
pub fn ends_with_call(bytes: [u8; 8]) -> bool {
    // The second byte of the group says that it is a call: /2.
    let is_group = |at: usize| bytes[at] == CALL_GROUP && bytes[at + 1] >> 3 & 7 == 2;
    bytes[3] == CALL_RELATIVE || (1..7).any(is_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_other_code() {
        // Relative, by rax, and by memory that is addressed relative to the code.
        for call in [
            [0, 0, 0, 0xe8, 1, 2, 3, 4],
            [0, 0, 0, 0, 0, 0, 0xff, 0xd0],
            [0, 0, 0xff, 0x15, 1, 2, 3, 4],
        ] {
            assert!(ends_with_call(call), "{call:x?}");
        }
        assert!(!ends_with_call([0x90; 8]));
        assert!(
            !ends_with_call([0, 0, 0, 0, 0, 0, 0xff, 0xe0]),
            "a jump by a register"
        );
    }
}
