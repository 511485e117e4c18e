//! Encryption of swap areas: what was in memory must not be read from a disk that is sold, stolen or copied.
//!
//! AES-256 in XTS mode, as disks are encrypted by dm-crypt: a page's place is its tweak, so it needs no room of its own
//! and can be written again and again. The keys are random, made with the disk, different for each, and nowhere but in
//! memory that is in no core dump. They are wiped with the disk. For any number of threads at once.

use std::io;

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit, typenum::U16};

use zeroize::Zeroizing;

use super::PageBytes;
use crate::memory::Secret;
use crate::random;

/// Bytes of one of the two keys.
const KEY_BYTES: usize = 32;
/// Blocks of 16 bytes that the processor is given at once: more than its pipeline takes.
const AT_ONCE: usize = 64;
/// What a tweak is reduced by when it is doubled: x^128 = x^7 + x^2 + x + 1.
const POLYNOMIAL: u128 = 0x87;

type Block = Array<u8, U16>;

/// The keys of one disk.
pub(super) struct Cipher(Secret<Keys>);

/// Both wipe themselves when they are dropped.
struct Keys {
    pages: Aes256,
    tweaks: Aes256,
}

impl Cipher {
    /// With a key that nobody has seen.
    pub(super) fn random() -> io::Result<Cipher> {
        let mut keys = Zeroizing::new([[0; KEY_BYTES]; 2]);
        random::fill(keys.as_flattened_mut())?;
        Cipher::new(&keys)
    }

    fn new([pages, tweaks]: &[[u8; KEY_BYTES]; 2]) -> io::Result<Cipher> {
        let key = |bytes: &[u8; KEY_BYTES]| Aes256::new(bytes.into());
        let keys = Secret::new(Keys {
            pages: key(pages),
            tweaks: key(tweaks),
        });
        keys.map(Cipher).map_err(io::Error::other)
    }

    /// Encrypts a page that is about to lie in place `number`.
    pub(super) fn encrypt(&self, number: u64, page: &mut PageBytes) {
        self.apply(number, page, |blocks| self.0.pages.encrypt_blocks(blocks));
    }

    /// Decrypts a page that lay in place `number`. One that was never written there becomes noise.
    pub(super) fn decrypt(&self, number: u64, page: &mut PageBytes) {
        self.apply(number, page, |blocks| self.0.pages.decrypt_blocks(blocks));
    }

    fn apply(&self, number: u64, page: &mut PageBytes, crypt: impl Fn(&mut [Block])) {
        let mut first = Array::from(u128::from(number).to_le_bytes());
        self.0.tweaks.encrypt_block(&mut first);
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
        let key = |first: u8| std::array::from_fn(|at| at.to_le_bytes()[0] * 3 + first);
        let keys: [[u8; KEY_BYTES]; 2] = [key(0), key(100)];
        let [pages, tweaks] = keys.map(|key| Aes256::new_from_slice(&key).unwrap());
        let other = xts_mode::Xts128::new(pages, tweaks);
        let own = Cipher::new(&keys).unwrap();
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
