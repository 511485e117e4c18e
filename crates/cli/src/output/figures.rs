//! Figures as people read them.

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes with a binary unit and three significant digits: `8 MiB`, `1.46 GiB`, `498 MiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    // 999.5 and more would be printed with four digits.
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(scaled), UNITS[unit])
}

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

/// At most three digits, and no zeros at the end of a fraction.
fn three_digits(value: f64) -> String {
    let places = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits_that_matter() {
        for (value, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.98 KiB"),
            (8 << 20, "8 MiB"),
            (512 << 20, "512 MiB"),
            (1000 << 20, "0.98 GiB"),
            (3 << 29, "1.5 GiB"),
            ((1 << 30) * 12 + (1 << 29), "12.5 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(value), expected);
        }
    }

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
