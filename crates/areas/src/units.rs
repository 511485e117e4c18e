//! Sizes as people write and read them.

use vswap_engine::header::{PAGES_MAX, PAGES_MIN};

/// Bytes of a page, and of a slot.
pub const PAGE_BYTES: u64 = 4096;
/// Least and most bytes of a swap area.
const AREA_MIN_BYTES: u64 = PAGES_MIN * PAGE_BYTES;
const AREA_MAX_BYTES: u64 = PAGES_MAX * PAGE_BYTES;
/// Largest size that a double holds exactly, 8 PiB: far above any RAM.
const MAX_EXACT_BYTES: f64 = (1_u64 << 53) as f64;

/// Binary units have one letter or end in iB, decimal units end in B, as in GNU's tools.
const UNITS: [(&str, u64); 13] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
];

/// Splits `1.5 GiB` into its number and its unit.
#[must_use]
pub fn split_unit(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// What a unit stands for, in bytes.
#[must_use]
pub fn factor(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(*factor)
}

/// A size in bytes. `None` for sizes that a double does not hold exactly. `value` is not negative.
#[must_use]
pub fn scaled(value: f64, factor: u64) -> Option<u64> {
    let size = value * factor as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // The bound is checked here, and digits without a sign are not negative.
    (size <= MAX_EXACT_BYTES).then_some(size as u64)
}

/// A hint for a user whose size is too small.
#[must_use]
pub fn hint(unit: &str) -> &'static str {
    if unit.is_empty() {
        "; a number without a unit is in bytes, write 512M for megabytes"
    } else {
        ""
    }
}

/// Bytes that a text with a number and a unit says. None if they are more than a double holds exactly.
///
/// # Errors
/// For people, with these examples: it is no number, or has another unit.
pub fn parse_bytes(text: &str, examples: &str) -> Result<Option<u64>, String> {
    let (number, unit) = split_unit(text.trim());
    let value: f64 = number
        .parse()
        .map_err(|_| format!("expected a number and a unit; {examples}"))?;
    let factor = factor(unit).ok_or_else(|| {
        format!(
            "\"{unit}\" is no unit of size: expected K, M, G or T (or KiB, MB, ...); {examples}"
        )
    })?;
    Ok(scaled(value, factor))
}

/// The size of a swap area in bytes.
///
/// # Errors
/// For people: it is none that the format can express, or a share.
pub fn parse_area_size(text: &str) -> Result<u64, String> {
    const EXAMPLES: &str = "for example: 512M, 1.5GiB";
    let text = text.trim();
    let size = parse_bytes(text, EXAMPLES)?
        .filter(|size| *size <= AREA_MAX_BYTES)
        .ok_or_else(|| {
            format!("{text} is more than the {AREA_MAX_BYTES} bytes that a swap area can have; {EXAMPLES}")
        })?;
    if size < AREA_MIN_BYTES {
        return Err(format!(
            "{text} is {}: a swap area takes at least {} ({PAGES_MIN} pages){}",
            bytes(size),
            bytes(AREA_MIN_BYTES),
            hint(split_unit(text).1)
        ));
    }
    Ok(size)
}

/// Bytes with a binary unit and three significant digits: `8 MiB`, `1.46 GiB`, `498 MiB`.
#[must_use]
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

/// At most three digits, and no zeros at the end of a fraction.
#[must_use]
pub fn three_digits(value: f64) -> String {
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
    fn sizes_of_areas_are_those_of_the_format() {
        for (text, expected) in [
            ("40K", 40 << 10),
            ("40960", 40 << 10),
            ("1.5MiB", 3 << 19),
            ("100kB", 100_000),
            ("15T", 15 << 40),
            ("17592186040320", 17_592_186_040_320),
        ] {
            assert_eq!(parse_area_size(text), Ok(expected), "{text}");
        }
        for (text, part) in [
            ("", "expected a number"),
            ("auto", "expected a number"),
            ("-1M", "expected a number"),
            ("50%", "\"%\" is no unit"),
            ("39K", "at least 40 KiB (10 pages)"),
            ("512", "in bytes, write 512M"),
            ("16T", "17592186040320 bytes that a swap area can have"),
            ("99999999999999999999T", "a swap area can have"),
        ] {
            let error = parse_area_size(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

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
}
