//! Sizes as people write them: `512M`, `1.5GiB`, `4096`.

/// Parses a size in bytes. Units are powers of 1024, with or without `iB` or `B`.
///
/// # Errors
/// The text is not a number followed by a known unit. The error says what was expected.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked before the cast"
)]
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number
        .parse()
        .map_err(|_| format!("'{text}' is not a size: expected a number such as 512M or 1.5G"))?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        other => return Err(format!("'{other}' is not a unit: expected K, M, G or T")),
    };
    let bytes = number * f64::from(1u32 << (shift / 2)) * f64::from(1u32 << (shift / 2));
    if !(1.0..9e15).contains(&bytes) {
        return Err(format!(
            "'{text}' is out of range: expected 1 byte to 8192 TiB"
        ));
    }
    Ok(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn units_and_fractions() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("512M"), Ok(512 << 20));
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("64k"), Ok(65536));
    }

    #[test]
    fn nonsense_is_refused_with_what_was_expected() {
        assert!(parse_bytes("lots").is_err_and(|e| e.contains("expected a number")));
        assert!(parse_bytes("5Q").is_err_and(|e| e.contains("expected K, M, G or T")));
        assert!(parse_bytes("0").is_err_and(|e| e.contains("out of range")));
    }
}
