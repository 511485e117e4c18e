//! What a call looks like on aarch64: the last four bytes before the place where it returns to.

use vswap_sys::memory::addresses;

/// The address that a word of a stack is, if it is that of code. A program may have signed it, in bits that no address
/// has.
pub fn address_in(word: u64) -> u64 {
    word & (addresses::end() - 1)
}

/// Do these bytes of code end with a call: `bl`, `blr`, or a `blr` of a signed address?
pub fn ends_with_call(bytes: [u8; 8]) -> bool {
    /// Mask and value.
    const CALLS: [(u32, u32); 3] = [
        (0xFC00_0000, 0x9400_0000),
        (0xFFFF_FC1F, 0xD63F_0000),
        (0xFEFF_F800, 0xD63F_0800),
    ];
    let [.., a, b, c, d] = bytes;
    let last = u32::from_le_bytes([a, b, c, d]);
    CALLS.iter().any(|(mask, value)| last & mask == *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_call(instruction: u32) -> bool {
        let mut bytes = [0; 8];
        bytes[4..].copy_from_slice(&instruction.to_le_bytes());
        ends_with_call(bytes)
    }

    #[test]
    fn calls_are_told_from_jumps_and_returns() {
        // bl, bl backwards, blr x8, blraaz x8, blraa x8, x9.
        for call in [
            0x9400_0010,
            0x97ff_fff0,
            0xd63f_0100,
            0xd63f_091f,
            0xd73f_0909,
        ] {
            assert!(is_call(call), "{call:#x}");
        }
        // b, br x8, ret, svc #0, nop.
        for other in [
            0x1400_0010,
            0xd61f_0100,
            0xd65f_03c0,
            0xd400_0001,
            0xd503_201f,
        ] {
            assert!(!is_call(other), "{other:#x}");
        }
    }

    #[test]
    fn what_signs_an_address_is_taken_off() {
        assert_eq!(address_in(0x1234_5678), 0x1234_5678);
        assert_eq!(address_in(0x0042 << 48 | 0x1234_5678), 0x1234_5678);
    }
}
