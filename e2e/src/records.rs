//! Seeded content: the same everywhere, checked byte for byte, and as compressible as the data of real programs.
//!
//! In these runs there is no disk behind the pool, so a test's content must compress to a third of its size.

pub use vswap_drive::random::mix;

/// Fixed text around the seeded fields of a record: 100 bytes.
const FIELD_TEXT: &str = "\"state\":\"delivered\",\"carrier\":\"northern freight lines\",\"currency\":\"EUR\",\
                          \"terms\":\"thirty days net\"";

/// Appends a record of exactly `bytes` bytes. Only this seed and number give this record. It has text fields, most of
/// them the same in every record, as in real data, with sixteen seeded characters in each.
pub fn record(seed: u64, number: u64, bytes: usize, into: &mut Vec<u8>) {
    let end = into.len() + bytes;
    let mut field = 0u64;
    while into.len() < end {
        let value = mix(seed ^ mix(number.wrapping_mul(31).wrapping_add(field)));
        into.extend_from_slice(format!("{{\"id\":\"{value:016x}\",").as_bytes());
        into.extend_from_slice(FIELD_TEXT.as_bytes());
        into.extend_from_slice(b"},\n");
        field += 1;
    }
    into.truncate(end);
}

/// FNV-1a over bytes: a checksum for comparing streams.
pub fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_their_size_and_their_own_content() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        record(1, 1, 1000, &mut first);
        record(1, 2, 1000, &mut second);
        assert_eq!(first.len(), 1000);
        assert_eq!(second.len(), 1000);
        assert_ne!(first, second);
        let mut again = Vec::new();
        record(1, 1, 1000, &mut again);
        assert_eq!(first, again);
    }

    #[test]
    fn checksum_sees_one_byte() {
        assert_ne!(checksum(b"one byte"), checksum(b"one bytf"));
        assert_eq!(checksum(b""), 0xcbf2_9ce4_8422_2325);
    }
}
