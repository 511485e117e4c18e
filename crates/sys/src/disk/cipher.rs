//! Encryption of private files: what was in memory must not be read from a disk that is sold, stolen or copied.
//!
//! AES-256 in XTS mode, as disks are encrypted by dm-crypt: a page's place is its tweak, so it needs no room of its own
//! and can be written again and again. The key is random, made with the disk, and nowhere but in this process. For any
//! number of threads at once.

use std::io;

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit, typenum::U16};

use super::PageBytes;
use crate::random;

/// Bytes of one of the two keys.
const KEY_BYTES: usize = 32;
/// Blocks of 16 bytes that the processor is given at once: more than its pipeline takes.
const AT_ONCE: usize = 64;
/// What a tweak is reduced by when it is doubled: x^128 = x^7 + x^2 + x + 1.
const POLYNOMIAL: u128 = 0x87;

type Block = Array<u8, U16>;

/// The keys of one disk.
pub(super) struct Cipher {
    pages: Aes256,
    tweaks: Aes256,
}

impl Cipher {
    /// With a key that nobody has seen.
    pub(super) fn random() -> io::Result<Cipher> {
        let mut keys = [0; 2 * KEY_BYTES];
        random::fill(&mut keys)?;
        Ok(Cipher::new(&keys))
    }

    fn new(keys: &[u8; 2 * KEY_BYTES]) -> Cipher {
        let key = |from: usize| {
            let bytes: [u8; KEY_BYTES] = std::array::from_fn(|at| keys[from + at]);
            Aes256::new(&Array::from(bytes))
        };
        Cipher {
            pages: key(0),
            tweaks: key(KEY_BYTES),
        }
    }

    /// Encrypts a page that is about to lie in place `number`.
    pub(super) fn encrypt(&self, number: u64, page: &mut PageBytes) {
        self.apply(number, page, |blocks| self.pages.encrypt_blocks(blocks));
    }

    /// Decrypts a page that lay in place `number`. One that was never written there becomes noise.
    pub(super) fn decrypt(&self, number: u64, page: &mut PageBytes) {
        self.apply(number, page, |blocks| self.pages.decrypt_blocks(blocks));
    }

    fn apply(&self, number: u64, page: &mut PageBytes, crypt: impl Fn(&mut [Block])) {
        let mut first = Array::from(u128::from(number).to_le_bytes());
        self.tweaks.encrypt_block(&mut first);
        let mut tweak = u128::from_le_bytes(first.into());
        let (blocks, _) = Block::slice_as_chunks_mut(page);
        for blocks in blocks.chunks_mut(AT_ONCE) {
            mix(blocks, tweak);
            crypt(blocks);
            tweak = mix(blocks, tweak);
        }
    }
}

/// Adds tweaks to blocks, from this one on; returns the next.
fn mix(blocks: &mut [Block], mut tweak: u128) -> u128 {
    for block in blocks {
        let mixed = u128::from_le_bytes((*block).into()) ^ tweak;
        *block = mixed.to_le_bytes().into();
        let carry = tweak >> (u128::BITS - 1);
        tweak = (tweak << 1) ^ (carry * POLYNOMIAL);
    }
    tweak
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(seed: u8) -> PageBytes {
        std::array::from_fn(|at| at.to_le_bytes()[0].wrapping_mul(31) ^ at.to_le_bytes()[1] ^ seed)
    }

    #[test]
    fn it_is_the_mode_that_others_call_xts() {
        let keys: [u8; 2 * KEY_BYTES] = std::array::from_fn(|at| at.to_le_bytes()[0] * 3);
        let key = |part: usize| Aes256::new_from_slice(&keys[part * KEY_BYTES..][..KEY_BYTES]);
        let other = xts_mode::Xts128::new(key(0).unwrap(), key(1).unwrap());
        let own = Cipher::new(&keys);
        for number in [0, 1, 77, u64::MAX] {
            let (mut ours, mut theirs) = (page(5), page(5));
            own.encrypt(number, &mut ours);
            other.encrypt_sector(&mut theirs, u128::from(number).to_le_bytes().into());
            assert!(ours == theirs, "page {number}");
            own.decrypt(number, &mut ours);
            assert!(ours == page(5), "page {number}");
        }
    }

    #[test]
    fn places_and_disks_differ() {
        let (first, second) = (Cipher::random().unwrap(), Cipher::random().unwrap());
        let encrypted = |cipher: &Cipher, number| {
            let mut page = page(1);
            cipher.encrypt(number, &mut page);
            page
        };
        assert!(encrypted(&first, 1) == encrypted(&first, 1));
        assert!(encrypted(&first, 1) != encrypted(&first, 2));
        assert!(encrypted(&first, 1) != encrypted(&second, 1));
        let mut elsewhere = encrypted(&first, 1);
        first.decrypt(2, &mut elsewhere);
        assert!(elsewhere != page(1));
    }
}
