//! Headers of areas: any bytes are decoded or refused. A decoded header keeps every promise, and an encoded one comes
//! back whole.

use vswap_engine::PAGE_BYTES;
use vswap_engine::header::{
    BAD_PAGES_MAX, Kind, Label, Medium, PAGES_MAX, PAGES_MIN, decode, encode, signature,
};

use crate::bytes::Bytes;

const PAGE_BYTES_64: u64 = PAGE_BYTES as u64;
/// Where the numbers of a header begin. The bytes before belong to boot loaders and are never looked at.
const NUMBERS_AT: usize = 1024;
const MAGIC: &[u8] = b"SWAPSPACE2";

/// The first byte chooses how the rest is used.
pub fn header(data: &[u8]) {
    let mut bytes = Bytes(data);
    match bytes.below(3) {
        0 => any_head(bytes),
        1 => almost_a_header(bytes),
        _ => round_trip(bytes),
    }
}

fn medium(bytes: &mut Bytes<'_>) -> Medium {
    let kind = match bytes.bool() {
        true => Kind::BlockDevice,
        false => Kind::RegularFile,
    };
    Medium {
        kind,
        bytes: bytes.u64(),
    }
}

/// Decodes the input as it is.
fn any_head(mut bytes: Bytes<'_>) {
    let medium = medium(&mut bytes);
    let _ = signature(bytes.0);
    keeps_its_promises(bytes.0, medium);
}

/// Decodes a page with the input as its numbers and with the magic, which no fuzzer guesses.
fn almost_a_header(mut bytes: Bytes<'_>) {
    let medium = medium(&mut bytes);
    let mut page = [0; PAGE_BYTES];
    let numbers = &mut page[NUMBERS_AT..PAGE_BYTES - MAGIC.len()];
    let given = bytes.0.len().min(numbers.len());
    numbers[..given].copy_from_slice(&bytes.0[..given]);
    page[PAGE_BYTES - MAGIC.len()..].copy_from_slice(MAGIC);
    keeps_its_promises(&page, medium);
}

fn keeps_its_promises(head: &[u8], medium: Medium) {
    let Ok(header) = decode(head, medium) else {
        return;
    };
    let bad = header.bad_pages.len();
    assert!(header.pages > 1 && header.pages <= PAGES_MAX);
    assert!(header.pages * PAGE_BYTES_64 <= medium.bytes, "cut off");
    assert!(header.usable_pages > 0);
    assert_eq!(header.usable_pages + bad as u64 + 1, header.pages);
    assert!(bad <= BAD_PAGES_MAX);
    assert!(bad == 0 || medium.kind == Kind::BlockDevice);
    assert!(header.bad_pages.windows(2).all(|pair| pair[0] < pair[1]));
    let inside = |&page: &u32| page > 0 && u64::from(page) < header.pages;
    assert!(header.bad_pages.iter().all(inside));
}

fn round_trip(mut bytes: Bytes<'_>) {
    let medium = medium(&mut bytes);
    let uuid = bytes.uuid();
    let label = Label::new(bytes.0).ok();
    let whole_pages = medium.bytes / PAGE_BYTES_64;
    let Ok(encoded) = encode(medium.bytes, label, uuid) else {
        assert!(whole_pages < PAGES_MIN);
        return;
    };
    assert_eq!(encoded.pages + encoded.dropped_pages, whole_pages);
    let header = decode(&encoded.page, medium).expect("encoded just now");
    assert_eq!(header.pages, encoded.pages);
    assert_eq!(header.usable_pages, encoded.pages - 1);
    assert_eq!((header.label, header.uuid), (label, uuid));
    assert!(header.bad_pages.is_empty() && !header.foreign_endian);
}
