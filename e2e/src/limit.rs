//! How much memory a run with `--ram` may take.

use crate::MIB;

/// A run may exceed its limit by one part in this many (5 %) ...
const TOLERANCE_PART: u64 = 20;
/// ... but never by more than this.
const TOLERANCE_MAX_BYTES: u64 = 32 * MIB;
/// The limit in these tests is at most one part in this many of what the program needs.
pub const NEED_PARTS: u64 = 3;

/// The highest total in bytes that a run with this limit may ever show.
pub fn allowed_bytes(limit_bytes: u64) -> u64 {
    limit_bytes + (limit_bytes / TOLERANCE_PART).min(TOLERANCE_MAX_BYTES)
}

/// Bytes as MiB with one decimal.
pub fn mib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / MIB;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_percent_but_never_more_than_32_mib() {
        assert_eq!(allowed_bytes(100 * MIB), 105 * MIB);
        assert_eq!(allowed_bytes(640 * MIB), 672 * MIB);
        assert_eq!(allowed_bytes(10_240 * MIB), 10_272 * MIB);
    }

    #[test]
    fn mib_has_one_decimal() {
        assert_eq!(mib(MIB * 3 / 2), "1.5 MiB");
        assert_eq!(mib(0), "0.0 MiB");
    }
}
