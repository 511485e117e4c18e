//! Payloads in a block: records, one behind the other from the block's first byte on.
//!
//! A record is the number of its slot, the length of its payload, a checksum of that, and the payload. So a block says
//! by itself what it had when it was written, and needs no table in memory for that. What is still live the words of
//! the slots say. No record has length 0, and where there is no room for one, or where one has that length, the records
//! end. A page that does not pack lies alone in its block as it is, without a record: there is no room for one.
//!
//! The checksum finds what has changed on the disk: encryption tells nobody, and what has changed may still unpack.

use vswap_engine::PAGE_BYTES;
use vswap_engine::zpool::PACKED_BYTES_MAX;
use vswap_sys::disk::PageBytes;

use super::place::{HEADER_BYTES, Place};

// Every payload that is no page fits into a block with its header.
const _: () = assert!(HEADER_BYTES + PACKED_BYTES_MAX <= PAGE_BYTES);

/// The block holds something else than what was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// A payload in a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record<'b> {
    pub(super) slot: u32,
    /// Where in the block it begins.
    pub(super) offset: u16,
    pub(super) payload: &'b [u8],
    checksum: u32,
}

impl Record<'_> {
    fn is_whole(&self) -> bool {
        crc32fast::hash(self.payload) == self.checksum
    }
}

/// Writes a record that begins at byte `offset`. The caller has seen that there is room.
pub(super) fn put(block: &mut PageBytes, offset: usize, slot: u32, payload: &[u8]) {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let record = &mut block[offset..offset + HEADER_BYTES + payload.len()];
    record[..4].copy_from_slice(&slot.to_le_bytes());
    record[4..6].copy_from_slice(&length.to_le_bytes());
    record[6..HEADER_BYTES].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    record[HEADER_BYTES..].copy_from_slice(payload);
}

/// The record that begins at byte `offset`, not yet verified.
fn record_at(block: &PageBytes, offset: usize) -> Option<Record<'_>> {
    let (header, rest) = block.get(offset..)?.split_first_chunk::<HEADER_BYTES>()?;
    let [s0, s1, s2, s3, l0, l1, c0, c1, c2, c3] = *header;
    let length = usize::from(u16::from_le_bytes([l0, l1]));
    Some(Record {
        slot: u32::from_le_bytes([s0, s1, s2, s3]),
        offset: u16::try_from(offset).ok()?,
        payload: rest.get(..length).filter(|payload| !payload.is_empty())?,
        checksum: u32::from_le_bytes([c0, c1, c2, c3]),
    })
}

/// The payload of a slot that lies at `place`.
///
/// # Errors
/// [`Damaged`].
pub(super) fn payload(block: &PageBytes, slot: u64, place: Place) -> Result<&[u8], Damaged> {
    if place.is_whole() {
        return Ok(block);
    }
    record_at(block, place.offset.into())
        .filter(|record| u64::from(record.slot) == slot)
        .filter(|record| record.payload.len() == usize::from(place.length) && record.is_whole())
        .map(|record| record.payload)
        .ok_or(Damaged)
}

/// All records of a block, up to the first that is damaged.
pub(super) fn records(block: &PageBytes) -> impl Iterator<Item = Record<'_>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let record = record_at(block, next).filter(Record::is_whole)?;
        next += HEADER_BYTES + record.payload.len();
        Some(record)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: usize, payload: &[u8]) -> Place {
        let narrow = |value: usize| u16::try_from(value).unwrap();
        Place::new(0, narrow(offset), narrow(payload.len()))
    }

    #[test]
    fn records_come_out_as_they_were_put_in() {
        let mut block = [0; PAGE_BYTES];
        let payloads = [vec![1; 1], vec![2; 3000], vec![3; 700]];
        let mut offset = 0;
        for (slot, payload) in (7..).zip(&payloads) {
            put(&mut block, offset, slot, payload);
            assert_eq!(
                super::payload(&block, slot.into(), place(offset, payload)),
                Ok(&payload[..])
            );
            offset += HEADER_BYTES + payload.len();
        }
        let found: Vec<(u32, &[u8])> = records(&block)
            .map(|record| (record.slot, record.payload))
            .collect();
        let expected: Vec<(u32, &[u8])> = (7..).zip(payloads.iter().map(|one| &one[..])).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn another_slot_length_or_byte_is_damage() {
        let mut block = [0; PAGE_BYTES];
        let content = [5; 100];
        put(&mut block, 20, 9, &content);
        let right = place(20, &content);
        assert!(payload(&block, 9, right).is_ok());
        assert_eq!(payload(&block, 8, right), Err(Damaged));
        assert_eq!(payload(&block, 9, place(20, &content[1..])), Err(Damaged));
        assert_eq!(payload(&block, 9, place(21, &content)), Err(Damaged));
        assert_eq!(payload(&block, 9, place(4095, &content)), Err(Damaged));
        for at in 20..20 + HEADER_BYTES + content.len() {
            let mut changed = block;
            changed[at] ^= 0x10;
            assert_eq!(payload(&changed, 9, right), Err(Damaged), "byte {at}");
        }
    }
}
