//! Values that follow from seed, number and version, so that every byte of them can be verified.
//!
//! They are records as programs keep them: names that repeat themselves, and a part that is different in each. lz4
//! packs pages of them about eight to one.

/// The shortest value, and how many lengths there are.
const LEAST_BYTES: usize = 1024;
const LENGTHS: u64 = 1025;
/// Letters for the part of a record that is unlike all others.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// What all records end with.
const REST: &[u8] = b"\",\"verified\":true},\"permissions\":[\"read\",\"write\"],\"expires\":null,\
    \"device\":{\"kind\":\"browser\",\"language\":\"en\",\"zone\":\"UTC\"}},";
const STATES: [&str; 4] = ["waiting", "running", "finished", "cancelled"];
const CITIES: [&str; 4] = ["Lisbon", "Nairobi", "Osaka", "Winnipeg"];

/// Numbers that follow from a seed (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn random(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: u64) -> usize {
        usize::try_from(self.random() % end).unwrap_or(0)
    }
}

/// The name of a key, as redis-benchmark names those that it picks.
#[must_use]
pub fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// The value of a key: 1 to 2 KiB, of the same length in each version.
#[must_use]
pub fn value(seed: u64, number: u64, version: u64) -> Vec<u8> {
    let mut random = Random(seed ^ number.rotate_left(20));
    let length = LEAST_BYTES + random.below(LENGTHS);
    random.0 ^= version.rotate_left(40);
    let mut value = format!("{{\"key\":{number},\"version\":{version},\"records\":[").into_bytes();
    while value.len() < length {
        value.extend_from_slice(b"{\"session\":\"");
        let mut bits = random.random();
        for _ in 0..8 {
            value.push(LETTERS[usize::try_from(bits % 64).unwrap_or(0)]);
            bits /= 64;
        }
        let state = STATES[random.below(STATES.len() as u64)];
        let city = CITIES[random.below(CITIES.len() as u64)];
        value.extend_from_slice(b"\",\"state\":\"");
        value.extend_from_slice(state.as_bytes());
        value.extend_from_slice(b"\",\"address\":{\"country\":null,\"city\":\"");
        value.extend_from_slice(city.as_bytes());
        value.extend_from_slice(REST);
    }
    value.truncate(length);
    value
}

/// A value of so many bytes that nothing compresses.
#[must_use]
pub fn noise(seed: u64, number: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(seed ^ number.rotate_left(20));
    let mut value: Vec<u8> = (0..bytes.div_ceil(8))
        .flat_map(|_| random.random().to_le_bytes())
        .collect();
    value.truncate(bytes);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_from_what_names_them_and_differ_by_all_of_it() {
        let one = value(1, 2, 3);
        assert_eq!(one, value(1, 2, 3));
        for other in [value(2, 2, 3), value(1, 3, 3), value(1, 2, 4)] {
            assert_ne!(one, other);
        }
        assert_eq!(noise(1, 2, 1001), noise(1, 2, 1001));
        assert_ne!(noise(1, 2, 1001), noise(1, 3, 1001));
        assert_eq!(noise(1, 2, 1001).len(), 1001);
    }

    #[test]
    fn lengths_are_between_one_and_two_kibibytes() {
        let lengths: Vec<usize> = (0..5000).map(|number| value(1, number, 0).len()).collect();
        let (least, most) = (lengths.iter().min(), lengths.iter().max());
        assert!(least >= Some(&1024) && most <= Some(&2048));
        assert!(
            least < Some(&1100) && most > Some(&1970),
            "{least:?} {most:?}"
        );
    }

    #[test]
    fn keys_are_named_as_redis_benchmark_names_them() {
        assert_eq!(key(17), "key:000000000017");
    }
}
