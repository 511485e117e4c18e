//! Sizes as people write them.

use vswap_areas::units::parse_bytes;

/// Not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no size: write a number of bytes, or one with K, M, G or T behind it, like 512M"
)]
pub struct SizeError {
    /// What was given.
    pub text: String,
}

/// A number of bytes, or a text that says one, as for `vswap run`: `512M`, `1.5GiB`, `1048576`. Units with one letter
/// or `iB` are powers of 1024, those that end in `B` powers of 1000.
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
        let bytes = parse_bytes(self, "").ok().flatten();
        bytes.ok_or_else(|| SizeError {
            text: self.to_owned(),
        })
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
        assert_eq!("1.5G".size_bytes(), Ok(3 << 29));
        for wrong in ["", "M", "12X", "-1", "1.2.3G", "99999999999T"] {
            assert!(wrong.size_bytes().is_err(), "{wrong}");
        }
    }
}
