//! Figures as people read them.

use vswap_areas::units::three_digits;
pub use vswap_areas::units::{PAGE_BYTES, bytes};

/// A count with a decimal suffix: `87`, `41.2k`, `1.2M`.
pub fn count(value: u64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    format!("{}{}", three_digits(scaled), UNITS[unit])
}

/// Microseconds, or a longer unit if that reads better: `5.1 us`, `2.3 ms`.
pub fn microseconds(value: f64) -> String {
    if value < 999.5 {
        format!("{} us", three_digits(value))
    } else if value < 999_500.0 {
        format!("{} ms", three_digits(value / 1e3))
    } else {
        format!("{} s", three_digits(value / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(41_234), "41.2k");
        assert_eq!(count(1_200_000), "1.2M");
        assert_eq!(microseconds(5.12), "5.12 us");
        assert_eq!(microseconds(23.0), "23 us");
        assert_eq!(microseconds(2_345.0), "2.35 ms");
        assert_eq!(microseconds(3_000_000.0), "3 s");
    }
}
