//! Sizes as people write them.

/// Not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no size: write a number of bytes, or one with K, M, G or T behind it, like 512M"
)]
pub struct SizeError {
    /// What was given.
    pub text: String,
}

/// A number of bytes, or a text that says one: `512M`, `2GiB`, `1048576`. Units are powers of 1024.
pub trait Size {
    /// The bytes.
    ///
    /// # Errors
    /// [`SizeError`].
    fn size_bytes(self) -> Result<u64, SizeError>;
}

impl Size for u64 {
    fn size_bytes(self) -> Result<u64, SizeError> {
        Ok(self)
    }
}

impl Size for &str {
    fn size_bytes(self) -> Result<u64, SizeError> {
        let wrong = || SizeError {
            text: self.to_owned(),
        };
        let text = self.trim();
        let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(wrong()),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        number.checked_mul(1 << shift).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_or_refused() {
        assert_eq!("512M".size_bytes(), Ok(512 << 20));
        assert_eq!(" 2GiB".size_bytes(), Ok(2 << 30));
        assert_eq!("4096".size_bytes(), Ok(4096));
        for wrong in ["", "M", "12X", "-1", "1.5G", "99999999999T"] {
            assert!(wrong.size_bytes().is_err(), "{wrong}");
        }
    }
}
