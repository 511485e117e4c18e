//! Encryption of what leaves the machine.
//!
//! AES-256 in GCM mode with a random key for each area, which is nowhere but in this process, is in no core dump and is
//! wiped with the area. A payload is bound to its run and area, to its slot, and to how often the slot was written:
//! these are the nonce and the associated data, and none of them travels. So what somebody has altered, or moved here
//! from another slot or from yesterday, does not verify. A nonce is used for one content alone, since versions never
//! repeat.

use aes_gcm::aead::{AeadInOut, Generate, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use vswap_sys::memory::Secret;
use zeroize::Zeroizing;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Bytes by which a sealed payload is longer.
pub(crate) const TAG_BYTES: usize = 16;
/// What proves that a payload is what was sealed.
pub(crate) type TagBytes = [u8; TAG_BYTES];

/// What was sealed does not verify.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// What a page holds, packed and not encrypted, in memory that a dump has: it is wiped when it is dropped.
pub(crate) type Plain = Zeroizing<Vec<u8>>;

/// The key of one area, and what its payloads are bound to.
pub(crate) struct Cipher {
    key: Secret<Aes256Gcm>,
    bound_to: [u8; 20],
}

impl Cipher {
    /// With a key that nobody has seen. None if the system gives no random bytes or no memory.
    pub(crate) fn random(run: u128, area: u32) -> Option<Cipher> {
        let key = Zeroizing::new(<[u8; KEY_BYTES]>::try_generate().ok()?);
        let mut bound_to = [0; 20];
        bound_to[..16].copy_from_slice(&run.to_be_bytes());
        bound_to[16..].copy_from_slice(&area.to_be_bytes());
        Some(Cipher {
            key: Secret::new(Aes256Gcm::new((&*key).into())).ok()?,
            bound_to,
        })
    }

    /// The payload, encrypted and with a tag behind it. None if it is longer than GCM permits, which no payload is.
    pub(crate) fn seal(&self, slot: u64, version: u32, payload: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = Vec::with_capacity(payload.len() + TAG_BYTES);
        sealed.extend_from_slice(payload);
        let tag = self.seal_in_place(slot, version, &mut sealed)?;
        sealed.extend_from_slice(&tag);
        Some(sealed)
    }

    /// Encrypts the payload where it is, and returns the tag. None if it is longer than GCM permits.
    pub(crate) fn seal_in_place(
        &self,
        slot: u64,
        version: u32,
        payload: &mut [u8],
    ) -> Option<TagBytes> {
        let nonce = nonce(slot, version);
        let tag = self
            .key
            .encrypt_inout_detached(&nonce, &self.bound_to, payload.into());
        tag.ok().map(Into::into)
    }

    /// Decrypts in place and returns the payload.
    ///
    /// # Errors
    /// [`Broken`]: it is not what was sealed for this version of the slot.
    pub(crate) fn open<'s>(
        &self,
        slot: u64,
        version: u32,
        sealed: &'s mut [u8],
    ) -> Result<&'s [u8], Broken> {
        let (payload, tag) = sealed.split_last_chunk_mut::<TAG_BYTES>().ok_or(Broken)?;
        self.open_in_place(slot, version, payload, tag)?;
        Ok(payload)
    }

    /// Decrypts in place what has its tag elsewhere.
    ///
    /// # Errors
    /// [`Broken`]: it is not what was sealed for this version of the slot.
    pub(crate) fn open_in_place(
        &self,
        slot: u64,
        version: u32,
        payload: &mut [u8],
        tag: &TagBytes,
    ) -> Result<(), Broken> {
        let nonce = nonce(slot, version);
        self.key
            .decrypt_inout_detached(&nonce, &self.bound_to, payload.into(), &Tag::from(*tag))
            .map_err(|_| Broken)
    }
}

fn nonce(slot: u64, version: u32) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&slot.to_be_bytes());
    nonce[8..].copy_from_slice(&version.to_be_bytes());
    nonce.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_version_of_the_same_slot_verifies() {
        let cipher = Cipher::random(1, 2).unwrap();
        let sealed = cipher.seal(7, 3, b"a payload").unwrap();
        assert_eq!(sealed.len(), 9 + TAG_BYTES);
        let opens = |cipher: &Cipher, slot, version, mut sealed: Vec<u8>| {
            cipher.open(slot, version, &mut sealed).map(<[u8]>::to_vec)
        };
        assert_eq!(opens(&cipher, 7, 3, sealed.clone()).unwrap(), b"a payload");
        assert_eq!(opens(&cipher, 7, 4, sealed.clone()), Err(Broken));
        assert_eq!(opens(&cipher, 8, 3, sealed.clone()), Err(Broken));
        let elsewhere = Cipher {
            key: Secret::new(Aes256Gcm::clone(&cipher.key)).unwrap(),
            bound_to: [9; 20],
        };
        assert_eq!(opens(&elsewhere, 7, 3, sealed.clone()), Err(Broken));
        let other = Cipher::random(1, 2).unwrap();
        assert_eq!(opens(&other, 7, 3, sealed.clone()), Err(Broken));
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert_eq!(opens(&cipher, 7, 3, altered), Err(Broken));
        }
        for short in 0..TAG_BYTES {
            assert_eq!(opens(&cipher, 7, 3, sealed[..short].to_vec()), Err(Broken));
        }
    }
}
